"""The levels of a surface's colour scale: logarithmic in the excess over the least value."""

from __future__ import annotations

import numpy as np

#: By how much a band's excess grows over the one below, and how few and how many bands there may be.
RATIO, FEWEST, MOST = 1.4, 10, 32


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


def depth(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Where values lie between the levels, counted in levels; above the last one it goes on as before it.

    >>> depth(np.array([1.0, 2.0, 3.0, 9.0]), np.array([1.0, 3.0, 5.0, 9.0])).tolist()
    [0.0, 0.5, 1.0, 3.0]
    """
    excess = values - edges[0]
    start, ratio = edges[1] - edges[0], (edges[-1] - edges[0]) / (edges[-2] - edges[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(excess > start, 1 + np.log(excess / start) / np.log(ratio), excess / start)
    return np.where(np.isfinite(found), found, np.nan)
