"""Storage of a cohort's models while a round is played: in memory, or on the disk next to the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoints import Layout, TemporaryMatrix, Weights, as_array

#: bytes of a matrix [C, P] up to which it is held in memory: a fixed rule, never a measurement. The numbers do not
#: depend on it, unless a server says that it reads columns and does not. Twelve models of ResNet-18 are less, two
#: hundred are 9 GB
HELD = 2**29


@dataclass(frozen=True)
class CohortStorage:
    """Storage of matrices [C, P].

    Attributes:
        folder: on whose disk those above :data:`HELD` are; None holds all in memory.

    >>> MEMORY.rows(2, 3, np.dtype("float32")).shape
    (2, 3)
    """

    folder: Path | None = None

    def rows(self, count: int, size: int, dtype: np.dtype[Any]) -> np.ndarray:
        """An empty matrix [count, size], to be filled row by row."""
        if self.folder is None or not put_aside(count, size, dtype):
            return np.empty((count, size), dtype)
        return as_array(TemporaryMatrix(self.folder, (count, size), dtype))

    def models(self, models: Iterable[Weights], count: int) -> Sequence[Weights]:
        """``count`` models as they come, to be asked for by their numbers."""
        rows: np.ndarray | None = None
        buffers: list[dict[str, np.ndarray]] = []
        held: list[Weights] = []
        for k, model in enumerate(models):
            if rows is None and self.folder is not None and put_aside(count, model.layout.size, model.layout.dtype):
                rows = self.rows(count, model.layout.size, model.layout.dtype)
            if rows is None:
                held.append(model)
            else:
                rows[k] = model.parameters
                buffers.append(model.buffers)
        return held if rows is None else _Models(model.layout, rows, buffers)


@dataclass(frozen=True)
class _Models(Sequence[Weights]):
    """Models whose parameters are on the disk."""

    layout: Layout
    rows: np.ndarray
    buffers: Sequence[dict[str, np.ndarray]]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, k: Any) -> Any:
        return Weights(self.layout, self.rows[k], self.buffers[k])


#: all in memory
MEMORY = CohortStorage()


def put_aside(count: int, size: int, dtype: np.dtype[Any]) -> bool:
    """Check whether a matrix [count, size] is too large to be held in memory."""
    return count * size * dtype.itemsize > HELD
