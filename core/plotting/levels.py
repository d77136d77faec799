"""The levels of a surface's colour scale: logarithmic in the excess over the least value, or evenly spaced."""

from __future__ import annotations

import math

import numpy as np

#: By how much a band's excess grows over the one below, and how few and how many bands there may be.
RATIO, FEWEST, MOST = 1.4, 10, 32
#: how many there are between limits of the user's own
BANDS = 20


def levels(values: np.ndarray, least: float, *, fewest: int = FEWEST, step: float = 0.0) -> tuple[np.ndarray, bool]:
    """Edges of bands for finite ``values`` [n], rising from ``least``, and whether some lie above the last one.

    The lowest band holds about a fiftieth of all points, and is not thinner than ``step``. Where few points tower over
    the rest, the bands end below them.
    """
    excess = values - least
    top = float(excess.max())
    end = min(top, 20 * float(np.quantile(excess, 0.9))) or top
    end = max(end, 1e-9, 1e-6 * abs(least))
    start = float(np.clip(np.quantile(excess, 0.02), max(1e-4 * end, step), max(end / 8, step)))
    end = max(end, 2 * start)
    bands = int(np.clip(np.log(end / start) / np.log(RATIO), fewest, MOST))
    return np.concatenate([[least], least + np.geomspace(start, end, bands)]), top > end * (1 + 1e-9)


def even_levels(values: np.ndarray, least: float, *, step: float = 0.0) -> tuple[np.ndarray, bool]:
    """Evenly spaced edges of bands for finite ``values`` [n], at round numbers from one at ``least`` or below, and
    whether some values lie above the last one. They end where :func:`levels` do, and are not thinner than ``step``.

    >>> edges, above = even_levels(np.linspace(0.0067, 0.0151, 50), 0.0067)
    >>> edges[[0, 1, -1]].round(6).tolist(), above
    ([0.0065, 0.007, 0.0155], False)
    """
    excess = values - least
    top = float(excess.max())
    end = min(top, 20 * float(np.quantile(excess, 0.9))) or top
    end = max(end, 1e-9, 1e-6 * abs(least))
    unit = _unit(max(end / BANDS, step))
    first = math.floor(least / unit + 1e-9)
    last = max(first + 2, math.ceil((least + end) / unit - 1e-9))
    edges = np.array([float(f"{k * unit:.15g}") for k in range(first, last + 1)])
    edges[0] = min(edges[0], least)
    return edges, top > end * (1 + 1e-9)


def _unit(least: float) -> float:
    """Return the smallest of 1, 2 and 5 times a power of ten that is not below a number.

    >>> _unit(0.03), _unit(1.0), _unit(0.0006)
    (0.05, 1.0, 0.001)
    """
    power = 10.0 ** math.floor(math.log10(least))
    return next(float(f"{k * power:.15g}") for k in (1, 2, 5, 10) if k * power >= least * (1 - 1e-9))


def evenly_within(low: float, high: float, *, step: float = 0.0) -> np.ndarray:
    """Evenly spaced edges of bands from ``low`` to ``high``; no band is thinner than ``step``, or there are two.

    >>> evenly_within(0.0, 2.0)[[0, 1, -1]].tolist(), evenly_within(0.0, 1.0, step=0.3).size
    ([0.0, 0.1, 2.0], 4)
    """
    bands = BANDS if step <= 0 else int(np.clip((high - low) / step, 2, BANDS))
    return np.linspace(low, high, bands + 1)


def within(low: float, high: float, *, step: float = 0.0) -> np.ndarray:
    """Edges of bands from ``low`` to ``high``, whatever lies there: equal limits are equal scales. No band is
    thinner than four fifths of ``step``, or there are three.

    >>> within(0.0, 2.0).size, within(0.0, 2.0)[[0, -1]].tolist()
    (21, [0.0, 2.0])
    """
    # the second band is the thinnest
    thinnest = max((high - low) / RATIO ** (BANDS - 1), min(step / (RATIO - 1), (high - low) / 2))
    bands = round(1 + math.log((high - low) / thinnest) / math.log(RATIO))
    return np.concatenate([[low], low + np.geomspace(thinnest, high - low, bands)])


def round_edges(edges: np.ndarray, *, last: bool = False) -> np.ndarray:
    """Round the numbers between bands: each edge but the first moves by a fifth of the thinner adjacent band at most,
    and the last one only upwards, so that nothing lies above it that did not.

    Args:
        last: leave the last one as it is, too.

    >>> round_edges(np.array([0.1233, 0.1239, 0.1262, 0.1347, 0.1498])).tolist()
    [0.1233, 0.124, 0.126, 0.135, 0.15]
    """
    moved = edges.copy()
    for i in range(1, len(edges) - (1 if last else 0)):
        gap = np.diff(edges)[i - 1 : i + 1].min() / 5
        low, high = edges[i] - (gap if i < len(edges) - 1 else 0.0), edges[i] + gap
        moved[i] = _roundest(float(low), float(edges[i]), float(high))
    return moved


def _roundest(low: float, value: float, high: float) -> float:
    """Return the number of the fewest digits from ``low`` to ``high``, and of several the nearest to ``value``."""
    if not value or not low < high:
        return value
    if low <= 0 <= high:
        return 0.0
    power = math.floor(math.log10(max(abs(low), abs(high))))
    for digits in range(16):
        unit = 10.0 ** (power - digits)
        steps = round(value / unit)
        near = [float(f"{k * unit:.15g}") for k in (steps - 1, steps, steps + 1)]
        found = [number for number in near if low <= number <= high]
        if found:
            return min(found, key=lambda number: abs(number - value))
    return value


def even_depth(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Place values between evenly spaced levels, counted in levels.

    >>> even_depth(np.array([1.0, 2.0, 7.0]), np.array([1.0, 3.0, 5.0])).tolist()
    [0.0, 0.5, 3.0]
    """
    found = (values - edges[0]) / (edges[-1] - edges[0]) * (len(edges) - 1)
    return np.where(np.isfinite(found), found, np.nan)


def depth(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Place values between the levels, counted in levels; above the last one it goes on as before it.

    >>> depth(np.array([1.0, 2.0, 3.0, 9.0]), np.array([1.0, 3.0, 5.0, 9.0])).tolist()
    [0.0, 0.5, 1.0, 3.0]
    """
    excess, bounds = values - edges[0], edges[1:] - edges[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(excess / bounds[0]), np.log(bounds / bounds[0])
        inside = 1 + np.interp(logs[0], logs[1], np.arange(len(bounds)))
        last = logs[1][-1] - logs[1][-2] if len(bounds) > 1 else np.log(RATIO)
        beyond = len(bounds) + (logs[0] - logs[1][-1]) / last
        found = np.select([excess <= bounds[0], excess <= bounds[-1]], [excess / bounds[0], inside], beyond)
    return np.where(np.isfinite(found), found, np.nan)
