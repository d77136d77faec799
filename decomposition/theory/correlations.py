"""Whether what Theorem 2 predicts orders the clients as their variances do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .bounds import ClientBound

#: the variances that the prediction is compared with
VARIANCES = ("gp_variance", "replay_variance")
# Up to so many clients every order of them is counted (9! = 362,880); the t approximation is far off for fewer.
COUNTED = 9


@dataclass(frozen=True)
class Correlation:
    """Of `predicted` with the `variance` of that name over the `clients` of a round.

    `pearson` r with its 95 % interval `low`, `high` (Fisher's z, which takes the clients for independent and both
    quantities for normal), and Spearman's rank correlation with its two-sided p-value `spearman_p`: the share of all
    orders of the clients, counted up to nine clients, from ten on by the t approximation, but not below 2/n!.
    """

    round: int
    variance: str
    clients: int
    pearson: float
    low: float
    high: float
    spearman: float
    spearman_p: float


def correlate(bounds: Sequence[ClientBound], variance: str) -> Correlation | None:
    """The correlation over the clients of one round; None where it does not exist.

    That is for fewer than four clients (Fisher's z has the standard error 1/√(n − 3), so there is no interval), for
    clients without that variance, for values that are not finite, or all the same.

    >>> bounds = [ClientBound(1, k, 9, 1.0, 2.0, 1.0, float(k), k**2 + 1.0, 99.0) for k in range(5)]
    >>> found = correlate(bounds, "gp_variance")
    >>> round(found.pearson, 3), round(found.spearman, 3), correlate(bounds, "replay_variance")
    (0.959, 1.0, None)
    >>> round(found.spearman_p * 120, 6)  # this order of five clients, and the reverse
    2.0
    """
    from scipy.stats import pearsonr

    measured = [getattr(one, variance) for one in bounds]
    if len(measured) < 4 or any(value is None for value in measured):
        return None
    x, y = np.array([one.predicted for one in bounds]), np.array(measured, dtype=np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    linear = pearsonr(x, y)
    interval = linear.confidence_interval(0.95)
    numbers = linear.statistic, interval.low, interval.high, *_of_ranks(x, y)
    return Correlation(bounds[0].round, variance, len(x), *map(float, numbers))


def _of_ranks(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Spearman's correlation and its p-value."""
    from scipy.stats import permutation_test, rankdata, spearmanr

    found, n = spearmanr(x, y), len(x)
    if n > COUNTED:
        return float(found.statistic), max(float(found.pvalue), 2 / math.factorial(n))
    of_x, of_y = rankdata(x), rankdata(y)

    def alike(own: npt.NDArray[np.float64], axis: int = -1) -> Any:
        # The correlation up to constants; sums of products of ranks are exact, so equal ones are equal.
        return (own * of_y).sum(axis)

    # As many resamples as there are orders: each is taken once.
    every = math.factorial(n)
    counted = permutation_test((of_x,), alike, permutation_type="pairings", n_resamples=every, vectorized=True)
    return float(found.statistic), float(counted.pvalue)
