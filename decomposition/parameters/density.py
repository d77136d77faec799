"""The density of one parameter over clients: a Gaussian kernel estimate and its mode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Points on which the mode is looked for before it is refined; a kernel of C values is C^(-1/5) of their deviation
# wide, so that even of a million clients it has several points.
POINTS, ZOOMED = 513, 33
#: the curve ends so many bandwidths beyond the outermost client: what is left out is below 1e-4 of the area
TAILS = 4.0


@dataclass(frozen=True, eq=False)
class Density:
    """A density over clients.

    Attributes:
        at: where it was evaluated, [n], in the parameter's units.
        density: there, [n], in 1/unit; its integral is 1.
        mode: where it is greatest.
    """

    at: Array
    density: Array
    mode: float


def has_density(values: Array) -> bool:
    """Whether a density of these values exists: two or more, all finite, not all the same."""
    if len(values) < 2 or not np.isfinite(values).all():
        return False
    # of equal numbers the deviation may be a rounding of their mean
    with np.errstate(over="ignore", invalid="ignore"):
        return bool((values != values[0]).any() and 0 < np.std(values) < math.inf)


def density_of(values: Array) -> Density | None:
    """The Gaussian kernel density of C values, each counted once: f(w) = 1/(C h) Σ_k φ((w − w_k)/h).

    h = C^(−1/5) s with s² = Σ_k (w_k − w̄)²/(C − 1) (Scott's rule, scipy's default). None where there is no density, see
    :func:`has_density`.

    Args:
        values: one parameter in the clients, [C].

    >>> made = density_of(np.array([0.0, 0.0, 0.0, 1.0]))
    >>> round(float(np.trapezoid(made.density, made.at)), 3), round(made.mode, 2)
    (1.0, 0.01)
    >>> density_of(np.array([1.0, 1.0])) is None
    True
    """
    if not has_density(values):
        return None
    kernel, scaled, centre, deviation = _kernel(values)
    width = math.sqrt(float(kernel.covariance[0, 0]))
    at = np.linspace(scaled.min() - TAILS * width, scaled.max() + TAILS * width, POINTS)
    return Density(centre + deviation * at, kernel(at) / deviation, centre + deviation * _highest(kernel, scaled))


def mode_of(values: Array) -> float | None:
    """Where the density of :func:`density_of` is greatest; of equal ones the lowest.

    The greatest of 513 equidistant points from the least to the greatest client, outside of whom it falls, and then
    three times of 33 around the one before: to 1e-6 of the clients' range.
    """
    if not has_density(values):
        return None
    kernel, scaled, centre, deviation = _kernel(values)
    return centre + deviation * _highest(kernel, scaled)


def _kernel(values: Array) -> tuple[Any, Array, float, float]:
    """Of the values in units of their deviation about their mean: clients may differ in their last digits only."""
    from scipy.stats import gaussian_kde

    centre, deviation = float(values.mean()), float(np.std(values))
    scaled = (values - centre) / deviation
    return gaussian_kde(scaled), scaled, centre, deviation


def _highest(kernel: Any, scaled: Array) -> float:
    low, high = float(scaled.min()), float(scaled.max())
    best, step = low, high - low
    for points in (POINTS, ZOOMED, ZOOMED, ZOOMED):
        grid = np.linspace(max(low, best - step), min(high, best + step), points)
        best, step = float(grid[kernel(grid).argmax()]), float(grid[1] - grid[0])
    return best
