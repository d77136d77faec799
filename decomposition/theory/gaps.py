"""The gap of Lemma 1: one cohort's, and which of many count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...checkpoints.results import Kept

# A gap below this share of the outputs' own size is rounding: float64 keeps 1e-16, and layers add to it.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Gap(Kept):
    """The gap of Lemma 1 for one cohort, as recorded (``shrink`` 1) or with its clients drawn towards their mean.

    ``gap`` = √(E_D ‖WENS(x) − f_FMA(x)‖²) and ``scale`` = √(E_D ‖f_FMA(x)‖²), in units of the outputs; ``distance`` =
    Δ = max_k ‖w_k − w_FMA‖ and ``mean_distance`` = mean_k ‖w_k − w_FMA‖, L2 distances in weight space; ``shrink`` = ε.
    """

    round: int
    shrink: float
    gap: float
    distance: float
    mean_distance: float
    scale: float

    @property
    def ratio(self) -> float | None:
        """gap / Δ², which the lemma bounds as Δ → 0; None for identical clients."""
        return self.gap / self.distance**2 if self.distance else None

    @property
    def finite(self) -> bool:
        """Whether the gap and Δ are numbers: where training diverged, they are nan or infinite."""
        return bool(np.isfinite([self.gap, self.distance]).all())

    @property
    def counts(self) -> bool:
        """Whether it has a place in a fit of logarithms: clients that differ, a finite gap above rounding."""
        return self.finite and self.distance > 0 and self.gap > ROUNDING * self.scale


@dataclass(frozen=True)
class Gaps(Kept):
    """The gaps of one cohort, one for every ε."""

    gaps: tuple[Gap, ...]


def left_out(gaps: Sequence[Gap]) -> dict[str, int]:
    """How many gaps are in no fit, by the reason; none where all are."""
    broken = sum(not one.finite for one in gaps)
    small = sum(not one.counts for one in gaps) - broken
    every = {"clients alike, or rounding": small, "not finite: training diverged": broken}
    return {why: count for why, count in every.items() if count}


def without_gaps(gaps: Sequence[Gap]) -> str:
    """What to say where there is no gap to show: whether one is too small or training diverged.

    >>> without_gaps([Gap(3, 1.0, float("nan"), 1.0, 1.0, 1.0)]), without_gaps([Gap(3, 1.0, 0.0, 0.0, 0.0, 1.0)])
    ('no finite gap: training diverged', 'no gap above rounding')
    """
    return "no gap above rounding" if any(one.finite for one in gaps) else "no finite gap: training diverged"
