"""Losses between two models: points, result, figures."""
