"""The surfaces of a plane: every point measured, or as many as tell the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ....evaluation.first_layer_groups import Spanning
from ....evaluation.resumable import ResumableEvaluation
from ..point_counts import NEAR_MINIMUM, SurfaceBudget
from .grids import all_points

if TYPE_CHECKING:
    from ....evaluation.evaluator import Evaluator
    from .adaptive import Refined

#: two levels: the share of the samples of the first is one of PART, where that leaves FEWEST_SAMPLES; what share of
#: --adaptive's usual points the second may measure, and how few are not enough for it
PART, FEWEST_SAMPLES, UPPER, FEWEST_POINTS = 10, 200, 0.5, 64
#: of what was interpolated, for ``attrs``: as :class:`Refined` has them
CHECKED = ("loss_error", "loss_relative", "loss_low", "loss_bands", "beyond", "error_error", "error_rms")
#: what ``attrs`` say of two levels
LEVELS = ("levels", "points_of_part", "samples_of_part")


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


@dataclass(frozen=True, eq=False)
class EarlierSurface:
    """A surface of the same question that a smaller budget ended.

    Attributes:
        loss, error, computed: [b, a]; where they were measured they need not be again.
        about: what its ``attrs`` say; enough: whether it is the answer already.
    """

    loss: np.ndarray
    error: np.ndarray
    computed: np.ndarray
    about: dict[str, Any]
    enough: bool


def measured_surfaces(
    visits: ResumableEvaluation, first: int, shape: tuple[int, int], spanning: Callable[[], Spanning | None]
) -> list[Surface]:
    """Each data set's surface, every point of it measured; they are those of ``visits`` from ``first`` on."""
    visits.measure(all_points(first, shape), spanning)
    grid = slice(first, first + shape[0] * shape[1])
    return [
        Surface(loss[grid].reshape(shape), error[grid].reshape(shape), None, {})
        for loss, error in zip(visits.loss, visits.error, strict=True)
    ]


@dataclass(eq=False)
class SurfacePoints:
    """The points of one data set's surface, each measured once at most; the measure of :func:`refine`.

    Attributes:
        visits: where they are measured, from ``first`` on; s: the place of the data set.
        plan: how many.
        together: points that any surface of the visits has asked for, [b, a]. What a store holds besides has no part
            in which points are chosen: an interrupted surface is that of one that was not.
        earlier: those that need not be measured.
        expected: how many new ones the visits were told of.
        asked: the surface's own new ones, [b, a].
    """

    visits: ResumableEvaluation
    s: int
    first: int
    plan: SurfaceBudget
    spanning: Callable[[], Spanning | None]
    together: np.ndarray
    earlier: EarlierSurface | None
    expected: float
    asked: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is asked for yet."""
        self.asked = np.zeros(self.plan.shape, dtype=bool)

    def __call__(self, points: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Losses and errors of points, in their order."""
        at = np.array(points, dtype=np.int64)
        known = np.zeros(len(at), dtype=bool) if self.earlier is None else self.earlier.computed.flat[at]
        self.asked.flat[at[~known]] = self.together.flat[at[~known]] = True
        self._expect_as_asked()
        self.visits.measure([self.first + int(i) for i in at[~known]], self.spanning)
        loss, error = self.visits.loss[self.s, self.first + at], self.visits.error[self.s, self.first + at]
        if self.earlier is not None:
            loss[known], error[known] = (values.flat[at[known]] for values in (self.earlier.loss, self.earlier.error))
        return loss, error

    def expect(self, more: float) -> None:
        """So many more points will be asked for."""
        self.expected += more
        self.visits.expect(more)

    def _expect_as_asked(self) -> None:
        """Once more points are asked for than were expected, expect twice as many in all, or as many as there may be:
        nobody knows how many of its points will tell a surface. Those near the minimum, which come last, change
        nothing."""
        before = 0 if self.earlier is None else int(self.earlier.computed.sum())
        if self.asked.sum() > self.expected + NEAR_MINIMUM:
            whole = min(2 * (before + self.expected), max(self.plan.most, before + int(self.asked.sum())))
            self.expect(whole - before - self.expected)


def adaptive_surfaces(
    visits: ResumableEvaluation,
    first: int,
    plan: SurfaceBudget,
    spanning: Callable[[], Spanning | None],
    fewer: Fewer | None = None,
    earlier: Sequence[EarlierSurface] = (),
) -> list[Surface]:
    """Each data set's surface, measured until its aim holds or as far as the plan goes; its points are those of
    ``visits`` from ``first`` on.

    Args:
        fewer: where there are enough samples for two levels.
        earlier: of each data set, what a smaller budget ended at.
    """
    visits.measure(range(first))
    together = np.zeros(plan.shape, dtype=bool)
    surfaces: list[Surface] = []
    for s in range(len(visits.loss)):
        known = earlier[s] if earlier else None
        if known is not None and known.enough:
            about = {key: value for key, value in known.about.items() if key in _attrs_of_surfaces()}
            surfaces.append(Surface(known.loss, known.error, known.computed, about))
            continue
        expected = expected_points(plan, known, fewer=fewer is not None)
        points = SurfacePoints(visits, s, first, plan, spanning, together, known, expected)
        made, about = _surface_of(points, fewer)
        computed = int(made.computed.sum())
        # what was measured near the minimum within the usual number of points stays within it
        _sharpen(made, points, plan.usual if computed <= plan.usual else plan.most)
        about = {
            "points_computed": int(made.computed.sum()),
            "points_held_out": made.held_out,
            "points_unknown": made.unknown,
            **{f"held_out_{name}": getattr(made, name) for name in CHECKED},
            **about,
        }
        surfaces.append(Surface(made.loss, made.error, made.computed, about))
    return surfaces


