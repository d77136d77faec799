"""The grid of a plane: which coordinates, how much of it is there, and its points measured or interpolated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ..evaluation.first_layer_groups import Spanning
from ..evaluation.measured_once import Visits, coarse_to_fine
from .kinds import Place

if TYPE_CHECKING:
    from .adaptive import Measure, Refined
    from .surveying import Options

Range = tuple[float, float]

#: points that --adaptive keeps for the neighbourhood of the minimum, at most
NEAR_MINIMUM = 27
#: of what was interpolated, for ``attrs``: as :class:`Refined` has them
CHECKED = ("loss_error", "loss_relative", "loss_low", "loss_bands", "beyond", "error_error", "error_rms")


def grid_of(places: Sequence[Place], reach: float | None, options: Options) -> tuple[np.ndarray, np.ndarray]:
    """The coordinates a [A] and b [B] of a grid.

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
        ranges = _square(np.array([place[:2] for place in places]), margin) if reach is None else ((-reach, reach),) * 2
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
    """The least step s, a power of two, for which all points ``done[::s, ::s]`` are; None below 4 x 4 of them.

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


@dataclass(frozen=True, eq=False)
class Surface:
    """Loss and error on a grid [b, a], which points were measured (None: all), and what was found about the others."""

    loss: np.ndarray
    error: np.ndarray
    computed: np.ndarray | None
    about: dict[str, Any]


def surfaces_of(
    visits: Visits,
    first: int,
    a: np.ndarray,
    b: np.ndarray,
    share: float | None,
    spanning: Callable[[], Spanning | None],
) -> list[Surface]:
    """Each data set's surface; its points are those of ``visits`` from ``first`` on."""
    shape = (len(b), len(a))
    # what comes before the grid's points is measured first, so that it is known however early one interrupts
    models = list(range(first))
    if share is None:
        visits.measure([*models, *(first + i for i in coarse_to_fine(shape))], spanning)
        return [
            Surface(loss[first:].reshape(shape), error[first:].reshape(shape), None, {})
            for loss, error in zip(visits.loss, visits.error, strict=True)
        ]
    from .adaptive import FEWEST, budget, refine

    visits.measure(models)
    surfaces: list[Surface] = []
    for s in range(len(visits.loss)):

        def measure(points: Sequence[int], s: int = s) -> tuple[np.ndarray, np.ndarray]:
            at = [first + i for i in points]
            visits.measure(at, spanning)
            return visits.loss[s, at], visits.error[s, at]

        most = budget(shape, share)
        spared = 0 if most == a.size * b.size else min(NEAR_MINIMUM, most // 10, most - FEWEST)
        made = refine(shape, measure, share=share - spared / (a.size * b.size))
        _sharpen(made, measure, most)
        about = {
            "points_computed": int(made.computed.sum()),
            "points_held_out": made.held_out,
            "points_unknown": made.unknown,
            **{f"held_out_{name}": getattr(made, name) for name in CHECKED},
        }
        surfaces.append(Surface(made.loss, made.error, made.computed, about))
    return surfaces


def _sharpen(made: Refined, measure: Measure, most: int) -> None:
    """Measure the points about the surface's minimum too: where the basin is must not depend on interpolation."""
    while True:
        row, column = np.unravel_index(
            int(np.argmin(np.where(np.isfinite(made.loss), made.loss, np.inf))), made.loss.shape
        )
        about = np.zeros_like(made.computed)
        about[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2] = True
        points = np.flatnonzero(about & ~made.computed)
        if not len(points) or int(made.computed.sum()) + len(points) > most:
            return
        made.loss.flat[points], made.error.flat[points] = measure(points.tolist())
        made.computed.flat[points] = True


def expected(shape: tuple[int, int], share: float | None, surfaces: int) -> int:
    """How many points of a grid will be measured, at most; each surface chooses its own."""
    from .adaptive import budget

    points = shape[0] * shape[1]
    return points if share is None else min(points, surfaces * budget(shape, share))
