"""Curves of runs over rounds, as measured in training."""

from typing import TYPE_CHECKING

from ...analysis.register import Analysis
from ...old_paths import attributes_of

if not TYPE_CHECKING:  # a checker is to see what is really there
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
