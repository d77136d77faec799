"""Models on a map."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from ...checkpoints.io.errors import spans
from ...results import Table, TableResult
from .shown_models import Point

Array = npt.NDArray[np.float64]
Method = Literal["tsne", "pca"]

#: what the JSON file and --json say of a map besides the spreads
MEASURES = ("method", "trustworthiness", "neighbours", "explained", "perplexity", "kl_divergence")


@dataclass(frozen=True, eq=False)
class Embedding(TableResult):
    """Client models, and the server's of the same rounds, in two dimensions.

    Attributes:
        points: which models they are.
        places: x and y of each [n, 2]; with ``pca`` L2 distances, with ``tsne`` without a unit.
        method: ``tsne`` or ``pca``.
        trustworthiness: of the ``neighbours`` nearest models on the map, 1 where they are so in truth; models that
            equal another one are left out.
        spreads: (run, round, mean L2 distance of the round's clients to their mean), from the distances themselves.
        explained: shares of the variance along x and y; None with ``tsne``.
        perplexity, kl_divergence: of t-SNE, and what is left of what it minimises (nats); None with ``pca``.
        attrs: provenance: runs, rounds, layers, seed, device, versions; ``sketch`` is k where distances are told from
            sketches of k numbers a model.
    """

    command = "disperse --embed"
    suffixes = (".embedding.csv", ".embedding.json")
    drawn: ClassVar = {".embedding": "draw"}
    paged: ClassVar = {".embedding": "draw_page"}
    format = "fedscope-embedding"
    tables = (Table(".embedding.csv", {"run": str, "round": int, "which": str, "x": float, "y": float}),)

    points: tuple[Point, ...]
    places: Array
    method: Method
    trustworthiness: float
    neighbours: int
    spreads: tuple[tuple[str, int, float], ...]
    explained: tuple[float, float] | None = None
    perplexity: float | None = None
    kl_divergence: float | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> tuple[str, ...]:
        """The runs' names, in the order they were given."""
        return tuple(dict.fromkeys(point.run for point in self.points))

    @property
    def rounds(self) -> tuple[int, ...]:
        """The rounds that are shown, of all runs, ascending."""
        return tuple(sorted({point.round for point in self.points}))

    @property
    def sketch(self) -> int:
        """k, where distances are told from sketches of k numbers a model; 0 where they are exact."""
        return int(self.attrs.get("sketch") or 0)

    def of(self, run: str, which: str | None = None) -> tuple[Array, tuple[Point, ...]]:
        """Return the places [m, 2] of a run's clients, or of its ``global`` or ``averaged`` over rounds, and who they
        are."""
        at = [
            i
            for i, point in enumerate(self.points)
            if point.run == run and (point.is_client if which is None else point.which == which)
        ]
        return self.places[at], tuple(self.points[i] for i in at)

    def rows(self) -> list[Any]:
        """BASE.embedding.csv: a row a model."""
        places = zip(self.points, self.places.tolist(), strict=True)
        return [((point.run, point.round, point.which, x, y) for point, (x, y) in places)]

    def head(self) -> dict[str, Any]:
        """Return the settings of the map and its quality, the spreads and the clients' classes."""
        labels: dict[str, dict[str, list[int]]] = {}
        for point in self.points:
            if point.labels:
                labels.setdefault(point.run, {})[point.which] = list(point.labels)
        return {**{name: getattr(self, name) for name in MEASURES}, "spreads": self._spreads(), "labels": labels}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        labels = head["labels"]
        points = (
            Point(row["run"], row["round"], row["which"], tuple(labels.get(row["run"], {}).get(row["which"], ())))
            for row in tables[0]
        )
        measures = {name: head[name] for name in MEASURES}
        measures["explained"] = None if measures["explained"] is None else tuple(measures["explained"])
        return cls(
            points=tuple(points),
            places=np.array([(row["x"], row["y"]) for row in tables[0]]).reshape(-1, 2),
            spreads=tuple((spread["run"], spread["round"], spread["mean"]) for spread in head["spreads"]),
            attrs=head["attrs"],
            **measures,
        )

    def page(self, title: str | None = None) -> str:
        """Draw a web page that tells round, client and its classes, and picks rounds out."""
        return self.paging(".embedding")(self, title)

    def summary(self) -> str:
        """Describe the map in words, and how far clients are from the mean of their round, run by run."""
        how = {"pca": "PCA", "tsne": "t-SNE"}[self.method]
        rounds = f"round{'s' if len(self.rounds) > 1 else ''} {spans(self.rounds)}"
        words = f"{how} of {len(self.points):,} models of {', '.join(self.runs)}, {rounds}: "
        if self.explained is not None:
            words += f"{100 * sum(self.explained):.3g} % of the variance on the plane"
        else:
            words += f"perplexity {self.perplexity:.3g}, KL divergence {self.kl_divergence:.3g} nats"
        words += f", trustworthiness {self.trustworthiness:.3f}"
        if self.sketch:
            words += f"; {sketch_words(self.sketch)}"
        if "adapters" in self.attrs:
            words += "; distances are between the products B·A that the adapters add"
        return "\n".join([words, *map(self._distance_words, self.runs)])

    def findings(self) -> dict[str, Any]:
        """Return the number of models, the quality of the map, and the spreads."""
        measures = {name: getattr(self, name) for name in MEASURES}
        told = {"sketch": self.sketch} if self.sketch else {}
        return {"models": len(self.points), **measures, **told, "spreads": self._spreads()}

    def _spreads(self) -> list[dict[str, Any]]:
        return [{"run": run, "round": number, "mean": mean} for run, number, mean in self.spreads]

    def _distance_words(self, run: str) -> str:
        means = {number: f"{mean:.3g} in round {number}" for name, number, mean in self.spreads if name == run}
        if not means:
            return f"{run}: one client per round, so there is no distance to a mean"
        ends = sorted({min(means), max(means)})
        return f"{run}: mean L2 distance of clients to their round's mean {', '.join(means[end] for end in ends)}"


#: at the axes of a PCA, component and share of the variance
AXES = ("component {}: $L_2$ distance ({:.0f} %)", "component {} ({:.0f} %)", "PC {} ({:.0f} %)", "PC {}")


def axis_words(result: Embedding) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Labels of the axes of a PCA, long, shorter and shortest."""
    shares = result.explained or (float("nan"), float("nan"))
    first, second = (tuple(words.format(i, 100 * share) for words in AXES) for i, share in enumerate(shares, start=1))
    return first, second


def remark(result: Embedding) -> str:
    """Below the figure: the method, what the axes are, and how far neighbours are to be believed."""
    trusted = f"trustworthiness {result.trustworthiness:.3f}"
    where = rounds_words(result)
    if result.method == "pca":
        shares = result.explained or (float("nan"), float("nan"))
        said = f"PCA: $L_2$ distances, {100 * sum(shares):.0f} % of the variance on this plane; {trusted}"
    else:
        said = f"t-SNE of $L_2$ distances: axes have no unit; perplexity {result.perplexity:.3g}, {trusted}"
    told = f"; {sketch_words(result.sketch, short=True)}" if result.sketch else ""
    return f"{said}{told}{where}"


def sketch_words(k: int, *, short: bool = False) -> str:
    """Describe the error of distances that are told from sketches: 1/√(2k) of themselves, one standard deviation.

    >>> sketch_words(4096)
    'from sketches of 4,096 numbers a model: a distance is off by 1.1 % (one standard deviation)'
    """
    off = f"{100 / math.sqrt(2 * k):.2g} %"
    if short:
        return f"from sketches of {k:,} numbers a model, distances off by {off}, one standard deviation"
    return f"from sketches of {k:,} numbers a model: a distance is off by {off} (one standard deviation)"


def rounds_words(result: Embedding) -> str:
    """Describe the layers, and the round where it is only one."""
    layers = result.attrs.get("asked_layers")
    said = f"; only {', '.join(layers)}" if layers else ""
    return said + (f"; round {result.rounds[0]}" if len(result.rounds) == 1 else "")
