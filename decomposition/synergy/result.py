"""A diagnosis of synergy at rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from ...checkpoints import Variable
from ...checkpoints.results import ArrayResult, along
from .clusters import Clusters

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: the quantiles of a layer's cv that a result keeps
CV_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.99, 1.0)


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
class Synergy(ArrayResult):
    """Which parameters K clients disagree about, and which clients disagree alike; made by ``synergy``.

    Attributes:
        client_ids: of the rows, [K].
        layers: in the order of the model.
        similarity: [G, K, K], G = 1 where clients were compared over the model, one a layer otherwise.
        clusters: of each of the G: clusters of rows, in the order in which they came about; none where nothing is high.
        scope: ``model`` or ``layer``, over which clients were compared.
        classes, most_clusters, cv_threshold, sim_threshold, quantile: the criteria, see
            :class:`~fedscope.decomposition.synergy.diagnosis.Criteria`.
        diverged: the clients, by their ids, with a parameter that is not finite.
        attrs: provenance: versions and whatever the caller gave.
    """

    command = kind = "synergy"
    needed = {
        **{"client": "client", "layer": "", "entries": "layer", "high_entries": "layer", "cv": "layer cv_quantile"},
        **{"similarity": "group client with_client", "cluster": "group client"},
    }
    optional = {
        "diverged": "client",
        **{"high_entry": "high_entry", "mic": "client high_entry", "alpha": "macro_class high_entry"},
    }

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

    def arrays(self) -> tuple[dict[str, Variable], dict[str, Variable]]:
        """Dimensions ``group``, ``client``, ``with_client``, ``layer`` and ``cv_quantile``; with the masks also
        ``high_entry``, whose values are places in the flat vector [P], and ``macro_class``."""
        cluster = np.full(self.similarity.shape[:2], -1, np.int64)
        for own, clusters in zip(cluster, self.clusters, strict=True):
            for s, members in enumerate(clusters):
                own[list(members)] = s
        layers = self.layers
        coords = {
            "client": along("client", self.client_ids, "client"),
            "with_client": along("with_client", self.client_ids, "client"),
            "layer": along("layer", np.array([layer.name for layer in layers], dtype=object)),
            "cv_quantile": along("cv_quantile", CV_QUANTILES, units="1"),
        }
        cv = np.array([layer.cv for layer in layers])
        shared = "share of high entries in the same micro-class"
        broken = np.isin(self.client_ids, self.diverged)
        variables = {
            "entries": along("layer", [layer.entries for layer in layers], "M"),
            "high_entries": along("layer", [layer.high_count for layer in layers], "entries of high dispersion"),
            "cv": along("layer cv_quantile", cv, "coefficient of variation over clients", "1"),
            "similarity": along("group client with_client", self.similarity, shared, "1"),
            "cluster": along("group client", cluster, "cluster, -1 for none"),
            "diverged": along("client", broken, "1 for clients with a parameter that is not finite"),
        }
        masks = self.masks()
        if masks is not None:
            places, mic, alpha = masks
            coords["high_entry"] = along("high_entry", places, "place in the flat vector of parameters")
            variables["mic"] = along("client high_entry", mic, "micro-class")
            variables["alpha"] = along("macro_class high_entry", alpha, "weight of a cluster")
        return coords, variables

    def head(self) -> dict[str, Any]:
        """The criteria, over what clients were compared, and whether the masks were kept."""
        names = ("classes", "most_clusters", "cv_threshold", "sim_threshold", "quantile")
        criteria = {name: getattr(self, name) for name in names}
        return {"criteria": criteria, "scope": self.scope, "masks": self.masks() is not None}

    @classmethod
    def of_arrays(cls, values: dict[str, Any], attrs: dict[str, Any]) -> Self:
        """The inverse of :meth:`arrays` and :meth:`head`."""
        has_masks = attrs.pop("masks")
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
            if has_masks:
                own = (values["high_entry"] >= start) & (values["high_entry"] < stop)
                high = np.zeros(stop - start, np.bool_)
                high[values["high_entry"][own] - start] = True
                kept = {"high": high, "mic": values["mic"][:, own], "alpha": values["alpha"][: len(of_layers[j]), own]}
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
        from .figure import draw_synergy

        return draw_synergy(self, width, title)

    def summary(self) -> str:
        """What is high, which clients go together, what is left out, and what that has to do with their labels."""
        from .words import sentence

        return sentence(self)

    def findings(self) -> dict[str, Any]:
        """Layers, clusters and who is in none, by the clients' ids; the labels."""
        ids = self.client_ids
        return {
            "source": self.attrs["source"],
            "high_share": self.high_share,
            "layers": [
                {"layer": layer.name, "entries": layer.entries, "high_entries": layer.high_count}
                for layer in self.layers
            ],
            "clusters": [[[int(ids[k]) for k in own] for own in clusters] for clusters in self.clusters],
            "left_out": [[int(ids[k]) for k in own] for own in self.left_out],
            "diverged": list(self.diverged),
            "layers_left_out": list(self.not_finite),
            "labels": self.attrs.get("labels"),
        }

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
