"""Whether what Theorem 2 predicts orders the clients as their variances do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .bounds import ClientBound

#: the variances that the prediction is compared with
VARIANCES = ("gp_variance", "replay_variance")


@dataclass(frozen=True)
class Correlation:
    """Of `predicted` with the `variance` of that name over the `clients` of a round.

    `pearson` r with its 95 % interval `low`, `high` (Fisher's z, which takes the clients for independent and both
    quantities for normal), and Spearman's rank correlation with its p-value `spearman_p` (t approximation).
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

    That is for fewer than four clients (the interval would have no width to give), for clients without that variance,
    for values that are not finite, or all the same.

    >>> bounds = [ClientBound(1, k, 9, 1.0, 1.0, float(k), k**2 + 1.0, 99.0) for k in range(5)]
    >>> found = correlate(bounds, "gp_variance")
    >>> round(found.pearson, 3), round(found.spearman, 3), correlate(bounds, "replay_variance")
    (0.959, 1.0, None)
    """
    from scipy.stats import pearsonr, spearmanr

    measured = [getattr(one, variance) for one in bounds]
    if len(measured) < 4 or any(value is None for value in measured):
        return None
    x, y = np.array([one.predicted for one in bounds]), np.array(measured, dtype=np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    linear, ranks = pearsonr(x, y), spearmanr(x, y)
    interval = linear.confidence_interval(0.95)
    numbers = linear.statistic, interval.low, interval.high, ranks.statistic, ranks.pvalue
    return Correlation(bounds[0].round, variance, len(x), *map(float, numbers))
