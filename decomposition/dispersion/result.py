"""Dispersion of a layer and of a round, over rounds and runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ...checkpoints import FedscopeError
from ...results import Serializable, Table, TableResult, number
from .skew_maps import Cells, LayerMap, SkewHistogram
from .statistics import FEWEST

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: the ``layer`` of the row that stands for the whole model
WHOLE = "all"
LAYER = {"run": str, "round": int, "layer": str}
#: what a row of the table has of a layer, and what it leaves to the JSON file
MEASURES = ("mean_cv", "high_share", "skew_mean_abs", "skew_rejected_share", "kurtosis_mean", "median_cv")
COUNTS = ("zero_mean", "nonfinite", "tested", "rejected")


@dataclass(frozen=True)
class LayerDispersion(Serializable):
    """One parameter tensor of a round, or the whole model, over C clients; None where a value does not exist.

    Attributes:
        layer: its ``state_dict`` key, or ``"all"``.
        parameters: M; ``constant`` of them are the same in all clients, of ``zero_mean`` others the mean is 0, and
            ``nonfinite`` are NaN or infinite in some client, or so large that their powers are.
        mean_cv, median_cv: of σ/|μ|, without all three.
        high_share: share of M whose cv, scaled to 0..1 over the layer, exceeds FedSA's threshold (eq. 5, 6); of the
            whole model the layers' together.
        skew_mean_abs: mean |skewness|, biased as scipy's, without constant and nonfinite parameters.
        tested: to how many D'Agostino's test was put, 0 for fewer than 8 clients; ``rejected`` so many of them at the
            false discovery rate of the result, within the layer.
        kurtosis_mean: mean excess kurtosis, biased, of those that have a skewness.
    """

    layer: str
    parameters: int
    constant: int
    zero_mean: int
    nonfinite: int
    mean_cv: float | None
    high_share: float | None
    skew_mean_abs: float | None
    tested: int
    rejected: int
    kurtosis_mean: float | None
    median_cv: float | None

    @property
    def skew_rejected_share(self) -> float | None:
        """``rejected`` / ``tested``; None where there was no test."""
        return self.rejected / self.tested if self.tested else None

    def numbers(self) -> dict[str, Any]:
        """All of them by name."""
        return {**vars(self), "skew_rejected_share": self.skew_rejected_share}


@dataclass(frozen=True)
class RoundDispersion(Serializable):
    """One round of a run: C ``clients``, a record a layer in the model's order, and one of the whole model."""

    run: str
    round: int
    clients: int
    layers: tuple[LayerDispersion, ...]
    whole: LayerDispersion

    @property
    def rows(self) -> tuple[LayerDispersion, ...]:
        """The layers, then the whole model."""
        return (*self.layers, self.whole)

    def most_skewed(self) -> str | None:
        """Return the layer with the greatest share rejected, else with the greatest mean |skewness|; the first layer of
        equals, None where no layer has a skewness. Layers of fewer than 100 parameters make no histogram, and count
        only where there are no others."""
        layers = [row for row in self.layers if row.parameters >= 100] or self.layers
        for name in ("skew_rejected_share", "skew_mean_abs"):
            known = {row.layer: value for row in layers if (value := getattr(row, name)) is not None}
            if any(value > 0 for value in known.values()):
                return max(known, key=lambda layer: known[layer])
        return None

    def summary(self, fdr: float) -> str:
        """Describe the round in words, tested at a false discovery rate; what does not exist is said.

        >>> layer = LayerDispersion("fc.weight", 4, 1, 0, 0, 0.5, 0.25, 0.9, 0, 0, -1.0, 0.25)
        >>> print(RoundDispersion("fma", 3, 5, (layer,), layer).summary(0.05))
        fma, round 3: of 4 parameters over 5 clients (1 constant) the median cv is 0.25, 25 % are of high dispersion, \
the mean |skewness| is 0.9; no test of skewness, which needs 8 clients
        """
        whole = self.whole
        words = (
            f"{self.run}, round {self.round}: of {whole.parameters:,} parameters over {self.clients} clients"
            f"{_left_out(whole)} {_number_words('the median cv is', whole.median_cv)}, "
            f"{_share(whole.high_share)} of high dispersion, "
        )
        if self.clients < 3:
            return f"{words}no skewness, which needs 3 clients, and no test of it, which needs {FEWEST}"
        words += _number_words("the mean |skewness| is", whole.skew_mean_abs)
        if self.clients < FEWEST:
            return f"{words}; no test of skewness, which needs {FEWEST} clients"
        if whole.skew_rejected_share is None:
            return f"{words}; no test of skewness, because no parameter can be tested"
        rate = f"{100 * fdr:g} %"
        share = f"{100 * whole.skew_rejected_share:.3g} %"
        words += f"; skewness is rejected for {share} (false discovery rate {rate} over the model)"
        most = next((row for row in self.layers if row.layer == self.most_skewed()), None)
        if most is not None and most.rejected:
            words += f", and with {rate} within each layer most in {most.layer}: {most.rejected:,} of {most.tested:,}"
        return words

    def numbers(self) -> dict[str, Any]:
        """Return the round as plain values."""
        about = {"run": self.run, "round": self.round, "clients": self.clients}
        return {**about, "layers": [row.numbers() for row in self.layers], "all": self.whole.numbers()}


