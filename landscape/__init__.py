"""Losses in weight space: the evaluator, lines and planes."""

# the data and the hot loop
from .evaluator import Evaluator
from .replica import Replica
from .samples import Samples
from .workers import run_in_workers

__all__ = ["Evaluator", "Replica", "Samples", "run_in_workers"]
