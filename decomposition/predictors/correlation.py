"""Rank correlations over rounds, with an interval."""

from __future__ import annotations

from math import ceil

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

Array = npt.NDArray[np.float64]

#: rounds that a correlation needs; resamples of an interval
LEAST, RESAMPLES = 5, 2000


def rank_correlation(x: Array, y: Array) -> float:
    """Compute Spearman's correlation; NaN where one of the two is constant, or of two rounds.

    >>> rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([0.3, 0.2, 0.1]))
    -1.0
    """
    return float(_correlations(x[None], y[None])[0]) if len(x) > 2 else float("nan")


def interval(x: Array, y: Array, seed: int = 0) -> tuple[float, float]:
    """Compute a 95 % interval of the correlation: percentiles over 2,000 resamples of blocks of rounds.

    Rounds that follow each other are alike, so blocks of ⌈n^(1/3)⌉ rounds are drawn together (Künsch, 1989), the last
    round being followed by the first. NaN where hardly any resample has a correlation.
    """
    n = len(x)
    length = ceil(n ** (1 / 3))
    begins = np.random.default_rng(seed).integers(n, size=(RESAMPLES, ceil(n / length), 1))
    rows = ((begins + np.arange(length)) % n).reshape(RESAMPLES, -1)[:, :n]
    found = _correlations(x[rows], y[rows])
    there = found[np.isfinite(found)]
    if len(there) < RESAMPLES / 2:
        return float("nan"), float("nan")
    low, high = np.percentile(there, [2.5, 97.5])
    return float(low), float(high)


def _correlations(x: Array, y: Array) -> Array:
    """Correlate the ranks in each row, [R, n]; NaN where a row is constant."""
    a, b = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (rankdata(x, axis=1), rankdata(y, axis=1)))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return np.asarray(found.round(12), np.float64)
