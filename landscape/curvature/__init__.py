"""How curved the loss is at a model: Hessian, worst and mean case of a ball, filter-normalised."""
