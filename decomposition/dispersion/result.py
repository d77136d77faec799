"""Dispersion over rounds and runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.results import Table, TableResult, number
from .records import Cells, LayerDispersion, LayerMap, RoundDispersion, SkewHistogram

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAYER = {"run": str, "round": int, "layer": str}
#: what a row of the table has of a layer, and what it leaves to the JSON file
MEASURES = ("mean_cv", "high_share", "skew_mean_abs", "skew_rejected_share", "kurtosis_mean", "median_cv")
COUNTS = ("zero_mean", "nonfinite", "tested", "rejected")


@dataclass(frozen=True)
class Dispersion(TableResult):
    """How clients differ, layer by layer, in rounds of one or more runs of one layout.

    Attributes:
        rounds: a run after the other, rounds ascending.
        fdr: the false discovery rate of the test of skewness.
        maps: single layers, parameter by parameter; none where clients are fewer than three.
        attrs: provenance: runs, rounds, versions.

    Raises:
        FedscopeError: two rounds that could not be told apart; runs of different layers.
    """

    command = "disperse"
    suffixes = (".dispersion.csv", ".layers.skewness.csv", ".layers.map.csv", ".dispersion.json")
    drawn = ("", ".layers")
    format = "fedscope-dispersion"
    tables = (
        Table(".dispersion.csv", {**LAYER, "parameters": int, "constant": int, **dict.fromkeys(MEASURES, number)}),
        Table(".layers.skewness.csv", {**LAYER, "low": float, "high": float, "count": int, "expected": float}),
        Table(".layers.map.csv", {**LAYER, "mean": float, "deviation": float, "count": int, "skewness": float}),
    )

    rounds: tuple[RoundDispersion, ...]
    fdr: float
    maps: tuple[LayerMap, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = [(one.run, one.round) for one in self.rounds]
        for run, number_ in named:
            if named.count((run, number_)) > 1:
                raise FedscopeError(
                    f"round {number_} of {run} is there twice, and its rows could not be told apart; rename one of two "
                    "runs with the same name"
                )
        for one in self.rounds:
            if [row.layer for row in one.layers] != [row.layer for row in self.rounds[0].layers]:
                raise FedscopeError(f"{self.rounds[0].run} and {one.run} have different layers; ask for one at a time")

    @property
    def runs(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(dict.fromkeys(one.run for one in self.rounds))

    def rows(self) -> list[Any]:
        """BASE.dispersion.csv: a row a layer, ``all`` for the whole model, empty where a value does not exist;
        BASE.layers.skewness.csv and BASE.layers.map.csv: single layers."""
        columns = list(self.tables[0].columns)[2:]
        layers = ((one, row) for one in self.rounds for row in one.rows)
        return [
            ((one.run, one.round, *(getattr(row, name) for name in columns)) for one, row in layers),
            (row for one in self.maps for row in _histogram_rows(one)),
            (row for one in self.maps for row in _cell_rows(one)),
        ]

    def head(self) -> dict[str, Any]:
        """The rounds and the single layers, with what their rows do not say."""
        return {
            "fdr": self.fdr,
            "rounds": [
                {
                    **{name: getattr(one, name) for name in ("run", "round", "clients")},
                    "counts": [{name: getattr(row, name) for name in COUNTS} for row in one.rows],
                }
                for one in self.rounds
            ],
            "maps": [
                {
                    **{name: getattr(one, name) for name in (*LAYER, "clients")},
                    **{name: getattr(one.cells, name) for name in ("width", "height")},
                }
                for one in self.maps
            ],
        }

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """The inverse of :meth:`rows` and :meth:`head`."""
        layers, *single = tables
        rows = iter(layers)
        rounds = tuple(_round(one, rows) for one in head["rounds"])
        histograms, cells = (
            {key: list(group) for key, group in groupby(table, lambda row: tuple(row[name] for name in LAYER))}
            for table in single
        )
        maps = []
        for one in head["maps"]:
            width, height, key = one.pop("width"), one.pop("height"), tuple(one[name] for name in LAYER)
            histogram = _histogram(histograms.get(key, []))
            maps.append(LayerMap(**one, histogram=histogram, cells=_cells(width, height, cells.get(key, []))))
        return cls(rounds, head["fdr"], tuple(maps), head["attrs"])

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """Heat maps of layers by rounds, a column a run: median cv, and the share of parameters whose skewness is
        rejected (with fewer than 8 clients their mean |skewness|); ``width`` in inches.

        Raises:
            FedscopeError: there is no round to draw.
        """
        from .figure import draw_dispersion

        return draw_dispersion(self, width, title)

    def layers_figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """Single layers: the histogram of skewness, and its mean by mean and deviation; ``width`` in inches.

        Raises:
            FedscopeError: there is no map.
        """
        from .figure import draw_layers

        return draw_layers(self.maps, width, title)

    def figures(self, width: float = 3.5, title: str | None = None, **drawing: Any) -> dict[str, Figure]:
        """The heat maps, and behind ``.layers`` the single layers where there are any."""
        single = {".layers": self.layers_figure(width, title)} if self.maps else {}
        return {"": self.figure(width, title), **single}

    def summary(self) -> str:
        """Every round in words."""
        return "\n".join(one.summary(self.fdr) for one in self.rounds)

    def findings(self) -> dict[str, Any]:
        """Every round, layer by layer."""
        return {"rounds": [one.numbers() for one in self.rounds]}


def _round(head: dict[str, Any], rows: Iterator[dict[str, Any]]) -> RoundDispersion:
    """A round of its part of the JSON file and of the next rows of the table."""
    found = []
    for counts in head.pop("counts"):
        row = next(rows, {})  # without a run where rows are missing
        if (row.pop("run"), row.pop("round")) != (head["run"], head["round"]):
            raise ValueError("rows of another round")
        del row["skew_rejected_share"]  # follows from counts
        found.append(LayerDispersion(**row, **counts))
    return RoundDispersion(**head, layers=tuple(found[:-1]), whole=found[-1])


def _histogram_rows(one: LayerMap) -> Iterator[tuple[Any, ...]]:
    histogram = one.histogram
    for i, (count, expected) in enumerate(zip(histogram.counts.tolist(), histogram.expected.tolist(), strict=True)):
        yield one.run, one.round, one.layer, float(histogram.edges[i]), float(histogram.edges[i + 1]), count, expected


def _cell_rows(one: LayerMap) -> Iterator[tuple[Any, ...]]:
    cells = one.cells
    columns = (cells.mean, cells.deviation, cells.count, cells.skewness)
    for values in zip(*(column.tolist() for column in columns), strict=True):
        yield one.run, one.round, one.layer, *values


def _column(rows: list[dict[str, Any]], name: str, dtype: type = np.float64) -> np.ndarray:
    return np.array([row[name] for row in rows], dtype)


def _histogram(rows: list[dict[str, Any]]) -> SkewHistogram:
    edges = np.concatenate([_column(rows[:1], "low"), _column(rows, "high")])
    return SkewHistogram(edges, _column(rows, "count", np.int64), _column(rows, "expected"))


def _cells(width: float, height: float, rows: list[dict[str, Any]]) -> Cells:
    count = _column(rows, "count", np.int64)
    return Cells(width, height, _column(rows, "mean"), _column(rows, "deviation"), count, _column(rows, "skewness"))
