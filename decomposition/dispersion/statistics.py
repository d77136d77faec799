"""Column statistics of clients: mean, deviation, coefficient of variation, skewness, excess kurtosis; and whether a
skewness is more than chance: D'Agostino's test, from the skewness itself, and the Benjamini-Hochberg step.

D'Agostino, "Transformation to normality of the null distribution of g1", Biometrika 57, 1970; Benjamini and Hochberg,
"Controlling the false discovery rate", Journal of the Royal Statistical Society B 57, 1995.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from ...evaluation.accelerators import has_float64, refuse_without_memory

Array = npt.NDArray[np.float64]

# Float64 numbers of all clients at a time: 1.3 MB, which stays in a core's cache while four sums are made of it.
NUMBERS = 160_000
# And on a GPU, 8 MiB, of which it holds three copies: enough to keep it busy.
GPU_NUMBERS = 2**20
#: clients from which on the test exists
FEWEST = 8
#: by how much less than a critical value counts as at it, so that rounding leaves nothing out
ROUNDING_MARGIN = 1e-9


@dataclass(frozen=True, eq=False)
class ColumnMoments:
    """Moments of n parameters over C clients, float64 [n] each; NaN where a quantity does not exist.

    Attributes:
        mean: μ = mean_k w_k.
        deviation: σ = √(mean_k (w_k − μ)²), over C.
        cv: σ/|μ| (FedSA eq. 4); NaN where the parameter is the same in all clients or its mean is 0.
        skewness: mean_k (w_k − μ)³/σ³, scipy's biased one; NaN where constant, and for fewer than three clients.
        kurtosis: mean_k (w_k − μ)⁴/σ⁴ − 3, excess and biased; NaN alike.
        constant: bool [n], the same number in all clients.
    """

    mean: Array
    deviation: Array
    cv: Array
    skewness: Array
    kurtosis: Array
    constant: npt.NDArray[np.bool_]


def column_moments(values: np.ndarray, device: str = "cpu") -> ColumnMoments:
    """Compute the statistics of every column of ``values`` [C, n]; deviations are taken about the mean in float64, so
    that nothing cancels where clients differ in their last digits.

    Args:
        device: where the four means are made, which read all the numbers; ``cuda`` for a GPU. One without float64
            leaves them to the processor.

    Raises:
        FedscopeError: the device has no memory left.

    >>> moments = column_moments(np.array([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]]))
    >>> moments.mean.tolist(), moments.constant.tolist()
    ([3.0, 5.0], [False, True])
    >>> round(float(moments.skewness[0]), 4), bool(np.isnan(moments.skewness[1]))
    (0.5952, True)
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        here = device == "cpu" or not has_float64(device)
        mean, second, third, fourth = _central_means(values) if here else _on_device(values, device)
        constant = _constant(values, mean, second)
        deviation = np.sqrt(second)
        cv = deviation / np.abs(mean)
        third /= second * deviation
        fourth /= np.square(second, out=second)
        fourth -= 3.0
    unknown = constant if len(values) >= 3 else np.ones_like(constant)
    if unknown.any():
        deviation[constant] = 0.0
        cv[constant] = third[unknown] = fourth[unknown] = np.nan
    zero = mean == 0
    if zero.any():
        cv[zero] = np.nan
    return ColumnMoments(mean, deviation, cv, third, fourth, constant)


def _central_means(values: np.ndarray) -> tuple[Array, Array, Array, Array]:
    """μ and the means of (w_k − μ)², (w_k − μ)³ and (w_k − μ)⁴, [n] each."""
    clients, count = values.shape
    sums = mean, second, third, fourth = tuple(np.empty(count) for _ in range(4))
    step = max(NUMBERS // clients, 1)
    room = np.empty((clients, min(step, count)))
    for start in range(0, count, step):
        here = slice(start, min(start + step, count))
        about = room[:, : here.stop - start]
        np.copyto(about, values[:, here])
        np.add.reduce(about, axis=0, out=mean[here])
        mean[here] /= clients
        about -= mean[here]
        # in this order one buffer is enough, and einsum keeps no product of [C, n]
        np.einsum("kn,kn,kn->n", about, about, about, out=third[here])
        np.square(about, out=about)
        np.add.reduce(about, axis=0, out=second[here])
        np.einsum("kn,kn->n", about, about, out=fourth[here])
    for total in sums[1:]:
        total /= clients
    return mean, second, third, fourth


def _on_device(values: np.ndarray, device: str) -> tuple[Array, Array, Array, Array]:
    """Do as :func:`_central_means`, by torch; some columns at a time, of which there are three copies in float64."""
    import torch

    clients, count = values.shape
    step = max(GPU_NUMBERS // clients, 1)
    with refuse_without_memory(device, f"measure {min(step, count):,} parameters of {clients:,} clients at a time"):
        found = torch.empty(4, count, dtype=torch.float64, device=device)
        for start in range(0, count, step):
            mean, second, third, fourth = found[:, start : start + step]
            about = torch.from_numpy(values[:, start : start + step]).to(device).double()
            torch.mean(about, dim=0, out=mean)
            about -= mean
            square = about.square()
            torch.mean(square, dim=0, out=second)
            torch.mean(about.mul_(square), dim=0, out=third)
            torch.mean(square.square_(), dim=0, out=fourth)
        means = found.cpu().numpy()
    return means[0], means[1], means[2], means[3]


def _constant(values: np.ndarray, mean: Array, second: Array) -> npt.NDArray[np.bool_]:
    """Find the columns that hold one number: few are near enough to it that their values must be compared."""
    if not len(mean):
        return np.zeros(0, np.bool_)
    # the mean of C equal numbers is off by less than C roundings of it
    rounding = 4 * len(values) * np.finfo(np.float64).eps
    if second.min() > (rounding * max(mean.max(), -mean.min())) ** 2:
        return np.zeros(len(mean), np.bool_)
    near = second <= np.square(rounding * mean)
    if near.any():
        columns = np.flatnonzero(near)
        near[columns] = (values[:, columns] == values[0, columns]).all(axis=0)
    return near


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
    scale, alpha, delta = _normalizing_terms(clients)
    z = np.abs(skewness) * (scale / alpha)
    np.arcsinh(z, out=z)
    z *= -delta
    ndtr(z, out=z)
    z *= 2
    return np.asarray(z)


def critical_skewness(level: float, clients: int) -> float:
    """Compute the |g| whose p-value is ``level``.

    >>> round(critical_skewness(0.05, 20), 3)
    0.94
    """
    scale, alpha, delta = _normalizing_terms(clients)
    return float(alpha / scale * np.sinh(-ndtri(level / 2) / delta))


def count_rejections(p_values: Array, tested: int, fdr: float) -> int:
    """Count the ``tested`` hypotheses that are rejected at this false discovery rate: the largest i with
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
        extreme = extreme[extreme >= (1 - ROUNDING_MARGIN) * critical_skewness(level, clients)]
    return count_rejections(skewness_p_values(extreme, clients), tested, fdr)


def _normalizing_terms(clients: int) -> tuple[float, float, float]:
    """√((C+1)(C+3) / (6(C−2))), α and δ."""
    n = clients
    fourth = 3 * (n * n + 27 * n - 70) * (n + 1) * (n + 3) / ((n - 2) * (n + 5) * (n + 7) * (n + 9))
    squared = sqrt(2 * (fourth - 1)) - 1
    return sqrt((n + 1) * (n + 3) / (6 * (n - 2))), sqrt(2 / (squared - 1)), 1 / sqrt(0.5 * log(squared))
