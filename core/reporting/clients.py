"""A run's clients: who they are, how often they took part, and how they trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..checkpoints import FedscopeError, Round, Run

#: classes that are named of a client
NAMED = 3


@dataclass(frozen=True)
class Client:
    """A line of the table.

    Attributes:
        id: its number; rounds: how many it took part in; last: the last of them.
        samples: n_k; None where the run does not say it.
        weight: its mean p over its rounds.
        loss: its mean training loss in its last round; None where the run does not say it.
        classes: its most frequent classes with their shares of its samples.
    """

    id: int
    rounds: int
    last: int
    samples: int | None
    weight: float
    loss: float | None
    classes: tuple[tuple[int, float], ...] = ()


def readable(run: Run) -> list[Round]:
    """Return the rounds whose files say who took part; what is wrong with the others is the check's to say."""
    found = []
    for number in run.rounds:
        round_ = run.round(number)
        try:
            round_.client_ids  # noqa: B018 (read now)
        except FedscopeError:
            continue
        found.append(round_)
    return found


def clients_of(run: Run) -> Sequence[Client]:
    """Those that took part, by their numbers. Reads the rounds' columns, no models."""
    rows: dict[int, list[tuple[int, int | None, float, float | None]]] = {}
    for round_ in readable(run):
        count = len(round_.client_ids)
        samples = round_.client_samples.tolist() if round_.has("client_samples") else [None] * count
        loss = round_.client_loss.tolist() if round_.has("client_loss") else [None] * count
        for k, *row in zip(round_.client_ids.tolist(), samples, round_.weights.tolist(), loss, strict=True):
            rows.setdefault(k, []).append((round_.number, *row))
    return [
        Client(
            id=k,
            rounds=len(own),
            last=own[-1][0],
            samples=own[-1][1],
            weight=float(np.mean([p for _, _, p, _ in own])),
            loss=own[-1][3],
            classes=_classes(run, k),
        )
        for k, own in sorted(rows.items())
    ]


def _classes(run: Run, client: int) -> tuple[tuple[int, float], ...]:
    if run.partition is None or client >= len(run.partition.label_counts):
        return ()
    if run.partition.label_counts.shape[1] == 1:  # of a task without classes
        return ()
    counts = run.partition.label_counts[client]
    total = int(counts.sum())
    if not total:
        return ()
    order = np.argsort(-counts, kind="stable")[:NAMED]
    return tuple((int(c), float(counts[c] / total)) for c in order if counts[c])
