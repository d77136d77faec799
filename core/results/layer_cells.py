"""What results by layer and round share: names, rounds and layers, from a row a round and layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from ..checkpoints.io.errors import FedscopeError
from .labels import name_of_run
from .tables import TableResult


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


@dataclass(frozen=True)
class LayerTable(LayerCells, TableResult):
    """A result whose one table has a row a round and layer: the run's name, and then what the row's class has.

    Attributes:
        row: the class of a row.
        lacking: the sentence where a row is missing.

    Raises:
        FedscopeError: no row, or rounds of different layers.
    """

    row: ClassVar[type]
    lacking: ClassVar[str]

    cells: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places = [(cell.round, cell.layer) for cell in self.cells]
        if not places or places != [(number, layer) for number in self.rounds for layer in self.layers]:
            raise FedscopeError(self.lacking)

    def rows(self) -> list[Any]:
        """Of its one table: a row a round and layer, empty where a value does not exist."""
        return [[(self.run, *astuple(cell)) for cell in self.cells]]

    def head(self) -> dict[str, Any]:
        """Return nothing that the rows do not say."""
        return {}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        cells = ({name: value for name, value in row.items() if name != "run"} for row in tables[0])
        return cls(tuple(cls.row(**cell) for cell in cells), head["attrs"])
