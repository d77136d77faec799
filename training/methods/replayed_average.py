"""The state of an average over rounds after a history that it did not average itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError, Weights
from .average_formula import begins_of

if TYPE_CHECKING:
    from .base import AverageMethod, History, State


def replay_average(method: AverageMethod, round: int, history: History) -> State:
    """Return the state after a round as if the method had averaged the history from its first round on.

    Where rows are not recorded any more, a method that keeps nothing in those that are has no state.

    Raises:
        FedscopeError: a row that is not recorded, of a method that keeps something.
    """
    first = begins_of(method)
    rows = _Rows(history.row, method.window_size())
    looked, state = replace(history, row=rows), dict[str, Any]()
    for t in range(first or round + 1, round + 1):
        try:
            state = dict(method.average(state, t, rows(t), looked).state)
        except Exception:
            if rows.lacks is None:
                raise
            if not rows.failed:  # it misses the state that it had not
                raise rows.lacks from None
            state = {}
        if state and rows.lacks is not None:
            raise rows.lacks
        rows.forget(t)
    return state


class _Rows:
    """A history's rows, of which the last few are held.

    Attributes:
        lacks: why the first row that is not recorded is not; failed: whether the last one that was asked for is not.
    """

    def __init__(self, row: Callable[[int], Weights], window: int) -> None:
        self._row, self._window = row, window
        self._held: dict[int, Weights] = {}
        self.lacks: FedscopeError | None = None
        self.failed = False

    def __call__(self, round: int) -> Weights:
        """Return a round's row.

        Raises:
            FedscopeError: it is not recorded.
        """
        self.failed = False
        try:
            if round not in self._held:
                self._held[round] = self._row(round)
            return self._held[round]
        except FedscopeError as error:
            self.lacks, self.failed = self.lacks or error, True
            raise

    def forget(self, round: int) -> None:
        """Hold what the average of the next round looks at, and no more."""
        for old in [t for t in self._held if t <= round - self._window]:
            del self._held[old]
