"""A subset of everybody's data in which every client keeps its share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...checkpoints import FedscopeError, Partition
from ..cohort.membership import Members, membership_train


def by_client(clients: Sequence[np.ndarray], count: int, seed: int = 0) -> np.ndarray:
    """Indices of about ``count`` of all clients' samples, ascending: a seeded draw with the clients in proportion.

    Client k gives floor(count n_k / n) of its n_k samples, and those with the largest remainders one more. Where data
    sets overlap a sample counts once, so there may be fewer. All of them where ``count`` is n or more.

    Args:
        clients: each client's indices into the train split.

    Raises:
        FedscopeError: ``count`` < 1.

    >>> rows = by_client([np.arange(60), np.arange(60, 90), np.arange(90, 100)], 10)
    >>> np.histogram(rows, [0, 60, 90, 100])[0].tolist()
    [6, 3, 1]
    """
    if count < 1:
        raise FedscopeError(f"a kernel over {count} samples has no entry; take at least 1 (--kernel-samples 1)")
    sizes = np.array([len(own) for own in clients])
    if count >= sizes.sum():
        return np.unique(np.concatenate(clients))
    # in whole numbers, so that equal remainders are equal
    quota, remainder = np.divmod(count * sizes, sizes.sum())
    quota[np.argsort(-remainder, kind="stable")[: count - quota.sum()]] += 1
    draw = np.random.default_rng(seed)
    chosen = [draw.choice(own, size, replace=False) for own, size in zip(clients, quota, strict=True)]
    return np.unique(np.concatenate(chosen))


def refuse_outside(partition: Partition, n: int, run: str, data: str) -> None:
    """Refuse a partition that cannot be one of a train split of ``n`` samples.

    Raises:
        FedscopeError: a client holds a sample that is not there.

    >>> refuse_outside(Partition((np.array([0, 7]),), None, np.zeros((1, 2), np.int64)), 8, "runs/a", "digits")
    """
    for client, own in enumerate(partition.clients):
        if (last := int(np.max(own, initial=-1))) >= n:
            raise FedscopeError(
                f"client {client} of {run} holds sample {last:,}, but the train split of {data} has {n:,} samples; "
                "give with --data what the run was trained on"
            )


def kernel_rows(
    partition: Partition | None, client_ids: np.ndarray, count: int, seed: int, round: int
) -> tuple[np.ndarray, Members]:
    """The samples of a round's kernel, by their places in the train split [n], and whose they are, bool [C, n].

    Args:
        client_ids: the cohort's, [C].
        count, seed: as for :func:`by_client`.
        round: its number, for the sentence.

    Raises:
        FedscopeError: no partition; a client of the cohort without a sample among them (says how many it takes).
    """
    if partition is None:
        raise FedscopeError(f"the kernel of round {round} needs to know whose samples are whose; give a partition")
    rows = by_client(partition.clients, count, seed)
    members = membership_train(partition, client_ids, rows)
    sizes = [len(partition.clients[client]) for client in client_ids]
    for client, size, own in zip(client_ids, sizes, members, strict=True):
        if not own.any():
            total = sum(len(one) for one in partition.clients)
            raise FedscopeError(
                f"client {client} of round {round} holds {size:,} of {total:,} samples and has none among the "
                f"{len(rows):,} of the kernel; give --kernel-samples {-(-total // max(1, min(sizes)))} or more"
            )
    return rows, members
