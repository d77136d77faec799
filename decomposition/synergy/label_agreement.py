"""Agreement of synergy with labels: clusters and similarities against label counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import permutations as orders_of
from math import factorial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...results import Serializable
from ...training.methods.shared.micro_classes import Clusters, cluster_of

if TYPE_CHECKING:
    from .result import Synergy

Array = npt.NDArray[np.float64]

#: random matchings of clients to labels behind a p-value
PERMUTATIONS = 9_999
#: with fewer clients all matchings are gone through, at most 24, and the least possible p-value is worth knowing
FEW = 5


@dataclass(frozen=True)
class LabelAgreement(Serializable):
    """Agreement of clusters and similarities of K clients with their labels; None where a number does not exist.

    Attributes:
        label_sets: how many different sets of labels the clients have.
        rand: adjusted Rand index of the clusters against the groups of clients with one label set: 1 for the same
            groups, 0 on average for unrelated ones. Clients in no cluster count as clusters of one. None where all
            clients have one set or each its own, because then it is no number about labels, where all are in one
            cluster or each in its own, because then it is 0 by definition, and where clusters are the layers' own.
        rand_p: its p-value; rand_least: the least one that any matching of these clients to these labels could have,
            of fewer than five clients, else None.
        correlation: Spearman's, over the pairs of clients, of their similarity with the overlap of their label
            distributions, Σ_c min(a_c, b_c) = 1 − total variation. None for fewer than three clients, or where all
            pairs are equally similar or equally overlapping.
        correlation_p: its p-value; correlation_least: alike.
        permutations, seed: behind the p-values, which are two-sided: (1 + how many random matchings of clients to
            labels are at least as far from what they are on average)/(1 + permutations), as in Mantel's test. Of fewer
            than five clients they are all K! − 1 other matchings, each once.
    """

    label_sets: int
    rand: float | None
    rand_p: float | None
    correlation: float | None
    correlation_p: float | None
    permutations: int
    seed: int
    rand_least: float | None = None
    correlation_least: float | None = None


def label_agreement(
    clusters: Clusters | None,
    similarity: Array,
    label_counts: npt.NDArray[np.int64],
    *,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
) -> LabelAgreement:
    """Compare clients' clusters and similarities with their labels, see :class:`LabelAgreement`.

    Rand index: Hubert and Arabie, "Comparing partitions", 1985, by scikit-learn. Pairs of clients are not independent,
    so p-values permute clients: Mantel, "The detection of disease clustering", 1967.

    Args:
        clusters: of rows; None where there is none of all layers together.
        similarity: [K, K].
        label_counts: [K, classes], of each client's samples.

    >>> counts = np.array([[9, 0], [8, 0], [7, 0], [0, 9], [0, 8], [0, 9]])
    >>> like = np.kron(np.eye(2), np.full((3, 3), 0.5)) + 0.4
    >>> found = label_agreement(((0, 1, 2), (3, 4, 5)), like, counts, permutations=99)
    >>> found.label_sets, found.rand, round(found.correlation, 6)
    (2, 1.0, 1.0)
    """
    from scipy.stats import rankdata

    count = len(similarity)
    sets = np.unique(label_counts > 0, axis=0, return_inverse=True)[1].reshape(-1)
    groups = int(sets.max()) + 1
    rng = np.random.default_rng(seed)
    few = factorial(count) - 1 if count < FEW else None
    rand = rand_p = rand_least = correlation = correlation_p = correlation_least = None
    together = cluster_of(clusters or (), count)
    together = np.where(together < 0, count + np.arange(count), together)  # a number of its own for a row in none
    if 1 < groups < count and 1 < len(set(together.tolist())) < count:
        from sklearn.metrics import adjusted_rand_score

        rand = float(adjusted_rand_score(sets, together))
        # with fixed sizes the index rises with the pairs that are together in both, and with nothing else
        _, rand_p, rand_least = _association(together[:, None] == together, sets[:, None] == sets, rng, permutations)
    if count >= 3:
        upper = np.triu_indices(count, 1)
        ranks = np.zeros((2, count, count))
        for ranked, values in zip(ranks, (similarity, overlap(label_counts)), strict=True):
            # rounded, so that pairs whose distributions are the same up to the last digit tie
            ranked[upper] = rankdata(np.round(values[upper], 12))
            ranked += ranked.T
        correlation, correlation_p, correlation_least = _association(ranks[0], ranks[1], rng, permutations)
    drawn = permutations if few is None else few
    return LabelAgreement(groups, rand, rand_p, correlation, correlation_p, drawn, seed, rand_least, correlation_least)


def with_labels(result: Synergy, label_counts: npt.NDArray[np.int64], seed: int) -> Synergy:
    """A diagnosis that also says in ``attrs`` how its clusters and similarities go with the clients' labels.

    Args:
        label_counts: [K, classes], of each client's samples.
    """
    clusters = result.clusters[0] if result.scope == "model" else None
    agreement = label_agreement(clusters, result.mean_similarity, label_counts, seed=seed)
    return replace(result, attrs={**result.attrs, "labels": agreement.to_json()})


def label_words(result: Synergy) -> str:
    """Describe what clusters and similarities of a diagnosis have to do with labels."""
    labels = result.attrs.get("labels")
    if result.attrs.get("without_classes"):
        return "labels: the run's task has no classes, so there are none"
    if labels is None:
        return "labels: the run has no partition.h5, so nothing is known of them"
    parts = []
    if labels["rand"] is None:
        parts.append(f"{_no_rand(result, labels['label_sets'])}, so there is no Rand index")
    else:
        alone = ", those in no cluster as clusters of one" if result.left_out[0] else ""
        p = _p(labels["rand_p"], labels.get("rand_least"))
        parts.append(
            f"adjusted Rand index of clusters and the {labels['label_sets']} label sets {labels['rand']:.3g} ({p})"
            f"{alone}"
        )
    if labels["correlation"] is None:
        parts.append("no correlation of similarity with label overlap exists")
    else:
        clients = len(result.client_ids)
        least = labels.get("correlation_least")
        behind = f"all {factorial(clients)} matchings" if least else f"{labels['permutations']:,} permutations"
        parts.append(
            f"rank correlation of similarity with label overlap {labels['correlation']:.3g} "
            f"({_p(labels['correlation_p'], least)}, {behind})"
        )
    return "labels: " + "; ".join(parts)


def overlap(label_counts: npt.NDArray[np.int64]) -> Array:
    """Σ_c min(a_c, b_c) between the label distributions of every two clients, [K, K]; NaN for one without samples.

    >>> overlap(np.array([[1, 1], [2, 0]])).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    with np.errstate(invalid="ignore"):
        shares = label_counts / label_counts.sum(axis=1, keepdims=True)
    shared: Array = np.minimum(shares[:, None, :], shares[None, :, :]).sum(axis=2)
    return shared


