"""Curvature of the loss at a model: Hessian, worst and mean case of a ball, filter-normalised."""
