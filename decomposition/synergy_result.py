"""A diagnosis of synergy at rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from ..checkpoints import Variable
from ..landscape.storing import read_result, write_result
from .synergy_clusters import Clusters

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: the quantiles of a layer's cv that a result keeps
CV_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.99, 1.0)

_NEEDED = ("client", "layer", "entries", "high_entries", "cv", "similarity", "cluster")
_MASKS = ("high_entry", "mic", "alpha")
_LATER = ("diverged",)  # which results from before it existed lack


@dataclass(frozen=True, eq=False)
class LayerSynergy:
    """One layer, which is one parameter tensor of M entries.

    Attributes:
        name: of the tensor; entries: M; high_count: how many of them are of high dispersion, M_high.
        cv: quantiles 0, 0.25, 0.5, 0.75, 0.99 and 1 of the coefficient of variation (``CV_QUANTILES``), not scaled.
        clusters: of rows, by which its high entries are averaged.
        high: which entries are high, [M]; mic: the clients' micro-classes 1..C there, [K, M_high]; alpha: the clusters'
            weights there, [S, M_high]. None where the masks were not kept.
    """

    name: str
    entries: int
    high_count: int
    cv: npt.NDArray[np.float64]
    clusters: Clusters
    high: npt.NDArray[np.bool_] | None = None
    mic: npt.NDArray[np.uint8] | None = None
    alpha: npt.NDArray[np.float64] | None = None

    @property
    def high_share(self) -> float:
        """M_high / M."""
        return self.high_count / max(self.entries, 1)


@dataclass(frozen=True, eq=False)
class Synergy:
    """Which parameters K clients disagree about, and which clients disagree alike; made by ``synergy``.

    Attributes:
        client_ids: of the rows, [K].
        layers: in the order of the model.
        similarity: [G, K, K], G = 1 where clients were compared over the model, one a layer otherwise.
        clusters: of each of the G: clusters of rows, in the order in which they came about; none where nothing is high.
        scope: ``model`` or ``layer``, over which clients were compared.
        classes, most_clusters, cv_threshold, sim_threshold, quantile: the criteria, see
            :class:`~fedscope.decomposition.synergies.Criteria`.
        diverged: the clients, by their ids, with a parameter that is not finite.
        attrs: provenance: versions and whatever the caller gave.
    """

    client_ids: npt.NDArray[np.int64]
    layers: tuple[LayerSynergy, ...]
    similarity: npt.NDArray[np.float64]
    clusters: tuple[Clusters, ...]
    scope: Literal["model", "layer"]
    classes: int
    most_clusters: int
    cv_threshold: float
    sim_threshold: float
    quantile: float | None = None
    diverged: tuple[int, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def high_share(self) -> float:
        """The share of the model's entries that are high."""
        return sum(layer.high_count for layer in self.layers) / max(sum(layer.entries for layer in self.layers), 1)

    @property
    def left_out(self) -> tuple[tuple[int, ...], ...]:
        """The rows in no cluster, for each of the G."""
        rows = range(len(self.client_ids))
        return tuple(tuple(k for k in rows if not any(k in own for own in clusters)) for clusters in self.clusters)

    @property
    def not_finite(self) -> tuple[str, ...]:
        """The layers that are left out, with nothing high, because some cv of theirs is not finite."""
        broken = (one for one in self.layers if one.entries and not one.high_count and not np.isfinite(one.cv).all())
        return tuple(layer.name for layer in broken)

    @property
    def mean_similarity(self) -> npt.NDArray[np.float64]:
        """[K, K]: the model's, or the mean over the layers that have high entries (over all where none has)."""
        if self.scope == "model":
            return np.array(self.similarity[0])
        with_high = [layer.high_count > 0 for layer in self.layers]
        chosen = self.similarity[with_high] if any(with_high) else self.similarity
        return np.asarray(chosen.mean(axis=0))

    def save(self, path: Path | str) -> None:
        """Write ``BASE.nc``: dimensions ``group``, ``client``, ``with_client``, ``layer`` and ``cv_quantile``; with the
        masks also ``high_entry``, whose values are places in the flat vector [P], and ``macro_class``."""
        cluster = np.full(self.similarity.shape[:2], -1, np.int64)
        for own, clusters in zip(cluster, self.clusters, strict=True):
            for s, members in enumerate(clusters):
                own[list(members)] = s
        coords: dict[str, Variable] = {
            "client": (("client",), self.client_ids, {"long_name": "client"}),
            "with_client": (("with_client",), self.client_ids, {"long_name": "client"}),
            "layer": (("layer",), np.array([layer.name for layer in self.layers], dtype=object), {}),
            "cv_quantile": (("cv_quantile",), np.array(CV_QUANTILES), {"units": "1"}),
        }
        variables: dict[str, Variable] = {
            "entries": (("layer",), np.array([layer.entries for layer in self.layers]), {"long_name": "M"}),
            "high_entries": (
                ("layer",),
                np.array([layer.high_count for layer in self.layers]),
                {"long_name": "entries of high dispersion"},
            ),
            "cv": (
                ("layer", "cv_quantile"),
                np.array([layer.cv for layer in self.layers]),
                {"long_name": "coefficient of variation over clients", "units": "1"},
            ),
            "similarity": (
                ("group", "client", "with_client"),
                self.similarity,
                {"long_name": "share of high entries in the same micro-class", "units": "1"},
            ),
            "cluster": (("group", "client"), cluster, {"long_name": "cluster, -1 for none"}),
            "diverged": (
                ("client",),
                np.isin(self.client_ids, self.diverged),
                {"long_name": "1 for clients with a parameter that is not finite"},
            ),
        }
        kept = self.masks()
        if kept is not None:
            about = {"long_name": "place in the flat vector of parameters"}
            coords["high_entry"] = (("high_entry",), kept[0], about)
            variables["mic"] = (("client", "high_entry"), kept[1], {"long_name": "micro-class"})
            variables["alpha"] = (("macro_class", "high_entry"), kept[2], {"long_name": "weight of a cluster"})
        names = ("classes", "most_clusters", "cv_threshold", "sim_threshold", "quantile")
        criteria = {name: getattr(self, name) for name in names}
        head = {"criteria": criteria, "scope": self.scope, "masks": kept is not None}
        write_result(Path(path), "synergy", coords, variables, {**self.attrs, **head})

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read what :meth:`save` wrote.

        Raises:
            FedscopeError: no such file, or not a synergy's.
        """
        values, attrs = read_result(Path(path), "synergy", _NEEDED, _LATER)
        masks = read_result(Path(path), "synergy", _MASKS)[0] if attrs.pop("masks") else None
        groups = tuple(
            tuple(tuple(map(int, np.flatnonzero(own == s))) for s in range(int(own.max(initial=-1)) + 1))
            for own in values["cluster"]
        )
        scope = attrs.pop("scope")
        of_layers = groups if scope == "layer" else groups * len(values["layer"])
        starts = list(accumulate(map(int, values["entries"]), initial=0))
        layers = []
        for j, (start, stop) in enumerate(pairwise(starts)):
            kept: dict[str, Any] = {}
            if masks is not None:
                own = (masks["high_entry"] >= start) & (masks["high_entry"] < stop)
                high = np.zeros(stop - start, np.bool_)
                high[masks["high_entry"][own] - start] = True
                alpha = masks["alpha"][: len(of_layers[j]), own]
                kept = {"high": high, "mic": masks["mic"][:, own], "alpha": alpha}
            name, count = str(values["layer"][j]), int(values["high_entries"][j])
            layers.append(LayerSynergy(name, stop - start, count, values["cv"][j], of_layers[j], **kept))
        return cls(
            client_ids=values["client"],
            layers=tuple(layers),
            similarity=values["similarity"],
            clusters=groups,
            scope=scope,
            diverged=tuple(map(int, values["client"][values["diverged"] == 1])) if "diverged" in values else (),
            **attrs.pop("criteria"),
            attrs=attrs,
        )

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """The share of high entries of each layer above the clients' similarities, their clusters outlined, and the
        dendrogram of the same similarities; with the masks, the micro-classes and the clusters' weights too. ``width``
        in inches."""
        from .synergy_figure import draw_synergy

        return draw_synergy(self, width, title)

    def masks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Places [sum M_high], mic [K, sum M_high] and alpha [S, sum M_high] of all layers, NaN where a layer has fewer
        clusters; None where they were not kept."""
        places, classes, weights = [], [], []
        most, start = max((len(clusters) for clusters in self.clusters), default=0), 0
        for layer in self.layers:
            if layer.high is None or layer.mic is None or layer.alpha is None:
                return None
            places.append(start + np.flatnonzero(layer.high))
            classes.append(layer.mic)
            alpha = np.full((most, layer.high_count), np.nan)
            alpha[: len(layer.alpha)] = layer.alpha
            weights.append(alpha)
            start += layer.entries
        if not places:
            return None
        return np.concatenate(places), np.concatenate(classes, axis=1), np.concatenate(weights, axis=1)
