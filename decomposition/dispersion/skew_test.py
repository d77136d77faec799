"""D'Agostino's test of skewness, from the skewness itself, and the Benjamini-Hochberg step.

D'Agostino, "Transformation to normality of the null distribution of g1", Biometrika 57, 1970; Benjamini and Hochberg,
"Controlling the false discovery rate", Journal of the Royal Statistical Society B 57, 1995.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

Array = npt.NDArray[np.float64]

#: clients from which on the test exists
FEWEST = 8
#: by how much less than a critical value counts as at it, so that rounding leaves nothing out
HAIR = 1e-9


def skewness_p_values(skewness: Array, clients: int) -> Array:
    """Two-sided p-values of the test that C independent values of biased skewness g come from a normal distribution.

    z = δ asinh(y/α) is nearly standard normal, with y = g √((C+1)(C+3) / (6(C−2))) and δ, α from the fourth moment of
    g. It rises with |g|, so p-values never need the values themselves, which is what ``scipy.stats.skewtest`` asks for.

    The approximation is rough in the tail of few clients: |g| is at most (C−2)/√(C−1), so p is at least 3.5e-4 of 8
    clients, 7.0e-5 of 10 and 5.2e-8 of 20.

    Args:
        skewness: any shape; NaN stays NaN.
        clients: C, 8 or more.

    >>> from scipy import stats
    >>> values = np.arange(10.0) ** 2
    >>> p = skewness_p_values(np.array([stats.skew(values)]), 10)
    >>> bool(np.isclose(p[0], stats.skewtest(values).pvalue, rtol=1e-12))
    True
    """
    scale, alpha, delta = _normalising(clients)
    z = np.abs(skewness) * (scale / alpha)
    np.arcsinh(z, out=z)
    z *= -delta
    ndtr(z, out=z)
    z *= 2
    return np.asarray(z)


def critical_skewness(level: float, clients: int) -> float:
    """The |g| whose p-value is ``level``.

    >>> round(critical_skewness(0.05, 20), 3)
    0.94
    """
    scale, alpha, delta = _normalising(clients)
    return float(alpha / scale * np.sinh(-ndtri(level / 2) / delta))


def count_rejections(p_values: Array, tested: int, fdr: float) -> int:
    """How many of ``tested`` hypotheses are rejected at this false discovery rate: the largest i with
    p_(i) ≤ ``fdr`` i / ``tested``, p in ascending order (Benjamini and Hochberg).

    Only hypotheses with p ≤ ``fdr`` can be rejected, so the p-values of the others may be left out.

    >>> count_rejections(np.array([0.04, 0.001, 0.02]), 4, 0.05)
    2
    """
    step = fdr / max(tested, 1)
    # i is at most how many there are, so what is above its bound for that is not rejected: most are gone before sorting
    for _ in range(3):
        p_values = p_values[p_values <= len(p_values) * step]
    below = np.flatnonzero(np.sort(p_values) <= np.arange(1, len(p_values) + 1) * step)
    return int(below[-1]) + 1 if len(below) else 0


def count_skewed(extreme: Array, clients: int, tested: int, fdr: float) -> int:
    """:func:`count_rejections` of ``tested`` parameters, of which those of p ≤ ``fdr`` have these |g|.

    What is above the bound of its p-value is gone before any p-value is computed: |g| falls as p rises.

    >>> draw = np.random.default_rng(0).exponential(size=(20, 1000))
    >>> from scipy import stats
    >>> g = np.abs(stats.skew(draw))
    >>> count_skewed(g[g >= critical_skewness(0.05, 20)], 20, 1000, 0.05) == count_rejections(
    ...     stats.skewtest(draw).pvalue, 1000, 0.05)
    True
    """
    for _ in range(3):
        if not len(extreme):
            return 0
        level = fdr * len(extreme) / tested
        extreme = extreme[extreme >= (1 - HAIR) * critical_skewness(level, clients)]
    return count_rejections(skewness_p_values(extreme, clients), tested, fdr)


def _normalising(clients: int) -> tuple[float, float, float]:
    """√((C+1)(C+3) / (6(C−2))), α and δ."""
    n = clients
    fourth = 3 * (n * n + 27 * n - 70) * (n + 1) * (n + 3) / ((n - 2) * (n + 5) * (n + 7) * (n + 9))
    squared = sqrt(2 * (fourth - 1)) - 1
    return sqrt((n + 1) * (n + 3) / (6 * (n - 2))), sqrt(2 / (squared - 1)), 1 / sqrt(0.5 * log(squared))
