"""Curves of runs over rounds, as measured in training."""

from ...analysis.register import Analysis
from ...moved import attributes_of

__getattr__ = attributes_of(__name__, "result")

ANALYSIS = Analysis(
    name="curves",
    section="Train and look around",
    place=40,
    line="Loss, error and spread over rounds, as measured in training.",
    answers=("Curves",),
    reports=(),
    how_to="",
    example="curves runs/fma",
)
