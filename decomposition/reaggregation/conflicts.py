"""How often the clients of a round disagree on the sign of an update."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...checkpoints import Round, Weights, as_disk_matrix, recorded_matrix


def sign_conflict(round_: Round) -> float | None:
    """Compute the share of the parameters which some clients of a round have raised and others lowered.

    Of the parameters that any client has moved; NaN where none has, None where the round's ``start`` was not recorded.
    Clients are read in blocks of columns.
    """
    if "start" not in round_.models:
        return None
    rows = as_disk_matrix(recorded_matrix(round_).parameters)
    assert rows is not None, "the clients of a recorded round are on the disk"
    return conflicts_in(round_.read("start"), rows.blocks())


def conflicts_in(start: Weights, blocks: Iterable[tuple[slice, np.ndarray]]) -> float:
    """Compute the share of moved parameters with updates of both signs, from blocks of columns of the clients.

    Args:
        blocks: where columns lie, and their values [C, n].

    >>> from fedscope.checkpoints import Layout, TensorEntry
    >>> start = Weights(Layout((TensorEntry("w", (4,), "float32", "parameter"),)), np.zeros(4, np.float32), {})
    >>> clients = np.float32([[1, 2, -1, 0], [1, -2, 0, 0]])
    >>> conflicts_in(start, [(slice(0, 4), clients)])  # the last one has not moved
    0.3333333333333333
    """
    both = moved = 0
    for where, values in blocks:
        own = start.parameters[where]
        raised, lowered = (values > own).any(axis=0), (values < own).any(axis=0)
        both += int(np.count_nonzero(raised & lowered))
        moved += int(np.count_nonzero(raised | lowered))
    return both / moved if moved else float("nan")
