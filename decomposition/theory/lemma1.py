"""The gap of Lemma 1: one cohort's, which of many count, and how fast it falls with the distance between clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...results import Serializable

# A gap below this share of the outputs' own size is rounding: float64 keeps 1e-16, and layers add to it.
ROUNDING = 1e-12
# Fewer points than these have a line through them, but no error.
FEWEST = 3


@dataclass(frozen=True)
class Gap(Serializable):
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
        """True if the gap and Δ are numbers: where training diverged, they are nan or infinite."""
        return bool(np.isfinite([self.gap, self.distance]).all())

    @property
    def counts(self) -> bool:
        """True if it has a place in a fit of logarithms: clients that differ, a finite gap above rounding."""
        return self.finite and self.distance > 0 and self.gap > ROUNDING * self.scale


@dataclass(frozen=True)
class Gaps(Serializable):
    """The gaps of one cohort, one for every ε."""

    gaps: tuple[Gap, ...]


def left_out(gaps: Sequence[Gap]) -> dict[str, int]:
    """Count the gaps that are in no fit, by the reason; none where all are."""
    broken = sum(not one.finite for one in gaps)
    small = sum(not one.counts for one in gaps) - broken
    every = {"clients alike, or rounding": small, "not finite: training diverged": broken}
    return {why: count for why, count in every.items() if count}


def without_gaps(gaps: Sequence[Gap]) -> str:
    """Say why there is no gap to show: whether one is too small or training diverged.

    >>> without_gaps([Gap(3, 1.0, float("nan"), 1.0, 1.0, 1.0)]), without_gaps([Gap(3, 1.0, 0.0, 0.0, 0.0, 1.0)])
    ('no finite gap: training diverged', 'no gap above rounding')
    """
    return "no gap above rounding" if any(one.finite for one in gaps) else "no finite gap: training diverged"


@dataclass(frozen=True)
class Slope:
    """log gap = `intercept` + `value` · log Δ² by least squares over `points` gaps; `stderr` of the value.

    The standard error takes the points for independent. Rounds of one run are not, and neither are the ε of one round,
    so it describes how well a line fits and is no test.
    """

    value: float
    stderr: float
    intercept: float
    points: int

    def at(self, squared: float) -> float:
        """Return the fitted gap at a Δ²."""
        return float(np.exp(self.intercept + self.value * np.log(squared)))


def fit_slope(gaps: Sequence[Gap]) -> Slope | None:
    """Compute the slope s of log gap against log Δ²; 1 is the rate of Lemma 1.

    s = 1 over a range: gap/Δ² neither rises nor falls in it. s < 1: the gap falls more slowly than Δ², so that gap/Δ²
    rises towards small Δ; the lemma would be broken if this went on to Δ = 0, which no finite range shows. s > 1: the
    gap falls faster than it must; an upper bound O(Δ²) admits this. Over rounds, w_FMA and the clients' directions
    change with Δ, and with them the constant of the lemma; only shrunk clients of one round keep it.

    Left out are identical clients (Δ = 0), gaps that are rounding (below 1e-12 of the outputs' size) and gaps that are
    not finite. None for fewer than three gaps that remain, or where Δ is the same in all.

    >>> gaps = [Gap(1, e, 0.3 * e**2, e, e, 1.0) for e in (1.0, 0.5, 0.25)]
    >>> slope = fit_slope(gaps)
    >>> round(slope.value, 6), round(slope.at(4.0), 6)
    (1.0, 1.2)
    """
    from scipy.stats import linregress

    x, y = _logarithms(gaps)
    if len(x) < FEWEST or np.ptp(x) == 0:
        return None
    fit = linregress(x, y)
    return Slope(float(fit.slope), float(fit.stderr), float(fit.intercept), len(x))


def local_slopes(gaps: Sequence[Gap]) -> list[float]:
    """Compute the slopes between neighbours in Δ, from the largest Δ to the smallest; the last is nearest to the limit.

    >>> local_slopes([Gap(1, e, e**2 + e**4, e, e, 1.0) for e in (1.0, 0.5, 0.25)])[-1] > 1
    True
    """
    x, y = _logarithms(sorted(gaps, key=lambda one: -one.distance))
    steps = np.diff(x) != 0
    return [float(slope) for slope in np.diff(y)[steps] / np.diff(x)[steps]]


def _logarithms(gaps: Sequence[Gap]) -> tuple[np.ndarray, np.ndarray]:
    """log Δ² and log gap of the gaps that count."""
    counting = [one for one in gaps if one.counts]
    return np.log([one.distance**2 for one in counting]), np.log([one.gap for one in counting])
