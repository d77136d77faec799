"""Differences between a round's clients, parameter by parameter: dispersion, skewness and its test, streamed from
disk."""
