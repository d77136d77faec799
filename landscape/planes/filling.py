"""The points of a grid: all measured, or a part of them and the others interpolated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..evaluation.visiting import Visits, coarse_to_fine
from ..first_layer.spanning import Spanning

if TYPE_CHECKING:
    from .adaptive import Measure, Refined

#: points that --adaptive keeps for the neighbourhood of the minimum, at most
NEAR_MINIMUM = 27


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
            "held_out_loss_error": made.loss_error,
            "held_out_loss_relative": made.loss_relative,
            "held_out_loss_low": made.loss_low,
            "held_out_loss_bands": made.loss_bands,
            "held_out_beyond": made.beyond,
            "held_out_error_error": made.error_error,
            "held_out_error_rms": made.error_rms,
        }
        surfaces.append(Surface(made.loss, made.error, made.computed, about))
    return surfaces


def _sharpen(made: Refined, measure: Measure, most: int) -> None:
    """Measure the points about the surface's minimum too, so that where the basin is does not hang on interpolation."""
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
