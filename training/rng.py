"""Addressed randomness: every draw comes from a generator keyed by what it is for, never from a shared stream.

Because a draw's key names its purpose, round, client and draw, one client's local training can be replayed alone, a
resumed run equals an uninterrupted one, runs that differ in method meet the same cohorts, and the number of workers
changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

if TYPE_CHECKING:
    import torch

# Positions are part of the key, so they are part of every recorded run: append, never reorder.
Purpose = Literal[
    "partition",
    "client-test",
    "cohort",
    "model",
    "batches",
    "augment",
    "dropout",
    "evaluation",
    "personal",
    "generator",
    "share",
    "hold-out",
]

_PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
#: Added to a task's draw. Mini-batch orders depend on the draw, and replays count it up from 1; dropout's other passes
#: lie a million apart (see ``TrainableModel.begin``). A billion meets neither.
BESIDE = 1_000_000_000


def generator(seed: int, purpose: Purpose, *, round: int = 0, client: int = 0, draw: int = 1) -> np.random.Generator:
    """Return the NumPy generator at the address (seed, purpose, round, client, draw).

    Args:
        seed: ``data.seed`` for partitions and cohorts, ``run.seed`` for everything else; not negative.
        purpose: what the numbers are for.
        round: the round, from 1 (0 for what belongs to no round).
        client: the client's id (0 for what belongs to no client).
        draw: 1 for the recorded training, 2, 3, ... for its replays.

    >>> a = generator(0, "batches", round=3, client=7).permutation(5)
    >>> b = generator(0, "batches", round=3, client=7).permutation(5)
    >>> bool((a == b).all())
    True
    """
    address = (seed, _PURPOSES.index(purpose), round, client, draw)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(address)))


def torch_generator(seed: int, purpose: Purpose, *, round: int = 0, client: int = 0, draw: int = 1) -> torch.Generator:
    """Return the torch generator at the same address as :func:`generator`, for draws that must happen on tensors; the
    processor's, since a device's own stream is another one."""
    import torch

    key = int(generator(seed, purpose, round=round, client=client, draw=draw).integers(0, 2**63 - 1))
    return torch.Generator().manual_seed(key)


def cohort_size(clients: int, participation: float) -> int:
    """max(1, round(participation N))."""
    return max(1, round(participation * clients))


def draw_cohort(seed: int, round: int, clients: int, participation: float) -> np.ndarray:
    """Return the ids of round t's cohort, ascending; the same for every method and run seed.

    >>> draw_cohort(0, 1, 50, 0.1).tolist() == draw_cohort(0, 1, 50, 0.1).tolist()
    True
    """
    picked = generator(seed, "cohort", round=round).choice(clients, cohort_size(clients, participation), replace=False)
    return np.sort(picked).astype(np.int64)
