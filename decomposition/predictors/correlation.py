"""Rank correlations over rounds, with an interval."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, permutations
from math import asin, ceil, pi, sqrt

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

Array = npt.NDArray[np.float64]

#: rounds that a correlation needs; resamples of an interval
LEAST, RESAMPLES = 5, 2000
#: rounds of which all orders are tried, and orders that are drawn of more; the level of the test
EXACT, ORDERS, LEVEL = 7, 9999, 0.05


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

    Resamples of few rounds repeat them and are too alike: of five rounds of noise such an interval leaves out 0 in one
    case of five. So an interval that leaves out 0 is widened where chance gives as much. With r the correlation and r_π
    that of y in another order, p is the share of all n! orders with |r_π| >= |r|, of more than seven rounds of 9,999
    drawn ones and the own. Where p > 0.05, the end next to 0 moves beyond it, to r − c or r + c, with c the greatest
    |r_π| that is no rarer. Then 0 is left out in at most 5 % of cases where rounds do not depend on each other. Where
    they do it is more: simulated, of two series without relation, whose rounds each correlate 0.7 with the next:

    ====================  ==== ==== ==== ==== ====
    rounds                5    10   20   30   60
    ====================  ==== ==== ==== ==== ====
    independent           1 %  4 %  3 %  2 %  3 %
    correlation of 0.7    2 %  8 %  9 %  11 % 11 %
    ====================  ==== ==== ==== ==== ====

    Rounds that are all in order are so in every resample, whose percentiles are one number. There the end next to 0 is
    that of :func:`least_in_order`.
    """
    n = len(x)
    length = ceil(n ** (1 / 3))
    begins = np.random.default_rng(seed).integers(n, size=(RESAMPLES, ceil(n / length), 1))
    rows = ((begins + np.arange(length)) % n).reshape(RESAMPLES, -1)[:, :n]
    found = _correlations(x[rows], y[rows])
    there = found[np.isfinite(found)]
    if len(there) < RESAMPLES / 2:
        return float("nan"), float("nan")
    low, high = (float(end) for end in np.percentile(there, [2.5, 97.5]))
    if low > 0 or high < 0:
        r, c = rank_correlation(x, y), chance(x, y)
        if abs(r) <= c:
            low, high = (min(low, r - c), high) if low > 0 else (low, max(high, r + c))
        elif abs(r) == 1:
            least = least_in_order(tuple(np.unique(x, return_counts=True)[1].tolist()))
            low, high = (min(low, least), high) if low > 0 else (low, max(high, -least))
    return low, high


def chance(x: Array, y: Array) -> float:
    """Return c: the greatest |correlation| that is no rarer than 5 % among the orders of y, so that p <= 0.05 beyond.

    >>> x = np.arange(5.0)
    >>> chance(x, x)  # of 120 orders 2 have |r| = 1, and 10 have 0.9 or more
    0.9
    """
    a, b = (ranks - ranks.mean() for ranks in (rankdata(x), rankdata(y)))
    found = np.abs(b[_orders(len(x))] @ a / np.sqrt((a @ a) * (b @ b))).round(12)
    if len(x) > EXACT:  # the own order is one of them
        found = np.append(found, abs(rank_correlation(x, y)))
    values, counts = np.unique(found, return_counts=True)
    shares = counts[::-1].cumsum()[::-1] / len(found)
    return float(values[shares > LEVEL].max())


@cache
def least_in_order(counts: tuple[int, ...]) -> float:
    """Return the least correlation with which n rounds are all in order with a probability of 2.5 %.

    Any smaller one would show such an order more rarely, so a 95 % interval ends there.

    Ranks alone matter, so let each round's two numbers be normal, X and Y = ρ X + √(1 − ρ²) Z with X and Z independent.
    Sorted by X, the Y are in order where ρ (X_j − X_i) > √(1 − ρ²) (Z_i − Z_j) for all i < j, that is where
    ρ / √(1 − ρ²) is greater than the greatest of (Z_i − Z_j) / (X_j − X_i). Neighbours suffice, because the quotient of
    others is between those of the steps from one to the other. With t the 2.5 % quantile of this greatest one over
    9,999 draws, ρ = t / √(1 + t²), of which Spearman's correlation is 6/π arcsin(ρ / 2).

    Args:
        counts: how many rounds have each number, ascending: all 1, unless some are the same. Those are in no order, and
            so each is compared with all of the next number.

    >>> [round(least_in_order((1,) * rounds), 1) for rounds in (5, 8)]
    [0.3, 0.9]
    """
    draw = np.random.default_rng(0)
    x, z = (draw.standard_normal((ORDERS, sum(counts))) for _ in range(2))
    x.sort(axis=1)
    greatest, begin = np.full(ORDERS, -np.inf), 0
    for count, following in pairwise(counts):
        middle = begin + count
        for i in range(begin, middle):
            for j in range(middle, middle + following):
                np.maximum(greatest, (z[:, i] - z[:, j]) / (x[:, j] - x[:, i]), out=greatest)
        begin = middle
    t = float(np.percentile(greatest, 2.5))
    return 6 / pi * asin(t / sqrt(1 + t**2) / 2)


@cache
def _orders(count: int) -> npt.NDArray[np.intp]:
    """All orders of up to seven rounds, else drawn ones, [orders, n]."""
    if count <= EXACT:
        return np.array(list(permutations(range(count))), np.intp)
    return np.argsort(np.random.default_rng(0).random((ORDERS, count)), axis=1)


def _correlations(x: Array, y: Array) -> Array:
    """Correlate the ranks in each row, [R, n]; NaN where a row is constant."""
    a, b = (ranks - ranks.mean(axis=1, keepdims=True) for ranks in (rankdata(x, axis=1), rankdata(y, axis=1)))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return np.asarray(found.round(12), np.float64)
