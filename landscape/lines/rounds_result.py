"""The barriers of layers over a run's rounds: the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import spans
from ...plotting.style import describe_statistics
from ...results import Table, TableResult, columns_of
from ...results.layer_cells import LayerCells
from ..planes.summary import precision_words
from .layer_result import plus_minus
from .layer_rounds import LayerBarrier


@dataclass(frozen=True)
class LayerRounds(LayerCells, TableResult):
    """Which layer carries the loss barrier in each of a run's rounds, between two models of the round.

    Attributes:
        cells: two rows a round and layer, with the others at A and at B, rounds ascending; of each round the last two
            are of all layers together, with the numbers of :class:`~fedscope.Line`.
        ends: what A (β = 1) and B (β = 0) are in every round: ``global`` and ``start``, or the first two clients.
        attrs: provenance; ``layers`` is what was asked for.

    Raises:
        FedscopeError: no row, or rounds of different layers.
    """

    command = "line"
    suffixes = (".line-layers.csv", ".line-layers.json")
    format = "fedscope-line-layers"
    tables = (Table(".line-layers.csv", {"run": str, **columns_of(LayerBarrier)}),)
    drawn: ClassVar = {"": "rounds_figure:draw_rounds"}

    cells: tuple[LayerBarrier, ...]
    ends: tuple[str, str]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places = [(cell.round, cell.layer) for cell in self.cells]
        if not places or places != [(t, layer) for t in self.rounds for layer in self.layers for _ in self.ends]:
            raise FedscopeError("barriers over rounds need two rows for every round and layer; give at least one round")

    def values(self, name: str = "barrier") -> np.ndarray:
        """Return a column as numbers [others, layer, round], NaN where one does not exist."""
        return self.column(name).reshape(len(self.rounds), len(self.layers), 2).transpose(2, 1, 0)

    def rows(self) -> list[Any]:
        """BASE.line-layers.csv: two rows a round and layer, empty where a value does not exist."""
        return [[(self.run, *astuple(cell)) for cell in self.cells]]

    def head(self) -> dict[str, Any]:
        """Return what A and B are."""
        return {"ends": list(self.ends)}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        cells = ({name: value for name, value in row.items() if name != "run"} for row in tables[0])
        first, second = head["ends"]
        return cls(tuple(LayerBarrier(**cell) for cell in cells), (str(first), str(second)), head["attrs"])

    def summary(self) -> str:
        """Say in a sentence which layer carries the barrier, and what was left out."""
        when = f"round{'' if len(self.rounds) == 1 else 's'} {spans(self.rounds)}"
        sentence = f"{self.run}, {when}: loss barrier between {self.ends[0]} and {self.ends[1]}: {self._parts()}"
        if broken := sum(cell.barrier is None for cell in self.cells):
            sentence += f"; {broken:,} of {len(self.cells):,} barriers do not exist, because losses are not finite"
        statistics = describe_statistics(self.attrs, str(self.attrs.get("normalization_policy", "none")))
        sentence += (f"; {statistics}" if statistics else "") + precision_words(self.attrs)
        return "\n".join([sentence, *self.attrs.get("left_out", ())])

    def _parts(self) -> str:
        """Which layer's barrier is the greatest on average over rounds, the higher one of its two lines."""
        heights = np.nan_to_num(self.values(), nan=0.0)
        means = heights.max(axis=0).mean(axis=1)
        whole = f"all layers together {self._height(len(means) - 1, heights, means)}"
        parts = means[:-1]
        if not parts.size:
            return whole
        if self.attrs.get("layers") == "cumulative":
            steps = np.diff(means, prepend=0.0)
            most = int(steps.argmax())
            if steps[most] <= 0:
                return f"no first layers have one, {whole}"
            name = "the last layer" if most == len(steps) - 1 else self.layers[most].removeprefix("to ")
            return f"grows most with {name}, by {steps[most]:.3g}{self._average}; {whole}"
        if parts.max() <= 0:
            few = f"{self.layers[0]} have none" if len(parts) == 1 else "no layer has one alone"
            return f"{few}, {whole}"
        most = int(parts.argmax())
        name = f"greatest in {self.layers[most]}" if len(parts) > 1 else f"of {self.layers[most]}"
        return f"{name}, {self._height(most, heights, means)}; {whole}"

    def _height(self, layer: int, heights: np.ndarray, means: np.ndarray) -> str:
        if means[layer] <= 0:
            return "none"
        others, at = (int(i) for i in np.unravel_index(heights[:, layer].argmax(), heights[:, layer].shape))
        cell = self.cells[(at * len(self.layers) + layer) * 2 + others]
        beside = "" if layer == len(means) - 1 else f" with the others at {cell.others}"
        most = f"{_number(cell)} at beta = {cell.barrier_beta:.2f}"
        if len(self.rounds) == 1:
            return f"{most}{beside}"
        return f"{means[layer]:.3g}{self._average}, at most {most} in round {cell.round}{beside}"

    @property
    def _average(self) -> str:
        return " on average" if len(self.rounds) > 1 else ""

    def findings(self) -> dict[str, Any]:
        """Every row, and what was left out."""
        rows = [{"run": self.run, **asdict(cell)} for cell in self.cells]
        return {"layers": list(self.layers), "rounds": rows, "notes": list(self.attrs.get("left_out", ()))}


def _number(cell: LayerBarrier) -> str:
    return f"{cell.barrier:.3g}{plus_minus(cell.barrier_stderr)}"
