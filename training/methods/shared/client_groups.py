"""Entries that clients disagree about, and clients that disagree alike: one pass over a round's layers.

FedSA's server averages by these groups, and the diagnosis ``synergy`` shows them. Wang, Liao, Yuan and Zhang, "The Key
of Parameter Skew in Federated Learning", arXiv 2408.11278, 2024.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ....checkpoints import FedscopeError, Round, Weights, read_chunks
from ....command_line import answering
from .micro_classes import (
    Array,
    Clusters,
    Mask,
    agreements,
    cluster_of,
    high_entries,
    macro_classes,
    mean_and_cv,
    micro_classes,
    similarities,
)

#: the quantiles of a layer's cv that a result keeps
CV_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.99, 1.0)


@dataclass(frozen=True)
class Criteria:
    """The limits of high dispersion, and of being alike.

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
                value = getattr(self, name)
                shown = f"{value:g}" if isinstance(value, float) else repr(value)
                said = f"--{name.replace('_', '-')} {shown}" if answering.get() else f"{name} = {value!r}"
                raise FedscopeError(f"{said} is out of range: it must be {range_}")


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
        """Return the clients' high entries, [K, M_high], a copy."""
        return np.asarray(layer_of(clients, self.name)[:, self.high])


@dataclass(frozen=True, eq=False)
class Grouping:
    """The findings of one pass over the layers.

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

    Memory besides the result: what one layer's high entries take, K × M_high, and two vectors of the largest layer; of
    a recorded round also one layer of all clients, read when its turn comes.

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
    for piece in read_chunks(clients, max(1, where.stop - where.start), [name]):
        return piece.read()
    return np.empty((len(clients.client_ids), 0), clients.layout.dtype)
