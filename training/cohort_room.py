"""Where a cohort's models lie while a round is played: in memory, or on the disk beside the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoints import ScratchRows, as_array

#: bytes of a matrix [C, P] up to which it is held in memory: a fixed rule, never a measurement. The numbers do not
#: depend on it. Twelve models of ResNet-18 are less, two hundred are 9 GB
HELD = 2**29


@dataclass(frozen=True)
class Room:
    """Room for matrices [C, P].

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
        return as_array(ScratchRows(self.folder, (count, size), dtype))


#: all in memory
MEMORY = Room()


def put_aside(count: int, size: int, dtype: np.dtype[Any]) -> bool:
    """Whether a matrix [count, size] is too large to be held in memory."""
    return count * size * dtype.itemsize > HELD
