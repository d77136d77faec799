"""The order in which points of a grid are visited, and going on where an interrupted analysis stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoints import Partial
from .evaluator import Evaluator
from .replica import Replica
from .spanning import Spanning

Progress = Callable[[int, int], None]


def coarse_to_fine(shape: Sequence[int]) -> list[int]:
    """Flat indices of a grid, every other point of every other row before those between, from the coarsest down.

    So the whole surface shows early, and an estimate of the time left is made from all of it.

    >>> coarse_to_fine((5,))
    [0, 4, 2, 1, 3]
    """
    grid = np.indices(tuple(shape)).reshape(len(shape), -1)
    # the largest power of two that divides all of a point's indices says at which refinement it appears
    lowest = np.bitwise_or.reduce(grid, axis=0)
    step = np.where(lowest == 0, np.iinfo(np.int64).max, lowest & -lowest)
    return [int(i) for i in np.argsort(-step, kind="stable")]


class Visits:
    """The points of an analysis measured so far: kept in a file, so that the same call goes on from there.

    Attributes:
        loss, error: float64 [S, N], a row a data set of the evaluator; NaN where not measured.
        done: bool [N], which points are.

    Args:
        form: writes point i into a worker's replica.
        count: N.
        partial: where finished points are kept; whoever saves the result removes the file then.
        fingerprint: all that a point's value depends on; a file of another analysis starts afresh.
        expected: how many points will be asked for, where they are fewer than N.
        watch: called after every point.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        form: Callable[[int, Replica], None],
        count: int,
        *,
        fingerprint: Mapping[str, Any],
        progress: Progress | None = None,
        partial: Path | None = None,
        expected: int | None = None,
        watch: Callable[[Visits], None] | None = None,
    ) -> None:
        self._evaluator, self._form, self._watch = evaluator, form, watch
        self._store = Partial(partial, fingerprint)
        self._expected, self._progress = expected or count, progress
        sets = len(evaluator.parts)
        self.loss, self.error = np.full((sets, count), np.nan), np.full((sets, count), np.nan)
        self.done = np.zeros(count, dtype=bool)
        for key, (loss, error) in self._store.done.items():
            self._take(int(key), loss, error)
        self._tell()

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``loss``, ``error`` and ``done``."""
        return self.loss, self.error, self.done

    def measure(self, order: Iterable[int], spanning: Callable[[], Spanning | None] | None = None) -> None:
        """Measure those of the points ``order`` that are not yet, in that order.

        ``spanning`` makes what :meth:`Evaluator.evaluate` needs to take points together; asked for if any are left.
        """
        left = [i for i in order if not self.done[i]]
        if not left:
            return
        together = spanning() if spanning is not None else None
        evaluation = self._evaluator.evaluate(len(self.done), self._form, left, together)
        with self._store, closing(evaluation) as points:
            for i, loss, error in points:
                self._take(i, loss, error)
                self._store.add(str(i), [loss.tolist(), error.tolist()])
                self._tell()
                if self._watch is not None:
                    self._watch(self)

    def _take(self, i: int, loss: Sequence[float] | np.ndarray, error: Sequence[float] | np.ndarray) -> None:
        self.loss[:, i], self.error[:, i], self.done[i] = loss, error, True

    def _tell(self) -> None:
        if self._progress is not None:
            count = int(self.done.sum())
            self._progress(count, max(count, self._expected))
