"""Loss and error of a round's global model and of the means of the last W."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .result import RoundMeans, WindowMean
from .sliding import SlidingMeans

if TYPE_CHECKING:
    from ...landscape import Evaluator


def round_means(
    means: SlidingMeans,
    evaluator: Evaluator,
    *,
    run: str,
    number: int,
    windows: tuple[int, ...],
    progress: Callable[[int], None] = lambda read: None,
) -> RoundMeans:
    """One round of a run: a row a window, ascending, with that of ``global`` (W = 1) first.

    Args:
        means: of these windows.
        run: its name; number: of the round.
        progress: takes how many globals have been read.
    """
    losses, errors = evaluator.models(means.at(number, progress))
    rows = (
        WindowMean(window, min(window, number), float(loss), float(error))
        for window, loss, error in zip((1, *windows), losses, errors, strict=True)
    )
    return RoundMeans(run, number, tuple(rows))
