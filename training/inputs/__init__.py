"""Inputs of analyses: models and samples, from runs, files and programs."""
