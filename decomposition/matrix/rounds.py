"""A recorded round's matrix: its models, whose data are whose, and what is measured where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...checkpoints import Partition, Round, Weights, mean
from ...evaluation.device import CPU, Compute
from ...evaluation.samples import Samples
from ...evaluation.validation import with_outputs
from ...training.data.membership import Members, members_of
from .losses import Means, losses_at
from .result import MERGED, SERVER, TEST, Gain, LossCell, RoundMatrix, neighbours


def round_matrix(
    module: torch.nn.Module,
    samples: Samples,
    test: Samples | None,
    round_: Round,
    partition: Partition,
    *,
    own: Sequence[Weights] | None = None,
    compute: Compute = CPU,
    progress: Any = None,
) -> RoundMatrix:
    """Measure a recorded round's models on every client's own data and on the test split.

    A client's own are the samples of ``samples`` that it trained on; of the test split those of its classes
    (:func:`~fedscope.training.data.membership.members_of`). See
    :func:`~fedscope.decomposition.matrix.losses.losses_at` for the formulas.

    Args:
        samples: in which the clients' own are.
        test: the test split; None where ``samples`` are it, which then are measured once.
        own: the models that the clients use themselves, where these are not those that they sent.
        progress: called with (samples done, of).

    Raises:
        FedscopeError: models that do not fit.
    """
    ids, samples = round_.client_ids, with_outputs(module, samples)
    order = np.asarray(neighbours(partition.counts_of(ids)), np.int64)
    members = members_of(partition, ids[order], samples)
    sent = round_.clients()
    clients = [sent.row(int(k)) if own is None else own[int(k)] for k in order]
    shared = {name: round_.read(name) for name in SERVER if name in round_.models}
    if not shared and round_.own_starts:
        shared[MERGED] = mean(sent)
    models, count = [*clients, *shared.values()], len(clients)
    pairs = [(k, count + s, k) for s in range(len(shared)) for k in range(count)]
    how: dict[str, Any] = {"number": round_.number, "compute": compute}
    done, whole = len(samples), len(samples) + (0 if test is None else len(test))

    def report(before: int) -> Any:
        return None if progress is None else lambda at, _: progress(before + at, whole)

    if test is None:
        everywhere = np.ones((1, len(samples)), np.bool_)
        places: Members = np.vstack([everywhere.repeat(count, 0) if members is None else members, everywhere])
        counts, means, gains = losses_at(module, samples, models, places, pairs, progress=report(0), **how)
    else:
        counts, means, gains = losses_at(
            module, samples, models, members, pairs, places=count, progress=report(0), **how
        )
        more, others, _ = losses_at(module, test, models, None, progress=report(done), **how)
        counts, means = np.concatenate([counts, more]), _beside(means, others)
    weighed = _counts(samples, members, count) if _by_samples(round_, partition) else ((), ())
    numbers = [int(k) for k in ids[order]]
    named = [*(f"client-{k}" for k in numbers), *shared]
    where = [*(f"client-{k}" for k in numbers), TEST]
    return RoundMatrix(
        round=round_.number,
        clients=tuple(numbers),
        deployed="averaged" if "averaged" in shared else "global" if "global" in shared else next(iter(shared), ""),
        cells=tuple(
            LossCell(model, place, int(counts[j]), *_of(means, (i, j)))
            for i, model in enumerate(named)
            for j, place in enumerate(where)
        ),
        gains=tuple(
            Gain(
                numbers[k], float(round_.weights[order[k]]), list(shared)[a - count], int(counts[k]), *_of(gains, (j,))
            )
            for j, (_, a, k) in enumerate(pairs)
        ),
        loss_counts=weighed[0],
        error_counts=weighed[1],
    )


def _by_samples(round_: Round, partition: Partition) -> bool:
    """Check whether p are as the clients' numbers of samples."""
    known = round_.has("client_samples")
    n = round_.client_samples if known else np.array([len(partition.clients[int(k)]) for k in round_.client_ids])
    return bool(np.allclose(n / max(1, n.sum()), round_.weights, rtol=1e-12))


def _counts(samples: Samples, members: Members | None, clients: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return how much the samples of each client count on average, in a mean of losses and of errors; nothing where all
    count alike, 0 of a client without samples."""
    y, found = samples.y.cpu(), []
    mine = np.ones((clients, len(y)), np.bool_) if members is None else members
    for weights in (samples.task.weights(y), samples.task.error_weights(y)):
        if weights is None:
            found.append(())
            continue
        total = mine @ weights.double().numpy()
        found.append(tuple((total / np.maximum(mine.sum(axis=1), 1)).tolist()))
    return found[0], found[1]


def _beside(one: Means, other: Means) -> Means:
    return Means(*(np.hstack([getattr(one, name), getattr(other, name)]) for name in Means.__dataclass_fields__))


def _of(means: Means, at: tuple[int, ...]) -> list[float | None]:
    values = [float(getattr(means, name)[at]) for name in Means.__dataclass_fields__]
    return [None if np.isnan(value) else value for value in values]
