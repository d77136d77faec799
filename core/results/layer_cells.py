"""What results by layer and round share: names, rounds and layers, from a row a round and layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from .labels import name_of_run


class LayerCells:
    """Mixed into a result with ``cells``, rows with ``round`` and ``layer``, rounds ascending, and ``attrs``."""

    cells: Any
    attrs: Mapping[str, Any]

    @property
    def run(self) -> str:
        """The run's name, "" where it is not known."""
        return name_of_run(self.attrs.get("run"))

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds, in the order of the rows."""
        return tuple(dict.fromkeys(cell.round for cell in self.cells))

    @property
    def layers(self) -> tuple[str, ...]:
        """What the rows of a round are of; the last one is all layers."""
        return tuple(dict.fromkeys(cell.layer for cell in self.cells))

    def column(self, name: str) -> np.ndarray:
        """Return a column as numbers in the order of the rows, NaN where one does not exist."""
        cells: Iterable[Any] = self.cells
        return np.array([np.nan if (value := getattr(cell, name)) is None else value for cell in cells], np.float64)

    def values(self, name: str) -> np.ndarray:
        """Return a column as numbers [layer, round], NaN where one does not exist."""
        return self.column(name).reshape(len(self.rounds), len(self.layers)).T
