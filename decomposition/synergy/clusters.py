"""MAC, FedSA's clusters of clients: Wang et al., "The Key of Parameter Skew in Federated Learning", arXiv 2024."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Clusters = tuple[tuple[int, ...], ...]


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
        known = [total / (len(own) * max(compared, 1)) for total, own in zip(sums, members, strict=True)]
        return np.stack(known, axis=1) if known else np.full((rows, 1), -1.0)

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
    return tuple(tuple(sorted(own)) for own in members)


def similarities(agreements: npt.NDArray[np.int64], compared: int) -> npt.NDArray[np.float64]:
    """sim [K, K], 1 minus the share of entries for which two clients are of different classes (eq. 10).

    1 where nothing was compared: no entry differs.
    """
    return np.asarray(_counts(agreements, compared) / max(compared, 1), dtype=np.float64)


def _counts(agreements: npt.NDArray[np.int64], compared: int) -> npt.NDArray[np.int64]:
    return agreements if compared else np.ones_like(agreements)
