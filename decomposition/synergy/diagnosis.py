"""FedSA's diagnosis of a round: the parameters clients disagree about, and the clients that disagree alike.

Wang, Liao, Yuan and Zhang, "The Key of Parameter Skew in Federated Learning", arXiv 2408.11278, 2024.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ...checkpoints import FedscopeError, Round, Weights
from ...results.versions import versions
from ...training.methods.shared.client_groups import Criteria, group_clients
from ...training.methods.shared.micro_classes import cluster_weights, micro_classes
from .result import LayerSynergy, Synergy


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
    5. MAC: at most S clusters of clients, see :func:`~fedscope.training.methods.shared.micro_classes.macro_classes`.
       Where nothing is high nothing was compared, and there are none.
    6. Weights of the clusters for each high entry (eq. 11 to 14), see
       :func:`~fedscope.training.methods.shared.micro_classes.cluster_weights`.

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
