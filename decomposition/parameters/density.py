"""The density of one parameter over clients: a Gaussian kernel estimate and its mode."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Points on which the mode is looked for before it is refined; a kernel of C values is C^(-1/5) of their deviation
# wide, so that even of a million clients it has several points.
POINTS, ZOOMED = 513, 33
#: columns at a time: 4 MB a grid
COLUMNS = 1024
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
    """Tell whether a density of these values exists: two or more, all finite, not all the same."""
    if len(values) < 2 or not np.isfinite(values).all():
        return False
    # of equal numbers the deviation may be a rounding of their mean
    with np.errstate(over="ignore", invalid="ignore"):
        return bool((values != values[0]).any() and 0 < np.std(values) < math.inf)


def density_of(values: Array) -> Density | None:
    """Compute the Gaussian kernel density of C values, each counted once: f(w) = 1/(C h) Σ_k φ((w − w_k)/h).

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
    scaled, centre, deviation = _scale(values[:, None])
    low, high = scaled.min(), scaled.max()
    tails = TAILS * _bandwidth(len(values))
    at = np.linspace(low - tails, high + tails, POINTS)
    density = _kernels(at[:, None], scaled)[:, 0]
    return Density(
        centre[0] + deviation[0] * at,
        density / deviation[0],
        float(centre[0] + deviation[0] * _highest(scaled)[0]),
    )


def mode_of(values: Array) -> float | None:
    """Find the greatest place of the density of :func:`density_of`; of equal ones the lowest.

    The greatest of 513 equidistant points from the least to the greatest client, outside of whom it falls, and then
    three times of 33 around the one before: to 1e-6 of the clients' range.
    """
    return float(modes_of(values[:, None])[0]) if has_density(values) else None


def modes_of(values: Array) -> Array:
    """:func:`mode_of` of every column of ``values`` [C, n], which all have a density; [n].

    Many columns at once: the same sums over clients as scipy's ``gaussian_kde``, which takes one column a call.
    """
    modes = [np.empty(0)]
    for at in range(0, values.shape[1], COLUMNS):
        scaled, centre, deviation = _scale(np.asarray(values[:, at : at + COLUMNS], np.float64))
        modes.append(centre + deviation * _highest(scaled))
    return np.concatenate(modes)


def _scale(values: Array) -> tuple[Array, Array, Array]:
    """Columns in units of their deviation about their mean: clients may differ in their last digits only."""
    centre, deviation = values.mean(axis=0), values.std(axis=0)
    return (values - centre) / deviation, centre, deviation


def _bandwidth(clients: int) -> float:
    """h = C^(-1/5) s of values whose deviation over C, not C - 1, is 1."""
    return float(clients**-0.2 * math.sqrt(clients / (clients - 1)))


def _kernels(at: Array, scaled: Array) -> Array:
    """1/(C h) Σ_k φ((at − w_k)/h) at [g, n] (or [g, 1]) of columns [C, n]; [g, n]."""
    clients, columns = scaled.shape
    width = _bandwidth(clients)
    total: Array = np.zeros((len(at), columns))
    for row in scaled:
        total += np.exp(-0.5 * ((at - row) / width) ** 2)
    total /= clients * width * math.sqrt(2 * math.pi)
    return total


def _highest(scaled: Array) -> Array:
    """Return the mode of each column [C, n], in its units; [n]."""
    low, high = scaled.min(axis=0), scaled.max(axis=0)
    best: Array = low
    step = high - low
    for points in (POINTS, ZOOMED, ZOOMED, ZOOMED):
        grid: Array = np.linspace(np.maximum(low, best - step), np.minimum(high, best + step), points)
        density = _kernels(grid, scaled)
        # of peaks that are equal to rounding the lowest, on any processor
        first = (density >= density.max(axis=0) * (1 - 1e-13)).argmax(axis=0)
        best, step = grid[first, np.arange(len(low))], grid[1] - grid[0]
    return best
