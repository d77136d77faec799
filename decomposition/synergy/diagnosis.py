"""Which parameters clients disagree about, and which clients disagree alike: FedSA's diagnosis of a round.

Wang, Liao, Yuan and Zhang, "The Key of Parameter Skew in Federated Learning", arXiv 2408.11278, 2024.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from ...checkpoints import FedscopeError, Round, Weights, read_pieces, versions
from .micro_classes import (
    Array,
    Clusters,
    Mask,
    agreements,
    cluster_of,
    cluster_weights,
    high_entries,
    macro_classes,
    mean_and_cv,
    micro_classes,
    similarities,
)
from .result import CV_QUANTILES, LayerSynergy, Synergy


@dataclass(frozen=True)
class Criteria:
    """What counts as high dispersion, and as alike.

    Attributes:
        classes: C, the number of micro-classes, 1 to 255.
        clusters: S, the most clusters of clients there may be.
        cv_threshold: an entry is high where its scaled coefficient of variation exceeds this.
        sim_threshold: once there are S clusters, a client joins one only if their similarity exceeds this.
        similarity: whether clients are compared layer by layer, each with clusters of its own, as eq. 10 and Algorithm
            1's loop have it and as FedSA's server does, or over the whole model, which the text's synergy of the
            network can also mean. A diagnosis takes the model by default: one answer for a round (chosen).
        quantile: the quantile of cv that is scaled to 1; None for its maximum, as in the paper.
    """

    classes: int = 4
    clusters: int = 4
    cv_threshold: float = 0.2
    sim_threshold: float = 0.2
    similarity: Literal["model", "layer"] = "model"
    quantile: float | None = None

    def __post_init__(self) -> None:
        for name, holds, range_ in (
            ("classes", 1 <= self.classes <= 255, "from 1 to 255"),
            ("clusters", self.clusters >= 1, "at least 1"),
            ("cv_threshold", 0 <= self.cv_threshold < 1, "at least 0 and less than 1"),
            ("sim_threshold", 0 <= self.sim_threshold <= 1, "from 0 to 1"),
            ("similarity", self.similarity in ("model", "layer"), "'model' or 'layer'"),
            ("quantile", self.quantile is None or 0 < self.quantile <= 1, "greater than 0 and at most 1"),
        ):
            if not holds:
                raise FedscopeError(f"{name} = {getattr(self, name)!r} is out of range: it must be {range_}")


@dataclass(frozen=True, eq=False)
class HighLayer:
    """A layer, which is one parameter tensor, after :func:`group_clients`.

    Attributes:
        name: of the tensor; where: its place in the flat vector.
        high: which of its M entries are of high dispersion, [M].
        cv: quantiles of the coefficient of variation, see ``CV_QUANTILES``; empty where they were not asked for.
        clusters: of clients, by which its high entries are averaged.
    """

    name: str
    where: slice
    high: Mask
    cv: Array
    clusters: Clusters

    @property
    def count(self) -> int:
        """M_high."""
        return int(np.count_nonzero(self.high))

    @property
    def share(self) -> float:
        """M_high / M."""
        return self.count / max(self.high.size, 1)

    def rows(self, clients: Weights | Round) -> np.ndarray:
        """The clients' high entries, [K, M_high], a copy."""
        return np.asarray(layer_of(clients, self.name)[:, self.high])


@dataclass(frozen=True, eq=False)
class Grouping:
    """What one pass over the layers finds.

    Attributes:
        mean: mu, the clients' unweighted mean, [P] in the layout's dtype.
        layers: in the layout's order.
        similarity: [G, K, K], G = 1 for the model or one a layer.
        clusters: of each of the G; where nothing was compared everybody is alike, and FedSA's server has one of all.
        compared: how many high entries clients were compared in, for each of the G.
        diverged: which clients have a parameter that is not finite, [K].
    """

    mean: np.ndarray
    layers: tuple[HighLayer, ...]
    similarity: Array
    clusters: tuple[Clusters, ...]
    compared: tuple[int, ...]
    diverged: Mask

    @property
    def cluster(self) -> np.ndarray:
        """Each client's cluster, -1 for none, [G, K] int64."""
        count = self.similarity.shape[1]
        return np.array([cluster_of(clusters, count) for clusters in self.clusters], np.int64).reshape(-1, count)


def group_clients(clients: Weights | Round, criteria: Criteria, *, quantiles: bool = False) -> Grouping:
    """Find each layer's entries of high dispersion, and which clients differ from the mean in the same of them.

    Memory beside the result: what one layer's high entries take, K × M_high, and two vectors of the largest layer; of a
    recorded round also one layer of all clients, read when its turn comes.

    Args:
        clients: [K, P], or the round that recorded them.
        quantiles: whether the layers keep quantiles of cv.

    Raises:
        FedscopeError: one model instead of rows; no client.
    """
    if isinstance(clients, Weights) and (clients.parameters.ndim != 2 or not len(clients.parameters)):
        raise FedscopeError(
            f"synergy is between clients, rows [K, P], but the parameters have shape {clients.parameters.shape}"
        )
    layout = clients.layout
    count = len(clients if isinstance(clients, Weights) else clients.client_ids)
    mean = np.empty(layout.size, layout.dtype)
    layers, agreed, diverged = [], [], np.zeros(count, np.bool_)
    with np.errstate(over="ignore", invalid="ignore"):  # of clients that diverged: their layers have nothing high
        for name, where in layout.slices.items():
            values = layer_of(clients, name)
            mu, cv = mean_and_cv(values)
            mean[where] = mu
            if not np.isfinite(mu).all():
                # row by row, so that no mask of a layer is made
                diverged |= [not np.isfinite(row).all() for row in values]
            high = high_entries(cv, criteria.cv_threshold, criteria.quantile)
            about = np.quantile(cv, CV_QUANTILES) if quantiles and cv.size else np.full(len(CV_QUANTILES), np.nan)
            layers.append(HighLayer(name, where, high, about, ()))
            agreed.append(agreements(micro_classes(values[:, high], criteria.classes), criteria.classes))
    compared = [layer.count for layer in layers]
    if criteria.similarity == "model":
        agreed = [sum(agreed, np.zeros((count, count), np.int64))]
        compared = [sum(compared)]
    clusters = tuple(
        macro_classes(counts, entries, criteria.clusters, criteria.sim_threshold)
        for counts, entries in zip(agreed, compared, strict=True)
    )
    of_layers = clusters if criteria.similarity == "layer" else clusters * len(layers)
    grouped = tuple(replace(layer, clusters=groups) for layer, groups in zip(layers, of_layers, strict=True))
    similarity = [similarities(counts, entries) for counts, entries in zip(agreed, compared, strict=True)]
    between = np.array(similarity).reshape(-1, count, count)
    return Grouping(mean, grouped, between, clusters, tuple(compared), diverged)


