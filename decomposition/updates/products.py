"""Products of clients' updates, streamed from disk."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import numpy as np
import numpy.typing as npt
import torch

from ...checkpoints import Piece, Round, read_pieces
from ...landscape.evaluation.compute import CPU, Compute
from ...landscape.evaluation.workers import run_in_workers

Array = npt.NDArray[np.float64]

# Numbers of all clients at a time, 4 MiB of float32 and 8 of float64 a worker.
NUMBERS = 2**20


def update_products(
    round_: Round,
    progress: Callable[[int, int], None] | None = None,
    *,
    compute: Compute = CPU,
    numbers: int = NUMBERS,
) -> Array:
    """⟨Δ_i, Δ_j⟩ of a recorded round, [C+1, C+1] float64, with Δ_i = w_i − start [P] and Δ_C = Σ_i p_i Δ_i.

    Every client is read once, in blocks of columns, and nothing of size C × P is held. Differences are taken before
    they are multiplied, both in float64: the difference of two float32 numbers is exact there, so that what is left is
    the rounding of sums, also after one small step. The mean update is a row of its own, because
    Σ_ij p_i p_j ⟨Δ_i, Δ_j⟩ would lose its digits just where the updates cancel. Of clients that diverged products stay
    NaN or infinite.

    Args:
        progress: called with how many of the P parameters are done.
        compute: of which the workers count; products are made on the CPU.
        numbers: of all clients at a time.

    Raises:
        FedscopeError: the round has no clients, or no start.
    """
    start, p = torch.from_numpy(round_.read("start").parameters), torch.from_numpy(round_.weights)
    clients = len(p)
    columns = max(1, numbers // max(1, clients))

    def rooms() -> tuple[np.ndarray, torch.Tensor]:
        return np.empty(clients * columns, round_.layout.dtype), torch.empty(clients + 1, columns, dtype=torch.float64)

    def task(piece: Piece, rooms: tuple[np.ndarray, torch.Tensor], _: Event) -> tuple[int, Array]:
        moved = rooms[1][:, : piece.count]
        moved[:-1] = torch.from_numpy(piece.read(rooms[0]))
        moved[:-1] -= start[piece.where]
        torch.mv(moved[:-1].T, p, out=moved[-1])
        products: Array = (moved @ moved.T).numpy()
        return piece.where.stop, products

    total = np.zeros((clients + 1, clients + 1))
    for done, products in run_in_workers(task, read_pieces(round_, columns), make=rooms, workers=compute.workers):
        total += products
        if progress is not None:
            progress(done, len(start))
    return total
