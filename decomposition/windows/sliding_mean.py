"""Windows that slide along the globals of a recorded run: what WIMA would have averaged, with nothing trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ...checkpoints import Run, Weights
from ...training.build import ModelInfo
from ...training.loop.state import RunMemory
from ...training.methods.averages.wima import WIMA
from ...training.methods.base import History, State
from .recorded_globals import has_global

#: bytes of globals that are held in memory; what leaves a window is read again where it is not among them
HELD = 2**28


class SlidingMeans:
    """``averaged``_t = mean of the last W ``global``s, for several W at once.

    WIMA leaves training alone, so the recorded globals are those that a run with any window would have had. The sums
    here are WIMA's own (:class:`~fedscope.training.methods.averages.wima.WIMA`): where every global from round 1 on is
    there they move with the window from there, and ``averaged`` is that of a run that was trained with it, bit for bit.
    Else a sum begins anew where a window shares no round with the last one that was asked for: the same, but for
    rounding of the sum in float64.

    Args:
        methods: a window each.
        rounds: all that will be asked for, ascending; every global in their windows is there.
    """

    def __init__(self, run: Run, methods: Sequence[WIMA], facts: ModelInfo, rounds: Sequence[int]) -> None:
        self._run, self._methods, self._last = run, methods, rounds[-1]
        self._memory, self._history = RunMemory(run), History(self._row, facts)
        self._sums: list[State] = [{} for _ in methods]
        self._held: dict[int, Weights] = {}
        self._at = 0
        self._whole: bool | None = None

    @property
    def averaged(self) -> npt.NDArray[np.bool_] | None:
        """Which of the P parameters the windows average; None where all."""
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
