"""The grid of a plane: which coordinates, how much of it is there, and its points measured or interpolated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....checkpoints import FedscopeError
from ....evaluation.first_layer_groups import Spanning
from ....evaluation.resumable import ResumableEvaluation, coarse_to_fine
from ..basis.plane_bases import Place

if TYPE_CHECKING:
    from ....evaluation.evaluator import Evaluator
    from .adaptive import Measure, Refined
    from .evaluate import Options

Range = tuple[float, float]

#: points that --adaptive keeps for the neighbourhood of the minimum, at most
NEAR_MINIMUM = 27
#: two levels: the share of the samples of the first is one of PART, where that leaves FEWEST_SAMPLES; what share of
#: --adaptive's points the second may measure, and how few are not enough for it
PART, FEWEST_SAMPLES, UPPER, FEWEST_POINTS = 10, 200, 0.5, 64
#: of what was interpolated, for ``attrs``: as :class:`Refined` has them
CHECKED = ("loss_error", "loss_relative", "loss_low", "loss_bands", "beyond", "error_error", "error_rms")


def grid_of(places: Sequence[Place], reach: float | None, options: Options) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates a [A] and b [B] of a grid.

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


@dataclass(frozen=True, eq=False)
class Surface:
    """Loss and error on a grid [b, a], which points were measured (None: all), and what was found about the others."""

    loss: np.ndarray
    error: np.ndarray
    computed: np.ndarray | None
    about: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Fewer:
    """A part of each data set's samples, on which a first surface is measured.

    Attributes:
        evaluator: of the parts; first: of its points in the visits, N after those on all samples.
        spanning: as of the points on all samples.
    """

    evaluator: Evaluator
    first: int
    spanning: Callable[[], Spanning | None]


def surfaces_of(
    visits: ResumableEvaluation,
    first: int,
    a: np.ndarray,
    b: np.ndarray,
    share: float | None,
    spanning: Callable[[], Spanning | None],
    fewer: Fewer | None = None,
) -> list[Surface]:
    """Each data set's surface; its points are those of ``visits`` from ``first`` on.

    Args:
        share: of the points that may be measured; None: all.
        fewer: where there are enough samples for two levels.
    """
    shape = (len(b), len(a))
    grid = slice(first, first + a.size * b.size)
    if share is None:
        visits.measure(all_points(first, shape), spanning)
        return [
            Surface(loss[grid].reshape(shape), error[grid].reshape(shape), None, {})
            for loss, error in zip(visits.loss, visits.error, strict=True)
        ]
    from .adaptive import FEWEST, budget, refine

    visits.measure(range(first))
    surfaces: list[Surface] = []
    for s in range(len(visits.loss)):

        def measure(points: Sequence[int], s: int = s) -> tuple[np.ndarray, np.ndarray]:
            at = [first + i for i in points]
            visits.measure(at, spanning)
            return visits.loss[s, at], visits.error[s, at]

        most = budget(shape, share)
        made: Refined | None = None
        levels: dict[str, int] = {}
        if fewer is not None:
            made, levels = _two_levels(visits, s, shape, share, measure, fewer)
            levels["levels"] = 1 if made is None else 2
        if made is None:
            spared = 0 if most == a.size * b.size else min(NEAR_MINIMUM, most // 10, most - FEWEST)
            made = refine(shape, measure, share=share - spared / (a.size * b.size))
            if fewer is not None:
                _as_measured(made, visits, s, grid)
        _sharpen(made, measure, most)
        about = {
            "points_computed": int(made.computed.sum()),
            "points_held_out": made.held_out,
            "points_unknown": made.unknown,
            **{f"held_out_{name}": getattr(made, name) for name in CHECKED},
            **levels,
        }
        surfaces.append(Surface(made.loss, made.error, made.computed, about))
    return surfaces


def all_points(first: int, shape: tuple[int, int]) -> list[int]:
    """Return the points of a surface's visits in their order: what comes before the grid's points is measured first, so
    that it is known however early one interrupts.

    >>> all_points(1, (1, 3))
    [0, 1, 3, 2]
    """
    return [*range(first), *(first + i for i in coarse_to_fine(shape))]


def _two_levels(
    visits: ResumableEvaluation, s: int, shape: tuple[int, int], share: float, measure: Measure, fewer: Fewer
) -> tuple[Refined | None, dict[str, int]]:
    """Return the surface on a tenth of the samples, and the difference of all samples from it on few points; None where
    that is not as near as a surface from all samples is to be. With it what was measured of the tenth."""
    from .adaptive import RoughSurface, budget, refine

    def roughly(points: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        at = [fewer.first + i for i in points]
        visits.measure(at, fewer.spanning, fewer.evaluator)
        return visits.loss[s, at], visits.error[s, at]

    base = refine(shape, roughly, share=share)
    points = {"points_of_part": int(base.computed.sum()), "samples_of_part": len(fewer.evaluator.parts[s])}
    if not np.isfinite(base.loss).all():
        visits.expect((1 - UPPER) * budget(shape, share))
        return None, points
    made = refine(shape, measure, share=share * UPPER, base=RoughSurface(base.loss, base.error))
    if made.beyond <= 1 and not made.unknown:
        return made, points
    visits.expect(budget(shape, share))
    return None, points


def _as_measured(made: Refined, visits: ResumableEvaluation, s: int, grid: slice) -> None:
    """Mark as measured, too, what was measured before two levels were given up."""
    done = visits.done[grid]
    made.loss.flat[done], made.error.flat[done] = visits.loss[s, grid][done], visits.error[s, grid][done]
    made.computed.flat[done] = True


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


def expected_visits(shape: tuple[int, int], share: float | None, surfaces: int, *, fewer: bool) -> float:
    """Count the points of a grid that will be measured, at most; each surface chooses its own.

    Args:
        fewer: whether a tenth of the samples comes first; then as many as is usual, and such points count as a tenth.
    """
    from .adaptive import budget

    points = shape[0] * shape[1]
    if share is None:
        return points
    each = (UPPER + 1 / PART) * budget(shape, share) if fewer else budget(shape, share)
    return min(points, surfaces * each)
