"""Evaluation of models: samples, tasks, models in workers, and the hot loop."""
