"""Loss and error of a round's global model and of the means of the last W."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .decayed_steps import decayed_steps
from .result import Decayed, RoundMeans, WindowMean
from .sliding_mean import SlidingMeans

if TYPE_CHECKING:
    from ...checkpoints import Run
    from ...evaluation.evaluator import Evaluator


def round_means(
    means: SlidingMeans,
    evaluator: Evaluator,
    *,
    run: str,
    number: int,
    windows: tuple[int, ...],
    steps: Run | None = None,
    progress: Callable[[int], None] = lambda read: None,
) -> RoundMeans:
    """One round of a run: a row a window, ascending, with that of ``global`` (W = 1) first.

    Args:
        means: of these windows.
        run: its name; number: of the round.
        steps: the run, where each mean is also compared with the steps that lead to it.
        progress: takes how many models have been read.
    """
    read = 0

    def count(done: int) -> None:
        nonlocal read
        read = done
        progress(read)

    models = means.at(number, count)
    losses, errors = evaluator.models(models)
    rows = (
        WindowMean(window, min(window, number), float(loss), float(error))
        for window, loss, error in zip((1, *windows), losses, errors, strict=True)
    )
    decayed: tuple[Decayed, ...] = ()
    if steps is not None:
        asked = steps, number, windows, models[1:], means.averaged
        decayed = decayed_steps(*asked, lambda done: progress(read + done))
    return RoundMeans(run, number, tuple(rows), decayed)
