"""The grid of a plane: which coordinates, in which order its points are measured, and how much of it is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ....checkpoints import FedscopeError
from ....evaluation.resumable import coarse_to_fine
from ..basis.plane_bases import PlanePoint

if TYPE_CHECKING:
    from .evaluate import Options

Range = tuple[float, float]


def grid_of(
    places: Sequence[PlanePoint], reaches: tuple[float, float] | None, options: Options
) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates a [A] and b [B] of a grid.

    Args:
        places: of the models that are to have room, where ``reaches`` does not say the range.
        reaches: half the range of each axis, where no range was asked for.

    Raises:
        FedscopeError: less than 2 x 2 points, an empty range, a negative margin.
    """
    grid, margin, ranges = options.get("grid", 51), options.get("margin", 0.3), options.get("ranges")
    counts = (grid, grid) if isinstance(grid, int) else grid
    if min(counts) < 2:
        raise FedscopeError(f"a grid of {counts[0]} x {counts[1]} points shows no surface; give at least 2 (--grid 51)")
    if not 0 <= margin < np.inf:
        raise FedscopeError(f"a margin of {margin:g} is no room round the models; give 0 or more (--margin 0.3)")
    if ranges is None:
        if reaches is None:
            ranges = _square(np.array([place[:2] for place in places]), margin)
        else:
            ranges = (-reaches[0], reaches[0]), (-reaches[1], reaches[1])
    a, b = (_axis(span, count, name) for span, count, name in zip(ranges, counts, "ab", strict=True))
    return a, b


def _square(places: np.ndarray, margin: float) -> tuple[Range, Range]:
    places = places[np.isfinite(places).all(axis=1)]  # a shown model may be broken
    low, high = places.min(axis=0), places.max(axis=0)
    half = (0.5 + margin) * float((high - low).max())
    centre = (low + high) / 2
    return (centre[0] - half, centre[0] + half), (centre[1] - half, centre[1] + half)


def _axis(span: Range, count: int, name: str) -> np.ndarray:
    low, high = float(span[0]), float(span[1])
    if not (np.isfinite([low, high]).all() and low < high):
        raise FedscopeError(f"the range {low:g} to {high:g} of {name} is empty; give the smaller end first")
    return np.linspace(low, high, count)


def finest(done: np.ndarray) -> int | None:
    """Return the least step s, a power of two, for which all points ``done[::s, ::s]`` are; None below 4 x 4 of them.

    >>> finest(np.ones((8, 8), bool)), finest(np.eye(8, dtype=bool))
    (1, None)
    """
    step = 1
    while True:
        part = done[::step, ::step]
        if min(part.shape) < 4:
            return None
        if part.all():
            return step
        step *= 2


def all_points(first: int, shape: tuple[int, int]) -> list[int]:
    """Return the points of a surface's visits in their order: what comes before the grid's points is measured first, so
    that it is known however early one interrupts.

    >>> all_points(1, (1, 3))
    [0, 1, 3, 2]
    """
    return [*range(first), *(first + i for i in coarse_to_fine(shape))]
