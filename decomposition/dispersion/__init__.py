"""How a round's clients differ, parameter by parameter: dispersion, skewness and its test, streamed from disk."""
