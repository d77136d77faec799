"""The stored result of a synergy diagnosis."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from ...checkpoints.io.errors import list_few
from ...results import ArrayResult, along
from ...results.arrays import Variable
from ...training.methods.shared.client_groups import CV_QUANTILES
from ...training.methods.shared.micro_classes import Clusters, cluster_of
from .label_agreement import label_words


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
    """Parameters that K clients disagree about, and clients that disagree alike; made by ``synergy``.

    Attributes:
        client_ids: of the rows, [K].
        layers: in the order of the model.
        similarity: [G, K, K], G = 1 where clients were compared over the model, one a layer otherwise.
        clusters: of each of the G: clusters of rows, in the order in which they came about; none where nothing is high.
        scope: ``model`` or ``layer``, over which clients were compared.
        classes, most_clusters, cv_threshold, sim_threshold, quantile: the criteria, see
            :class:`~fedscope.training.methods.shared.client_groups.Criteria`.
        diverged: the clients, by their ids, with a parameter that is not finite.
        attrs: provenance: versions and whatever the caller gave.
    """

    command = kind = "synergy"
    needed = {
        **{"client": "client", "layer": "", "entries": "layer", "high_entries": "layer", "cv": "layer cv_quantile"},
        **{"similarity": "group client with_client", "cluster": "group client", "diverged": "client"},
    }
    optional = {"high_entry": "high_entry", "mic": "client high_entry", "alpha": "macro_class high_entry"}

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
        numbers = (cluster_of(clusters, len(self.client_ids)) for clusters in self.clusters)
        return tuple(tuple(map(int, np.flatnonzero(cluster < 0))) for cluster in numbers)

    @property
    def not_finite(self) -> tuple[str, ...]:
        """The layers that are left out, with nothing high, because some cv of theirs is not finite."""
        return tuple(
            layer.name
            for layer in self.layers
            if layer.entries and not layer.high_count and not np.isfinite(layer.cv).all()
        )

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
        count, layers = len(self.client_ids), self.layers
        cluster = np.array([cluster_of(clusters, count) for clusters in self.clusters], np.int64).reshape(-1, count)
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
        """Return the criteria, over what clients were compared, and whether the masks were kept."""
        names = ("classes", "most_clusters", "cv_threshold", "sim_threshold", "quantile")
        criteria = {name: getattr(self, name) for name in names}
        return {"criteria": criteria, "scope": self.scope, "masks": self.masks() is not None}

    @classmethod
    def of_arrays(cls, values: dict[str, Any], attrs: dict[str, Any]) -> Self:
        """Build the result from what :meth:`arrays` and :meth:`head` gave."""
        has_masks = attrs.pop("masks")
        groups = tuple(
            tuple(tuple(map(int, np.flatnonzero(cluster == s))) for s in range(int(cluster.max(initial=-1)) + 1))
            for cluster in values["cluster"]
        )
        scope = attrs.pop("scope")
        of_layers = groups if scope == "layer" else groups * len(values["layer"])
        starts = list(accumulate(map(int, values["entries"]), initial=0))
        layers = []
        for j, (start, stop) in enumerate(pairwise(starts)):
            kept: dict[str, Any] = {}
            if has_masks:
                here = (values["high_entry"] >= start) & (values["high_entry"] < stop)
                high = np.zeros(stop - start, np.bool_)
                high[values["high_entry"][here] - start] = True
                alpha = values["alpha"][: len(of_layers[j]), here]
                kept = {"high": high, "mic": values["mic"][:, here], "alpha": alpha}
            name, count = str(values["layer"][j]), int(values["high_entries"][j])
            layers.append(LayerSynergy(name, stop - start, count, values["cv"][j], of_layers[j], **kept))
        return cls(
            client_ids=values["client"],
            layers=tuple(layers),
            similarity=values["similarity"],
            clusters=groups,
            scope=scope,
            diverged=tuple(map(int, values["client"][values["diverged"] == 1])),
            **attrs.pop("criteria"),
            attrs=attrs,
        )

    def summary(self) -> str:
        """Describe what is high, which clients go together, what is left out, and what that has to do with labels."""
        high = sum(layer.high_count for layer in self.layers)
        every = sum(layer.entries for layer in self.layers)
        share = f"{high:,} of {every:,} parameters of high dispersion ({100 * self.high_share:.2g} %)"
        first = f"{self.attrs['source']}: {share}; {_groups(self)}"
        return "\n".join(part for part in (first, broken(self, 12), by_definition(self), label_words(self)) if part)

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
            "clusters": [[ids[list(members)].tolist() for members in clusters] for clusters in self.clusters],
            "left_out": [ids[list(rows)].tolist() for rows in self.left_out],
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


def broken(result: Synergy, most: int) -> str:
    """Describe the clients that diverged and the layers that, at most so many by name, are left out; "" where
    everything is finite."""
    ids, layers = result.diverged, result.not_finite
    if not ids and not layers:
        return ""
    left = f"{len(layers):,} of {len(result.layers):,} layers left out"
    names = f"{left} ({list_few(layers, most)})" if layers else left
    if not ids:  # finite weights whose squares are not
        return f"dispersion is not finite: {names}"
    who = f"client{'s' if len(ids) > 1 else ''} {list_few(ids)} {'have' if len(ids) > 1 else 'has'}"
    return f"{who} parameters that are not finite: {names}"


def by_definition(result: Synergy) -> str:
    """Describe what would be so whatever two clients are; "" for more of them."""
    if len(result.client_ids) != 2 or not result.high_share:
        return ""
    return "two clients: (w₁ − μ)² = (w₂ − μ)² always, so their similarity is 1 by definition"


def _groups(result: Synergy) -> str:
    """Describe the clients that go together."""
    ids = result.client_ids
    if not result.high_share:
        return "nothing is of high dispersion, so clients form no clusters"
    if result.scope == "layer":
        sizes = [len(layer.clusters) for layer in result.layers if layer.high_count]
        where = "" if len(sizes) == len(result.layers) else f" with high entries ({len(sizes)} of {len(result.layers)})"
        some = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
        return f"{some} cluster{'' if max(sizes) == 1 else 's'} of the {len(ids)} clients a layer{where}"
    groups = [", ".join(str(ids[k]) for k in members) for members in result.clusters[0]]
    words = f"{len(groups)} cluster{'' if len(groups) == 1 else 's'} of {len(ids)} clients"
    words += f" ({'; '.join(groups)})" if groups else ""
    if left := result.left_out[0]:
        words += f", {', '.join(str(ids[k]) for k in left)} in none"
    return words
