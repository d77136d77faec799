"""FedSA, published in 2025 as FedPake: Wang, Liao, Yuan and Zhang, "The Key of Parameter Skew in Federated Learning",
arXiv 2408.11278, 2024. The formulas follow its first version, which calls the method FedSA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ....checkpoints import Weights
from ...settings.settings import setting
from ..base import Cohort, MethodInfo, Served, ServerMethod, State


@dataclass(frozen=True)
class FedSA(ServerMethod):
    """Parameters that clients agree about are averaged over clients; the others are a weighted average over clusters.

    For each layer, which is one parameter tensor with M entries in K clients, [K, M]:

    1. mu = mean_k w_k, **unweighted** whatever ``weighting`` says (eq. 2; p still averages losses and buffers).
       s = (w − mu)² and cv = √(mean_k s)/|mu| (eq. 2 to 4; |mu| at least float32's least normal number, chosen).
    2. cv is scaled to [0, 1] over the layer; *high* where that exceeds ``cv_threshold`` (eq. 5, 6), else w⁺ = mu
       (eq. 7).
    3. MIC: the high entries' s, divided by its greatest value among them (chosen: eq. 8 leaves s unscaled and N
       undefined), in C equal classes (c−1)/C < s ≤ c/C, class 1 for 0 (eq. 8, 9).
    4. sim(a, b) = 1 − share of high entries where mic_a ≠ mic_b (eq. 10), layer by layer: eq. 10 divides by the number
       of a layer's high parameters and stands in Algorithm 1's loop over layers. With ``similarity = "model"`` over all
       layers' high entries at once, which the text's synergy of the network can also mean. Where nothing is high it is
       1.
    5. MAC: while there are fewer than S clusters, the most similar two of (free client, free client) and (free client,
       cluster) are joined; then each free client joins the most similar cluster if that exceeds ``sim_threshold``.
       Ties go to a cluster, then to the lowest ids, then to the older cluster (chosen).
    6. mac_s[m] = the most frequent mic of cluster s's members, the lower of equals; w̄_s = their mean (eq. 11, 12).
    7. alpha_s[m] = (how many of the layer's high entries have class mac_s[m] in cluster s)/(S C) (eq. 14), divided by
       its sum over s (chosen: without it eq. 15 rescales the weights). High: w⁺ = Σ_s alpha_s w̄_s (eq. 15); mu where
       there is no cluster.

    The scale of step 2 depends on the smallest |mu| of a layer, so that few entries are high: 1/``cv_threshold`` a
    layer, on average, of Gaussian ones. ``quantile = 0.99`` takes that quantile of cv for its maximum (not in the
    paper).

    The paper's settings: (C, S) = (4, 4) for CIFAR-10, (5, 5) for CIFAR-100, (8, 8) for Tiny-ImageNet; 20 clients, all
    of them in every round. Of one client it returns that client.

    The state is the round's diagnosis, for its file; the next round does not read it: ``high_share`` [layers], each
    client's ``cluster`` [layers, K] (-1 for none) and their ``similarity`` [layers, K, K]; with ``similarity =
    "model"`` these two are [K] and [K, K]. :func:`fedscope.decomposition.synergy.diagnosis.synergy` tells the rest
    from the recorded clients.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedPake (FedSA)",
        "Wang et al., The key of parameter skew, arXiv 2024",
        "w⁺ = unweighted mean μ; where cv = σ/μ over clients is high, Σ_s α_s w̄_s over clusters s of clients",
    )
    forgets_start: ClassVar[bool] = True
    reads: ClassVar[Literal["columns", "layers", "rows"]] = "layers"
    unweighted: ClassVar[bool] = True
    ties_by_order: ClassVar[bool] = True

    classes: int = setting(4, "C: micro-classes of a parameter's squared deviation", least=1, most=255)
    clusters: int = setting(4, "S: largest number of clusters of clients", least=1)
    cv_threshold: float = setting(0.2, "an entry is high above this scaled coefficient of variation", least=0, below=1)
    sim_threshold: float = setting(0.2, "a client joins one of S clusters above this similarity", least=0, most=1)
    similarity: Literal["layer", "model"] = setting(
        "layer", "compare and cluster clients layer by layer, or over the model"
    )
    quantile: float | None = setting(
        None, "quantile of cv that is scaled to 1, such as 0.99; default: its maximum, as in the paper", above=0, most=1
    )

    @property
    def needs_all(self) -> bool:
        """True where clients are compared over the model."""
        return self.similarity == "model"

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        """See the class; ``start``, ``state`` and p are not used.

        Beside the rows and the result it takes K × (largest layer) numbers at most, and one byte a parameter.
        """
        from ..shared.client_groups import Criteria, group_clients
        from ..shared.micro_classes import cluster_weights, micro_classes, synergy_mean

        found = group_clients(
            clients,
            Criteria(
                self.classes, self.clusters, self.cv_threshold, self.sim_threshold, self.similarity, self.quantile
            ),
        )
        parameters = found.mean
        for layer in found.layers:
            if layer.clusters and layer.count:
                rows = layer.rows(clients)
                alpha = cluster_weights(micro_classes(rows, self.classes), layer.clusters, self.classes)
                parameters[layer.where][layer.high] = synergy_mean(rows, layer.clusters, alpha)
        of_model = self.similarity == "model"
        return Served(
            parameters,
            {
                "high_share": np.array([layer.share for layer in found.layers]),
                "cluster": found.cluster[0] if of_model else found.cluster,
                "similarity": found.similarity[0] if of_model else found.similarity,
            },
        )


PROVIDES = FedSA
