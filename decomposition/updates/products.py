"""Products of clients' updates, streamed from disk."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...checkpoints import Round, read_columns

Array = npt.NDArray[np.float64]


def update_products(round_: Round, progress: Callable[[int, int], None] | None = None) -> Array:
    """⟨Δ_i, Δ_j⟩ of a recorded round, [C+1, C+1] float64, with Δ_i = w_i − start [P] and Δ_C = Σ_i p_i Δ_i.

    Every client is read once, in blocks of columns, and nothing of size C × P is held. Differences are taken before
    they are multiplied, both in float64: the difference of two float32 numbers is exact there, so that what is left is
    the rounding of sums, also after one small step. The mean update is a row of its own, because
    Σ_ij p_i p_j ⟨Δ_i, Δ_j⟩ would lose its digits just where the updates cancel.

    Args:
        progress: called with how many of the P parameters are done.

    Raises:
        FedscopeError: the round has no clients, or no start.
    """
    start, p = round_.read("start").parameters, round_.weights
    total = np.zeros((len(p) + 1, len(p) + 1))
    with np.errstate(over="ignore", invalid="ignore"):  # of clients that diverged; they stay NaN or infinite
        for block in read_columns(round_):
            moved = np.empty((len(p) + 1, block.values.shape[1]))
            np.subtract(block.values, start[block.where], out=moved[:-1], dtype=np.float64)
            np.matmul(p, moved[:-1], out=moved[-1])
            total += moved @ moved.T
            if progress is not None:
                progress(block.where.stop, len(start))
    return total
