"""m_k(x, y): which samples count as a client's own; and a subset in which every client keeps its share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError, Partition

if TYPE_CHECKING:
    from ...evaluation.samples import Samples

Members = npt.NDArray[np.bool_]


def members_of(partition: Partition, client_ids: npt.NDArray[np.int64], samples: Samples) -> Members | None:
    """m_k(x, y) of samples: by who trained on them, of the test split by the classes that clients trained on; bool
    [K, n], None where nothing splits these."""
    if samples.split == "train":
        return membership_train(partition, client_ids, samples.indices)
    if not samples.task.has_classes:
        return None
    y = samples.y.numpy()
    return membership_labels(of_classes(partition.label_counts, int(y.max()) + 1), client_ids, y)


def of_classes(label_counts: npt.NDArray[np.int64], classes: int) -> npt.NDArray[np.int64]:
    """Counts [N, C] with a column for each of at least so many classes: those of the last ones are 0.

    Who counts the training labels may know of fewer classes than the test data have, or a model's outputs; columns
    beyond them stay where they count something.

    >>> of_classes(np.array([[3, 1]]), 4).tolist(), of_classes(np.array([[3, 1, 0]]), 2).tolist()
    ([[3, 1, 0, 0]], [[3, 1]])
    """
    counts = np.asarray(label_counts)
    beyond = counts[:, classes:]
    if beyond.size and not beyond.any():
        return counts[:, :classes]
    return np.pad(counts, ((0, 0), (0, max(0, classes - counts.shape[1]))))


def indices_held(partition: Partition, client_ids: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
    """Return the training samples that these clients hold, by default all clients, ascending, each once.

    >>> from types import SimpleNamespace
    >>> partition = SimpleNamespace(clients=(np.array([0, 2]), np.array([1]), np.array([2, 3])))
    >>> indices_held(partition, np.array([2, 0])).tolist(), len(indices_held(partition))
    ([0, 2, 3], 4)
    """
    clients = partition.clients if client_ids is None else [partition.clients[k] for k in np.unique(client_ids)]
    return np.unique(np.concatenate(clients))


def indices_of(partition: Partition, client: int) -> npt.NDArray[np.int64]:
    """Return the training samples that a client holds, in their order, each once: measures take a sample that it drew
    with replacement once, as m_k(x, y) is no number of times.

    >>> from types import SimpleNamespace
    >>> indices_of(SimpleNamespace(clients=(np.array([4, 1, 4, 2]),)), 0).tolist()
    [4, 1, 2]
    """
    rows = partition.clients[client]
    first = np.unique(rows, return_index=True)[1]
    # a copy in either case: torch takes no array that cannot be written to
    return rows.copy() if len(first) == len(rows) else rows[np.sort(first)]


def indices_set_aside(partition: Partition) -> npt.NDArray[np.int64]:
    """Return the samples that clients keep as their test parts, ascending: with ``data.pool`` the whole test split.

    >>> from types import SimpleNamespace
    >>> indices_set_aside(SimpleNamespace(test=(np.array([4, 7]), np.array([1])))).tolist()
    [1, 4, 7]
    """
    return np.sort(np.concatenate(partition.test or [np.array([], np.int64)]))


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


def kernel_rows(
    partition: Partition | None, client_ids: np.ndarray, count: int, seed: int, round: int
) -> tuple[np.ndarray, Members]:
    """Return the samples of a round's kernel, by their places in the train split [n], and whose they are, bool [C, n].

    Args:
        client_ids: the cohort's, [C].
        count, seed: as for :func:`by_client`.
        round: its number, for the sentence.

    Raises:
        FedscopeError: no partition; a client of the cohort without a sample among them (says how many it takes), or
            without any.
    """
    if partition is None:
        raise FedscopeError(f"the kernel of round {round} needs to know whose samples are whose; give a partition")
    rows = by_client(partition.clients, count, seed)
    members = membership_train(partition, client_ids, rows)
    sizes = [len(partition.clients[client]) for client in client_ids]
    for client, size, own in zip(client_ids, sizes, members, strict=True):
        if not own.any():
            total = sum(len(one) for one in partition.clients)
            if not size:
                raise FedscopeError(
                    f"client {client} of round {round} holds none of {total:,} samples, so it has none in a kernel; "
                    "give another round, as in --rounds 1"
                )
            least = min(size for size in sizes if size)
            raise FedscopeError(
                f"client {client} of round {round} holds {size:,} of {total:,} samples and has none among the "
                f"{len(rows):,} of the kernel; give --kernel-samples {-(-total // least)} or more"
            )
    return rows, members


def membership_train(
    partition: Partition, client_ids: npt.NDArray[np.int64], indices: npt.NDArray[np.int64]
) -> Members:
    """m_k(x, y) = 1[(x, y) in D_k] for training samples: bool [K, n].

    `client_ids` [K] names the clients of the cohort, `indices` [n] the samples by their position in the train split.
    Clients may overlap, and a sample may belong to nobody of the cohort. Raises FedscopeError for a client that the
    partition does not have.

    >>> from types import SimpleNamespace
    >>> partition = SimpleNamespace(clients=(np.array([0, 2]), np.array([1])))
    >>> membership_train(partition, np.array([1, 0]), np.array([2, 1, 3])).astype(int).tolist()
    [[0, 1, 0], [1, 0, 0]]
    """
    members = np.zeros((len(client_ids), len(indices)), dtype=np.bool_)
    top = int(indices.max(initial=-1))
    for row, client in enumerate(_check_clients(client_ids, len(partition.clients))):
        held = partition.clients[client]
        # A look-up table instead of np.isin: no sort a client, so 100 clients on 50,000 samples are a few milliseconds.
        mine = np.zeros(top + 1, dtype=np.bool_)
        mine[held[held <= top]] = True
        members[row] = mine[indices]
    return members


def membership_labels(
    label_counts: npt.NDArray[np.int64], client_ids: npt.NDArray[np.int64], y: npt.NDArray[np.int64]
) -> Members | None:
    """m_k(x, y) = 1[client k holds training samples of class y]: bool [K, n], for samples that are in nobody's data
    (the test split).

    `label_counts` [N, classes] counts every client's labels, `y` [n] are the samples' classes, below 0 where they are
    ignored, which are nobody's. None when every client
    has every label that occurs in `y`: with IID data, with a skew of the domain only, or of a task without classes
    (`label_counts` [N, 1]) there is nothing to split.
    Raises FedscopeError for a client that `label_counts` does not have.

    >>> membership_labels(np.array([[5, 0], [1, 9]]), np.array([0, 1]), np.array([0, 1, 1])).astype(int).tolist()
    [[1, 0, 0], [1, 1, 1]]
    >>> membership_labels(np.array([[5, 3], [1, 9]]), np.array([0, 1]), np.array([0, 1, 1])) is None
    True
    """
    if label_counts.shape[1] == 1:
        return None
    has = label_counts[_check_clients(client_ids, len(label_counts))] > 0
    there = y >= 0
    members: Members = has[:, np.where(there, y, 0)] & there
    return None if members[:, there].all() else members


def _check_clients(client_ids: npt.NDArray[np.int64], count: int) -> list[int]:
    for client in client_ids:
        if not 0 <= client < count:
            raise FedscopeError(
                f"client {client} is not in the partition, which has clients 0 to {count - 1}: take the partition of "
                "the same run"
            )
    return [int(client) for client in client_ids]
