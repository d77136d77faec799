"""FedSA's statistics of one layer, a matrix [K, M] of its M entries in K clients: dispersion, micro-classes (MIC),
clusters of clients (MAC) and their weights.

Equations are those of Wang, Liao, Yuan and Zhang, "The Key of Parameter Skew in Federated Learning", arXiv 2408.11278,
2024, in its first version. Everything is in float64, in blocks of columns that stay in the processor's cache, so that
no float64 copy of a layer is ever made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Classes = npt.NDArray[np.uint8]
Clusters = tuple[tuple[int, ...], ...]

#: the least |mu| that a deviation is divided by
TINY = float(np.finfo(np.float32).tiny)

# Entries of a block over all clients, 1.3 MB in float64.
BLOCK = 160_000


def mean_and_cv(rows: np.ndarray) -> tuple[Array, Array]:
    """mu = (1/K) sum_k w_k, unweighted, and cv = sqrt((1/K) sum_k (w_k - mu)^2) / |mu|, both [M] (eq. 2 to 4).

    |mu| counts as float32's least normal number where it is smaller (chosen: the paper divides by 0 there).

    >>> mean, cv = mean_and_cv(np.array([[1.0, -3.0], [3.0, -3.0]]))
    >>> mean.tolist(), cv.tolist()
    ([2.0, -3.0], [0.5, 0.0])
    """
    mean, cv = np.empty(rows.shape[1]), np.empty(rows.shape[1])
    for block in _blocks(rows):
        mean[block], spread = _mean_and_spread(rows[:, block])
        cv[block] = np.sqrt(_sum(spread) / len(rows)) / np.maximum(np.abs(mean[block]), TINY)
    return mean, cv


def high_entries(cv: Array, threshold: float, quantile: float | None = None) -> Mask:
    """Mark the entries of a layer with high dispersion: (cv - min cv) / (max cv - min cv) > threshold (eq. 5, 6).

    With a ``quantile`` that one of cv stands in place of its maximum, which depends on a single entry's mu near 0
    (chosen: the scale's lower end stays, it is never far from the others). Entries that all have one cv, and layers
    whose cv is not finite, have nothing high.

    >>> high_entries(np.array([0.0, 0.1, 0.3, 1.0]), 0.2).tolist()
    [False, False, True, True]
    """
    if not cv.size:
        return np.zeros(0, np.bool_)
    low = cv.min()
    top = cv.max() if quantile is None else np.quantile(cv, quantile)
    return is_high(cv, low, top, threshold)


def is_high(cv: Array, low: float, top: float, threshold: float) -> Mask:
    """(cv - low) / (top - low) > threshold, of some entries of a layer whose least and greatest cv are known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((cv - low) / np.float64(top - low) > threshold)


def micro_classes(rows: np.ndarray, classes: int) -> Classes:
    """MIC, a class 1..C for each client and high entry, [K, M_high] (eq. 8, 9).

    s = (w - mu)^2, divided by its greatest value over these entries and all clients, is in class c where
    (c-1)/C < s <= c/C, and in class 1 where it is 0 (chosen: eq. 8 bins an unscaled s by c/N with N undefined; N = C).

    Args:
        rows: a layer's high entries, [K, M_high].

    >>> micro_classes(np.array([[0.0, 0.0], [2.0, 4.0], [4.0, 8.0]]), 4).tolist()
    [[1, 4], [1, 1], [1, 4]]
    """
    found = np.ones(rows.shape, np.uint8)
    top = max((_mean_and_spread(rows[:, block])[1].max() for block in _blocks(rows)), default=0.0)
    if top == 0:
        return found
    for block in _blocks(rows):
        _, spread = _mean_and_spread(rows[:, block])
        spread /= top
        for c in range(1, classes):
            found[:, block] += spread > c / classes
    return found


def agreements(mic: Classes, classes: int) -> npt.NDArray[np.int64]:
    """For each two clients, for how many entries they are of one class: [K, K].

    sum_c O_c O_c^T with O_c [K, M_high] the 0/1 matrix of class c: never an array [K, K, M_high].

    >>> agreements(np.array([[1, 2, 4], [1, 3, 4]], np.uint8), 4).tolist()
    [[3, 2], [2, 3]]
    """
    total = np.zeros((len(mic), len(mic)), np.int64)
    for block in _blocks(mic):
        for c in range(1, classes + 1):
            is_c = (mic[:, block] == c).astype(np.float32)  # whose counts are exact up to 2^24
            total += (is_c @ is_c.T).astype(np.int64)
    return total


def macro_classes(agreements: npt.NDArray[np.int64], compared: int, clusters: int, threshold: float) -> Clusters:
    """At most S clusters of rows, numbered as they came about; rows in none of them are left out.

    sim(a, b) = agreements[a, b] / compared (eq. 10); between a row and a cluster it is the mean of those to its
    members. While there are fewer than S clusters the most similar two of (free row, free row) and (free row, cluster)
    are joined; of equals a cluster comes first, then the lowest rows, then the older cluster (chosen). Clusters never
    merge. Once there are S, each row still free, in order, joins the cluster most similar to it if that similarity
    exceeds the threshold; the clusters count as they stood when there were S of them.

    Counts, not similarities, are summed, so that ties are ties and not a matter of rounding.

    Args:
        agreements: [K, K], the entries for which two clients are of one class.
        compared: how many entries were compared; where there were none, everybody agrees.
        clusters: S.

    >>> counts = np.array([[9, 8, 1, 2], [8, 9, 2, 1], [1, 2, 9, 7], [2, 1, 7, 9]])
    >>> macro_classes(counts, 9, 2, 0.2)
    ((0, 1), (2, 3))
    >>> macro_classes(counts, 9, 1, 0.2)
    ((0, 1),)
    """
    rows = len(agreements)
    between = similarities(agreements, compared)
    free = np.ones(rows, bool)
    members: list[list[int]] = []
    sums: list[Any] = []  # by cluster: how often each row agrees with its members
    pairs = np.triu(np.ones((rows, rows), bool), 1)

    def to_clusters() -> Any:
        means = [total / (len(inside) * max(compared, 1)) for total, inside in zip(sums, members, strict=True)]
        return np.stack(means, axis=1) if means else np.full((rows, 1), -1.0)

    def join(row: int, cluster: int) -> None:
        members[cluster].append(row)
        sums[cluster] = sums[cluster] + _counts(agreements, compared)[row]
        free[row] = False

    while len(members) < clusters:
        near = np.where(free[:, None], to_clusters(), -1.0)
        twos = np.where(pairs & free[:, None] & free, between, -1.0)
        if max(near.max(), twos.max()) < 0:  # nobody is free, or one client is all there is
            break
        if near.max() >= twos.max():
            join(*map(int, np.unravel_index(near.argmax(), near.shape)))
        else:
            first, second = map(int, np.unravel_index(twos.argmax(), twos.shape))
            members.append([])
            sums.append(np.zeros(rows, np.int64))
            join(first, len(members) - 1)
            join(second, len(members) - 1)
    near = to_clusters()
    for row in np.flatnonzero(free):
        if near[row].max() > threshold:
            members[int(near[row].argmax())].append(int(row))
    return tuple(tuple(sorted(inside)) for inside in members)


def cluster_of(clusters: Clusters, rows: int) -> npt.NDArray[np.int64]:
    """Return the number of each row's cluster, [K]; -1 for a row in none.

    >>> cluster_of(((1, 3), (0,)), 4).tolist()
    [1, 0, -1, 0]
    """
    numbers = np.full(rows, -1, np.int64)
    for s, members in enumerate(clusters):
        numbers[list(members)] = s
    return numbers


def similarities(agreements: npt.NDArray[np.int64], compared: int) -> npt.NDArray[np.float64]:
    """sim [K, K], 1 minus the share of entries for which two clients are of different classes (eq. 10).

    1 where nothing was compared: no entry differs.
    """
    return np.asarray(_counts(agreements, compared) / max(compared, 1), dtype=np.float64)


def cluster_weights(mic: Classes, clusters: Sequence[Sequence[int]], classes: int) -> Array:
    """alpha [S, M_high]: how much each cluster of clients counts for each high entry of a layer (eq. 11 to 14).

    mac_s is the class that most of cluster s's members have, the lower one of equals, entry by entry; alpha_s[m] = how
    many of the layer's high entries m' have mac_s[m'] = mac_s[m], divided by (S C) and then by the sum over s (chosen:
    otherwise the weights do not sum to 1 and eq. 15 rescales the model; S C cancels).

    >>> cluster_weights(np.array([[1, 1, 2], [1, 1, 2], [3, 2, 1], [3, 2, 1]], np.uint8), [[0, 1], [2, 3]], 4).tolist()
    [[0.6666666666666666, 0.6666666666666666, 0.5], [0.3333333333333333, 0.3333333333333333, 0.5]]
    """
    alpha = np.empty((len(clusters), mic.shape[1]))
    for s, members in enumerate(clusters):
        macro = _most_frequent(mic[list(members)], classes)
        alpha[s] = np.bincount(macro, minlength=classes + 1)[macro]
    alpha /= alpha.sum(axis=0)
    return alpha


def synergy_mean(rows: np.ndarray, clusters: Sequence[Sequence[int]], alpha: Array) -> Array:
    """sum_s alpha_s w̄_s, w̄_s the mean of cluster s's members: a layer's new high entries, [M_high] (eq. 11, 15).

    >>> synergy_mean(np.array([[1.0], [3.0], [8.0], [8.0]]), [[0, 1], [2, 3]], np.array([[0.25], [0.75]])).tolist()
    [6.5]
    """
    total = np.zeros(rows.shape[1])
    for members, weight in zip(clusters, alpha, strict=True):
        total += weight * (_sum(rows[k] for k in members) / len(members))
    return total


def _counts(agreements: npt.NDArray[np.int64], compared: int) -> npt.NDArray[np.int64]:
    return agreements if compared else np.ones_like(agreements)


def _most_frequent(mic: Classes, classes: int) -> Classes:
    most = np.zeros(mic.shape[1], np.uint32)
    found = np.zeros(mic.shape[1], np.uint8)
    for c in range(1, classes + 1):
        count = np.add.reduce(mic == c, axis=0, dtype=np.uint32)
        found[count > most] = c
        np.maximum(most, count, out=most)
    return found


def _mean_and_spread(rows: np.ndarray) -> tuple[Array, Array]:
    """mu [n] and s = (w - mu)^2 [K, n]."""
    spread = rows.astype(np.float64)
    mean = _sum(spread) / len(rows)
    spread -= mean
    np.square(spread, out=spread)
    return mean, spread


def _sum(rows: np.ndarray | Iterator[np.ndarray]) -> Array:
    # in order, as `checkpoints.mean` sums, whatever the shape: numpy's own sum of [K, 1] goes in pairs
    rows = iter(rows)
    total = np.array(next(rows), dtype=np.float64)
    for row in rows:
        total += row
    return total


def _blocks(rows: np.ndarray) -> Iterator[slice]:
    columns = max(BLOCK // len(rows), 1000)
    return (slice(start, start + columns) for start in range(0, rows.shape[1], columns))
