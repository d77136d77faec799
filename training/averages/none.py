"""No averaging over rounds: what FMA alone does."""

from __future__ import annotations

from dataclasses import dataclass

from ..methods import AverageMethod


@dataclass(frozen=True)
class NoAverage(AverageMethod):
    """``averaged`` never exists; every round starts from the last ``global``."""


PROVIDES = NoAverage