def _attrs_of_surfaces() -> tuple[str, ...]:
    """List what ``attrs`` say of a surface's points."""
    counts = ("points_computed", "points_held_out", "points_unknown", "points_taken_over")
    return (*counts, *(f"held_out_{name}" for name in CHECKED), *LEVELS)


def _surface_of(points: SurfacePoints, fewer: Fewer | None) -> tuple[Refined, dict[str, Any]]:
    """Return the surface of one data set, and what ``attrs`` say of how it came about.

    First the usual number of points is tried, on two levels where that is possible. What they do not tell goes on from
    all that was measured: so does a surface that a smaller budget had ended.
    """
    from .adaptive import refine

    plan, earlier = points.plan, points.earlier
    sized = plan.without_spared(plan.usual)
    made: Refined | None = None
    if earlier is not None:
        about = {key: earlier.about[key] for key in LEVELS if key in earlier.about}
        about["points_taken_over"] = int(earlier.computed.sum())
        known = earlier.computed
    else:
        about = {}
        if fewer is not None:
            made, about = _two_levels(points, fewer)
            about["levels"] = 1 if made is None else 2
            if made is not None:
                return made, about
        known = points.asked.copy()
        if plan.usual + int(known.sum()) <= plan.most or not known.any():
            made = refine(plan.shape, points, share=sized / plan.size)
            if fewer is not None:
                _mark_measured(made, points)
            known = made.computed
    limit = plan.without_spared(plan.most)
    if made is None or (not made.met and int(known.sum()) < limit):
        made = refine(plan.shape, points, share=limit / plan.size, known=known, sized=sized)
    return made, about


def _two_levels(points: SurfacePoints, fewer: Fewer) -> tuple[Refined | None, dict[str, Any]]:
    """Return the surface on a tenth of the samples, and the difference of all samples from it on few points; None where
    that is not as near as a surface from all samples is to be. With it what was measured of the tenth."""
    from .adaptive import RoughSurface, refine

    visits, s, plan = points.visits, points.s, points.plan

    def roughly(part: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        at = [fewer.first + i for i in part]
        visits.measure(at, fewer.spanning, fewer.evaluator)
        return visits.loss[s, at], visits.error[s, at]

    base = refine(plan.shape, roughly, share=plan.usual_share)
    about = {"points_of_part": int(base.computed.sum()), "samples_of_part": len(fewer.evaluator.parts[s])}
    if not np.isfinite(base.loss).all():
        points.expect((1 - UPPER) * plan.usual)
        return None, about
    made = refine(plan.shape, points, share=plan.usual_share * UPPER, base=RoughSurface(base.loss, base.error))
    if made.met:
        return made, about
    points.expect(min(plan.usual, plan.most - int(points.asked.sum())))
    return None, about


def _mark_measured(made: Refined, points: SurfacePoints) -> None:
    """Mark as measured, too, what was measured before two levels were given up."""
    done = points.together
    at = np.flatnonzero(done)
    made.loss.flat[at], made.error.flat[at] = points(at.tolist())
    made.computed.flat[at] = True


def _sharpen(made: Refined, points: SurfacePoints, most: int) -> None:
    """Measure the points about the surface's minimum too: where the basin is must not depend on interpolation."""
    while True:
        row, column = np.unravel_index(
            int(np.argmin(np.where(np.isfinite(made.loss), made.loss, np.inf))), made.loss.shape
        )
        about = np.zeros_like(made.computed)
        about[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2] = True
        new = np.flatnonzero(about & ~made.computed)
        if not len(new) or int(made.computed.sum()) + len(new) > most:
            return
        made.loss.flat[new], made.error.flat[new] = points(new.tolist())
        made.computed.flat[new] = True


def expected_points(plan: SurfaceBudget, earlier: EarlierSurface | None, *, fewer: bool) -> float:
    """Count the points of a surface that are expected to be measured on all samples: as many as mostly are enough, or
    as many again as were not."""
    if earlier is not None:
        known = int(earlier.computed.sum())
        return 0 if earlier.enough else max(0, min(known, plan.most - known))
    return UPPER * plan.usual if fewer else plan.usual


def expected_visits(
    plan: SurfaceBudget, surfaces: int, earlier: Sequence[EarlierSurface] = (), *, fewer: bool
) -> float:
    """Count the points of a grid that are expected to be measured; each surface chooses its own, and more are expected
    once it is known that these are not enough.

    Args:
        fewer: whether a tenth of the samples comes first; then as many as is usual, and such points count as a tenth.
    """
    known: list[EarlierSurface | None] = [*earlier] or [None] * surfaces
    each = [expected_points(plan, one, fewer=fewer) for one in known]
    return min(plan.size, sum(each) + (surfaces * plan.usual / PART if fewer else 0))