@dataclass(frozen=True)
class Dispersion(TableResult):
    """Differences between clients, layer by layer, in rounds of one or more runs of one layout.

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
    drawn: ClassVar = {"": "draw", ".layers": "draw_any_layers"}
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
        named = [(measured.run, measured.round) for measured in self.rounds]
        for run, number_ in named:
            if named.count((run, number_)) > 1:
                raise FedscopeError(
                    f"round {number_} of {run} is there twice, and its rows could not be told apart; rename one of two "
                    "runs with the same name"
                )
        for other in self.rounds[1:]:
            first = self.rounds[0]
            if [row.layer for row in other.layers] != [row.layer for row in first.layers]:
                raise FedscopeError(f"{first.run} and {other.run} have different layers; ask for one at a time")

    @property
    def runs(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(dict.fromkeys(round_.run for round_ in self.rounds))

    def rows(self) -> list[Any]:
        """BASE.dispersion.csv: a row a layer, ``all`` for the whole model, empty where a value does not exist;
        BASE.layers.skewness.csv and BASE.layers.map.csv: single layers."""
        columns = list(self.tables[0].columns)[2:]
        layers = ((round_, row) for round_ in self.rounds for row in round_.rows)
        return [
            ((round_.run, round_.round, *(getattr(row, name) for name in columns)) for round_, row in layers),
            ((shown.run, shown.round, shown.layer, *row) for shown in self.maps for row in shown.histogram.rows()),
            ((shown.run, shown.round, shown.layer, *row) for shown in self.maps for row in shown.cells.rows()),
        ]

    def head(self) -> dict[str, Any]:
        """Return the rounds and the single layers, with what their rows do not say."""
        return {
            "fdr": self.fdr,
            "rounds": [
                {
                    **{name: getattr(round_, name) for name in ("run", "round", "clients")},
                    "counts": [{name: getattr(row, name) for name in COUNTS} for row in round_.rows],
                }
                for round_ in self.rounds
            ],
            "maps": [
                {
                    **{name: getattr(shown, name) for name in (*LAYER, "clients")},
                    **{name: getattr(shown.cells, name) for name in ("width", "height")},
                }
                for shown in self.maps
            ],
        }

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        layers, *single = tables
        rows = iter(layers)
        rounds = tuple(_round(about, rows) for about in head["rounds"])
        key = itemgetter(*LAYER)
        histograms, cells = ({where: list(group) for where, group in groupby(table, key)} for table in single)
        maps = []
        for about in head["maps"]:
            width, height, where = about.pop("width"), about.pop("height"), key(about)
            histogram = SkewHistogram.of(histograms.get(where, []))
            maps.append(LayerMap(**about, histogram=histogram, cells=Cells.of(width, height, cells.get(where, []))))
        return cls(rounds, head["fdr"], tuple(maps), head["attrs"])

    def layers_figure(self, width: float | None = None, title: str | None = None) -> Figure:
        """Single layers: the histogram of skewness, and its mean by mean and deviation; ``width`` in inches.

        Raises:
            FedscopeError: there is no map.
        """
        figure: Figure | None = self.drawing(".layers")(self, width, title)
        if figure is None:
            raise FedscopeError("the result has no single layers to draw: skewness needs three clients or more")
        return figure

    def summary(self) -> str:
        """Every round in words, and what was left out."""
        return "\n".join([*(round_.summary(self.fdr) for round_ in self.rounds), *self.attrs.get("left_out", ())])

    def findings(self) -> dict[str, Any]:
        """Every round, layer by layer."""
        return {"rounds": [round_.numbers() for round_ in self.rounds]}


def _round(head: dict[str, Any], rows: Iterator[dict[str, Any]]) -> RoundDispersion:
    """A round of its part of the JSON file and of the next rows of the table."""
    records = []
    for counts in head.pop("counts"):
        row = next(rows, {})  # without a run where rows are missing
        if (row.pop("run"), row.pop("round")) != (head["run"], head["round"]):
            raise ValueError("rows of another round")
        del row["skew_rejected_share"]  # follows from counts
        records.append(LayerDispersion(**row, **counts))
    return RoundDispersion(**head, layers=tuple(records[:-1]), whole=records[-1])


def _left_out(whole: LayerDispersion) -> str:
    words = [
        f"{count:,} {what}"
        for count, what in (
            (whole.constant, "constant"),
            (whole.zero_mean, "with a mean of 0, without a cv"),
            (whole.nonfinite, "NaN or infinite in some client"),
        )
        if count
    ]
    return f" ({', '.join(words)})" if words else ""


def _number_words(words: str, value: float | None) -> str:
    return f"{words} {'unknown' if value is None else f'{value:.3g}'}"


def _share(value: float | None) -> str:
    return "an unknown share is" if value is None else f"{100 * value:.3g} % are"