def layer_of(clients: Weights | Round, name: str) -> np.ndarray:
    """A parameter of all clients, [K, M], whether they lie in memory or in a recorded round."""
    where = clients.layout.slices[name]
    if isinstance(clients, Weights):
        return np.asarray(clients.parameters[:, where])
    for piece in read_pieces(clients, max(1, where.stop - where.start), [name]):
        return piece.read()
    return np.empty((len(clients.client_ids), 0), clients.layout.dtype)


def synergy(
    clients: Weights | Round,
    *,
    classes: int = 4,
    clusters: int = 4,
    cv_threshold: float = 0.2,
    sim_threshold: float = 0.2,
    similarity: Literal["model", "layer"] = "model",
    quantile: float | None = None,
    keep_masks: bool = False,
    client_ids: Sequence[int] | np.ndarray | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Synergy:
    """FedSA's diagnosis of one round's clients: cv, high entries, micro-classes, clusters of clients and their weights.

    For each layer, which is one parameter tensor with M entries in K clients, in float64:

    1. mu = mean_k w_k, unweighted; s = (w − mu)²; cv = √(mean_k s)/|mu| (eq. 2 to 4).
    2. High entries: (cv − min)/(max − min) > ``cv_threshold`` over the layer (eq. 5, 6). The scale depends on
       the smallest |mu|: of Gaussian entries 1/``cv_threshold`` are high, on average, however many there are.
       ``quantile = 0.99`` scales by that quantile of cv instead of its maximum.
    3. MIC: s of the high entries over its greatest value among them, in C equal classes (eq. 8, 9).
    4. sim(a, b) = 1 − share of high entries where mic_a ≠ mic_b (eq. 10).
    5. MAC: at most S clusters of clients, see :func:`~fedscope.decomposition.synergy.micro_classes.macro_classes`.
       Where nothing is high nothing was compared, and there are none.
    6. Weights of the clusters for each high entry (eq. 11 to 14), see
       :func:`~fedscope.decomposition.synergy.micro_classes.cluster_weights`.

    Args:
        clients: [K, P], or a recorded round, which is read a layer at a time.
        classes, clusters, cv_threshold, sim_threshold, similarity, quantile: see :class:`Criteria`.
        keep_masks: keep, for every layer, which entries are high, their micro-classes and the clusters' weights:
            K + 8 S bytes a high entry.
        client_ids: the clients' names in the result, [K]; by default the recorded ones, or the numbers of their rows.
        provenance: becomes part of ``Synergy.attrs``, such as the run and the round.

    Raises:
        FedscopeError: a criterion out of range; one model instead of rows; another number of ids than of clients.
    """
    criteria = Criteria(classes, clusters, cv_threshold, sim_threshold, similarity, quantile)
    grouping = group_clients(clients, criteria, quantiles=True)
    count = grouping.similarity.shape[-1]
    recorded = np.arange(count) if isinstance(clients, Weights) else clients.client_ids
    ids = recorded if client_ids is None else np.asarray(client_ids, dtype=np.int64)
    if ids.shape != (count,):
        raise FedscopeError(f"client_ids has shape {ids.shape}, but there are {count} clients; give one id a client")
    # of nothing that was compared a diagnosis has no clusters, though a server needs them to go on
    groups = tuple(made if some else () for made, some in zip(grouping.clusters, grouping.compared, strict=True))
    of_layers = groups if similarity == "layer" else groups * len(grouping.layers)
    layers = []
    for layer, members in zip(grouping.layers, of_layers, strict=True):
        kept: dict[str, Any] = {}
        if keep_masks:
            mic = micro_classes(layer.rows(clients), classes)
            kept = {"high": layer.high, "mic": mic, "alpha": cluster_weights(mic, members, classes)}
        layers.append(LayerSynergy(layer.name, layer.high.size, layer.count, layer.cv, members, **kept))
    return Synergy(
        client_ids=ids,
        layers=tuple(layers),
        similarity=grouping.similarity,
        clusters=groups,
        scope=similarity,
        classes=classes,
        most_clusters=clusters,
        cv_threshold=float(cv_threshold),
        sim_threshold=float(sim_threshold),
        quantile=quantile,
        diverged=tuple(int(k) for k in ids[grouping.diverged]),
        attrs={"versions": versions(), **dict(provenance or {})},
    )