def _association(
    left: npt.NDArray[Any], right: npt.NDArray[Any], rng: np.random.Generator, permutations: int
) -> tuple[float | None, float | None, float | None]:
    """Pearson's correlation of two symmetric matrices over the pairs i < j, its p-value over permutations of the rows
    and columns of one of them, and of few clients the least p-value of any such permutation; None where one is constant
    or not finite."""
    upper = np.triu_indices(len(left), 1)
    left, right = (matrix - np.mean(matrix[upper]) for matrix in (left, right))
    fixed = right[upper]
    length = float(np.linalg.norm(left[upper]) * np.linalg.norm(fixed))
    if not length > 0:
        return None, None, None

    def matched(orders: Iterable[npt.NDArray[np.int64]]) -> Array:
        return np.array([abs(float(left[order[upper[0]], order[upper[1]]] @ fixed)) for order in orders])

    value = float(left[upper] @ fixed)
    slack = 1e-9 * length  # a matching that gives the same sum, in another order, counts
    if len(left) < FEW:
        every = matched(map(np.array, orders_of(range(len(left)))))
        least = float(np.mean(every >= every.max() - slack))
        return value / length, float(np.mean(every >= abs(value) - slack)), least
    drawn = matched(rng.permutation(len(left)) for _ in range(permutations))
    return value / length, (1 + int(np.sum(drawn >= abs(value) - slack))) / (1 + permutations), None


def _no_rand(result: Synergy, sets: int) -> str:
    """Say why there is no Rand index."""
    clients = len(result.client_ids)
    if result.scope == "layer":
        return "each layer has its own clusters"
    if not result.high_share:
        return "there are no clusters"
    if sets == 1 or sets == clients:
        return f"the {clients} clients have {'one label set' if sets == 1 else f'{sets} different label sets'}"
    if len(result.clusters[0]) == 1 and not result.left_out[0]:
        return f"the {clients} clients form one cluster"
    return f"each of the {clients} clients is a cluster of its own"


def _p(value: float, least: float | None) -> str:
    """Write a p value; with so few clients that it matters, also the least that is possible."""
    return f"p = {value:.2g}" + ("" if least is None else f", least possible {least:.2g}")
