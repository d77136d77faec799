"""Column statistics of clients: mean, deviation, coefficient of variation, skewness, excess kurtosis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Float64 numbers of all clients at a time: 1.3 MB, which stays in a core's cache while four sums are made of it.
NUMBERS = 160_000


@dataclass(frozen=True, eq=False)
class Moments:
    """Of n parameters over C clients, float64 [n] each; NaN where a quantity does not exist.

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


def column_moments(values: np.ndarray, device: str = "cpu") -> Moments:
    """The statistics of every column of ``values`` [C, n]; deviations are taken about the mean in float64, so that
    nothing cancels where clients differ in their last digits.

    Args:
        device: where the four means are made, which read all the numbers; ``cuda`` for a GPU.

    >>> moments = column_moments(np.array([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0]]))
    >>> moments.mean.tolist(), moments.constant.tolist()
    ([3.0, 5.0], [False, True])
    >>> round(float(moments.skewness[0]), 4), bool(np.isnan(moments.skewness[1]))
    (0.5952, True)
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        mean, second, third, fourth = _central_means(values) if device == "cpu" else _on_device(values, device)
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
    return Moments(mean, deviation, cv, third, fourth, constant)


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
    """As :func:`_central_means`, by torch."""
    import torch

    about = torch.from_numpy(values).to(device).double()
    mean = about.mean(dim=0)
    about -= mean
    square = about.square()
    means = (mean, square.mean(dim=0), (square * about).mean(dim=0), square.square().mean(dim=0))
    found = torch.stack(means).cpu().numpy()
    return found[0], found[1], found[2], found[3]


def _constant(values: np.ndarray, mean: Array, second: Array) -> npt.NDArray[np.bool_]:
    """Which columns hold one number: few are near enough to it that their values must be compared."""
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
