"""The barriers of layers over a run's rounds: the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import spans
from ...plotting.style import describe_alignment, describe_errors, describe_statistics
from ...results import Table, TableResult, columns_of
from ...results.layer_cells import LayerCells
from ..planes.summary import align_findings, precision_words
from .betas import betas_of, coverage_findings, coverage_words, measured_parts
from .layer_result import growth_words, plus_minus
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
        sentence = f"{self.run}, {when}: loss barrier between {self.ends[0]} and {self.ends[1]}: {self._barriers()}"
        sentence += describe_errors(sentence, "samples")
        if gaps := coverage_words(self.beta):
            sentence += f"; {gaps}"
        if self.is_measured and (broken := sum(cell.barrier is None for cell in self.cells)):
            sentence += f"; {broken:,} of {len(self.cells):,} barriers are unknown, because losses are not finite"
        statistics = describe_statistics(self.attrs, str(self.attrs.get("normalization_policy", "none")))
        aligned = describe_alignment(self.attrs, self.ends[0])
        sentence = "; ".join(filter(None, [sentence, statistics, aligned])) + precision_words(self.attrs)
        return "\n".join([sentence, *self.attrs.get("left_out", ())])

    @property
    def beta(self) -> np.ndarray:
        """The points of every line, as they were asked for."""
        return betas_of(self.attrs)

    @property
    def is_measured(self) -> bool:
        """Whether any point lies between the ends. Files of earlier versions have barriers of 0 where none does."""
        return bool(measured_parts(self.beta))

    @property
    def known_barriers(self) -> np.ndarray:
        """The barriers [others, layer, round], NaN where one is unknown."""
        return self.values() if self.is_measured else np.full_like(self.values(), np.nan)

    def _barriers(self) -> str:
        heights = np.fmax(*self.known_barriers)
        return "unknown" if np.isnan(heights).all() else self._parts(heights)

    def _parts(self, heights: np.ndarray) -> str:
        """Which layer's barrier is the greatest on average over rounds.

        Args:
            heights: the higher one of a layer's two lines, [layer, round]; NaN where neither is known. A mean is over
                the rounds in which it is.
        """
        means = _means(heights)
        whole = f"all layers together {self._height(len(means) - 1, means, heights)}"
        parts = means[:-1]
        if not parts.size:
            return whole
        partly = " where it is known" if np.isnan(self.values()[:, :-1]).any() else ""
        if self.attrs.get("layers") == "cumulative":
            return self._growth(heights, whole)
        if np.isnan(parts).all():
            return f"unknown of {self.layers[0] if len(parts) == 1 else 'every layer alone'}, {whole}"
        if np.nanmax(parts) <= 0:
            few = f"{self.layers[0]} have none" if len(parts) == 1 else "no layer has one alone"
            return f"{few}{partly}, {whole}"
        most = int(np.nanargmax(parts))
        name = f"greatest in {self.layers[most]}" if len(parts) > 1 else f"of {self.layers[most]}"
        return f"{name}, {self._height(most, means, heights)}; {whole}"

    def _growth(self, heights: np.ndarray, whole: str) -> str:
        """With which layer the barrier of the first layers grows most, over the rounds in which all are known."""
        known = heights[:, np.isfinite(heights).all(axis=0)]
        if not known.size:
            return f"in no round are all barriers known, {whole}"
        words = growth_words(known.mean(axis=1), self.layers, self._average(known.shape[1]))
        return f"{words}{'; ' if words.startswith('grows') else ', '}{whole}"

    def _height(self, layer: int, means: np.ndarray, heights: np.ndarray) -> str:
        if np.isnan(means[layer]):
            return "unknown"
        known = int(np.isfinite(heights[layer]).sum())
        if means[layer] <= 0:
            return "none" + (f" in {known} of {len(self.rounds)} rounds" if known < len(self.rounds) else "")
        own = self.values()[:, layer]
        others, at = (int(i) for i in np.unravel_index(int(np.nanargmax(own)), own.shape))
        cell = self.cells[(at * len(self.layers) + layer) * 2 + others]
        beside = "" if layer == len(means) - 1 else f" with the others at {cell.others}"
        most = f"{_number(cell)} at beta = {cell.barrier_beta:.2f}"
        if len(self.rounds) == 1:
            return f"{most}{beside}"
        return f"{means[layer]:.3g}{self._average(known)}, at most {most} in round {cell.round}{beside}"

    def _average(self, known: int) -> str:
        """What a mean is over, in words: all rounds, or the so many in which it is known."""
        if len(self.rounds) == 1:
            return ""
        return " on average" + (f" over {known} of {len(self.rounds)} rounds" if known < len(self.rounds) else "")

    def findings(self) -> dict[str, Any]:
        """Every row, and what was left out."""
        rows = [{"run": self.run, **asdict(cell)} for cell in self.cells]
        if not self.is_measured:
            rows = [{**row, "barrier": None, "barrier_beta": None} for row in rows]
        notes = list(self.attrs.get("left_out", ()))
        more = {**coverage_findings(self.beta), **align_findings(self.attrs)}
        return {"layers": list(self.layers), "rounds": rows, "notes": notes, **more}


def _means(heights: np.ndarray) -> np.ndarray:
    """Return the mean of each row [row, round] over what is known of it; NaN where nothing is."""
    known = np.isfinite(heights)
    count = known.sum(axis=1)
    total = np.where(known, heights, 0.0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _number(cell: LayerBarrier) -> str:
    return f"{cell.barrier:.3g}{plus_minus(cell.barrier_stderr)}"
