"""Windows that slide along the globals of a recorded run: what WIMA would have averaged, with nothing trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError, Run, Weights, refuse_own_starts
from ...checkpoints.runs.run import lacking_words
from .decayed_steps import decayed_steps
from .result import Decayed, RoundMeans, WindowMean

if TYPE_CHECKING:
    from ...evaluation.evaluator import Evaluator
    from ...training.methods.averages.wima import WIMA
    from ...training.methods.base import State
    from ...training.models.model_info import ModelInfo

#: bytes of globals that are held in memory; what leaves a window is read again where it is not among them
HELD = 2**28


class SlidingMeans:
    """``averaged``_t = mean of the last W ``global``s, for several W at once.

    WIMA leaves training alone, so the recorded globals are those that a run with any window would have had. The sums
    here are WIMA's own (:class:`~fedscope.training.methods.averages.wima.WIMA`): where every global from round 1 on is
    there they move with the window from there, and ``averaged`` is that of a run that was trained with it, bit for bit.
    Else a sum begins anew where a window shares no round with the last one that was asked for: the same, but for
    rounding of the sum in float64. A model that was not finite is forgotten where it leaves the window.

    Args:
        methods: a window each.
        rounds: all that will be asked for, ascending; every global in their windows is there.
    """

    def __init__(self, run: Run, methods: Sequence[WIMA], facts: ModelInfo, rounds: Sequence[int]) -> None:
        self._run, self._methods, self._last = run, methods, rounds[-1]
        from ...training.loop.state import RunMemory
        from ...training.methods.base import History

        self._memory, self._history = RunMemory(run), History(self._row, facts)
        self._sums: list[State] = [{} for _ in methods]
        self._held: dict[int, Weights] = {}
        self._at = 0
        self._whole: bool | None = None

    @property
    def averaged(self) -> npt.NDArray[np.bool_] | None:
        """The mask of the P parameters that the windows average; None where all."""
        parts = self._methods[0].parts
        head = None if parts == "all" else self._history.facts.head_mask()
        return ~head if parts == "features" and head is not None else head

    def at(self, round: int, progress: Callable[[int], None] = lambda read: None) -> list[Weights]:
        """``global`` of a round, then ``averaged`` for each window.

        Args:
            round: a later one than the last that was asked for.
            progress: takes how many globals have been read.
        """
        if self._whole is None:
            self._whole = all(has_global(self._run, t) for t in range(1, self._last + 1))
        longest = max(method.window for method in self._methods)
        first = self._at + 1 if self._whole else max(self._at + 1, round - longest + 1)
        for t in range(first, round + 1):
            row = self._row(t)
            for i, method in enumerate(self._methods):
                if self._whole or round - self._at < method.window:
                    self._sums[i] = method.moved(self._sums[i], t, row, self._history)
                elif round - t < method.window:
                    begun = self._sums[i] if t > max(1, round - method.window + 1) else {}
                    self._sums[i] = method.moved(begun, 0, row, self._history)  # nothing leaves the window yet
            progress(t - first + 1)
        self._at, global_ = round, self._row(round)
        pairs = zip(self._methods, self._sums, strict=True)
        return [global_, *(method.mean_of(total, round, global_, self._history.facts) for method, total in pairs)]

    def _row(self, t: int) -> Weights:
        if t not in self._held:
            row = self._memory.row(t)
            while len(self._held) >= max(1, HELD // max(1, row.parameters.nbytes)):
                del self._held[min(self._held)]
            self._held[t] = row
        return self._held[t]


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


def has_global(run: Run, round: int) -> bool:
    """Tell whether a round's ``global`` is in one of the run's files."""
    return any("global" in place.models for place in run.files_of(round))


def refuse_missing(run: Run, rounds: Sequence[int], window: int) -> None:
    """Make sure of all globals in windows that end in these rounds, without reading them.

    Raises:
        FedscopeError: one was not recorded; says what can be asked for.
    """
    needed = {t: end for end in reversed(rounds) for t in range(max(1, end - window + 1), end + 1)}
    missing = next((t for t in sorted(needed) if not has_global(run, t)), None)
    if missing is None:
        return
    if missing in run.rounds:
        refuse_own_starts(run, [missing], "wima", "a server's model of each round")
    if missing in run.lacking:
        raise FedscopeError(
            f"{run.path} {lacking_words(run)}; the mean of the last {window} in round {needed[missing]} needs the "
            f"global model of round {missing}: restore its file from a copy, or give other --rounds or --windows"
        )
    keep = "give global_= in every round of the loop" if run.is_foreign else "train with record.globals = 'all'"
    raise FedscopeError(
        f"{run.path} does not hold the global model of round {missing}, which the mean of the last {window} in round "
        f"{needed[missing]} needs; {_whole_windows(run, window)}{keep}"
    )


def _whole_windows(run: Run, window: int) -> str:
    """Say which rounds have a window of globals, or which window the round with the longest one; empty where no round
    has more than its own."""
    there, ends, longest = 0, [], (0, 0)
    for end in range(1, run.rounds[-1] + 1):
        there = there + 1 if end in run.rounds and has_global(run, end) else 0
        longest = max(longest, (there, end))
        if there >= window:
            ends.append(end)
    if ends and ends == list(range(ends[0], run.rounds[-1] + 1)):
        return f"give --rounds from {ends[0]} on, or "
    if ends:
        return f"give --rounds {','.join(map(str, ends[-6:]))}, or "
    length, end = longest
    return f"give --rounds {end} and --windows up to {length}, or " if length > 1 else ""
