"""Inner products of all models with each other, streamed, in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError
from ...landscape.evaluation.compute import CPU, Compute
from ...landscape.evaluation.workers import run_in_workers
from .blocks import Block, read_blocks
from .points import Models

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[np.float64]

# Numbers of all models in a block, 16 MiB of float32; every worker has one.
NUMBERS = 4 * 2**20
# Numbers of all models that are brought to float64 at a time, 8 MiB a worker: fewer stay nearer to the processor, but
# a worker waits for Python's lock between short steps.
PART = 2**20
# Rows of one product: of those below the diagonal most are left out.
TILE = 128


def block_products(
    models: Models, layers: Sequence[str], *, compute: Compute = CPU, numbers: int = NUMBERS
) -> Iterator[tuple[str, int, Array]]:
    """(w_i − r)·(w_j − r) over the columns of block after block: the layer, how many columns, and [n, n].

    The common r is subtracted before anything is multiplied, and differences and products are float64: from round to
    round models move further than clients are apart, and in float32 short distances drown in the products of long ones
    (at the end of 60 rounds on the digits 1e-3 of them was wrong). Products are made by workers, one core each, and
    come in the layers' order, so the sums do not depend on how many there are.

    Args:
        compute: where they are made, in float64.

    Raises:
        FedscopeError: parameters that are not finite; names the model.
    """
    if not layers:
        return
    import torch

    n, where, dtype = len(models.points), torch.device(compute.device), models.layout.dtype
    columns = max(1, numbers // n)

    def rooms() -> tuple[np.ndarray, torch.Tensor]:
        part = torch.empty(n, min(columns, max(1, PART // n)), dtype=torch.float64, device=where)
        return np.empty(n * columns, dtype), part

    def task(block: Block, rooms: tuple[np.ndarray, torch.Tensor], _: Event) -> tuple[str, int, Array]:
        return block.layer, block.count, _products(models, block, *rooms)

    blocks = read_blocks(models, layers, columns)
    with closing(blocks), closing(run_in_workers(task, blocks, make=rooms, workers=compute.workers)) as results:
        yield from results


def _products(models: Models, block: Block, buffer: np.ndarray, room: torch.Tensor) -> Array:
    """The upper triangle and some numbers below it; ``room`` [n, columns] is written to."""
    import torch

    n, step = room.shape
    rows = block.read(buffer)
    reference = torch.from_numpy(block.reference.read()[0]).to(room)
    sums = torch.zeros(n, n, dtype=torch.float64, device=room.device)
    for start in range(0, len(reference), step):
        part = slice(start, start + step)
        x, at = room[:, : len(reference[part])], 0
        for values in rows:
            x[at : at + len(values)] = torch.from_numpy(values[:, part])
            at += len(values)
        x -= reference[part]
        for i in range(0, n, TILE):
            sums[i : i + TILE, i:].addmm_(x[i : i + TILE], x[i:].T)
    if not sums.diagonal().isfinite().all():
        _refuse_not_finite(models, block, rows)
    made: Array = sums.cpu().numpy()
    return made


def _refuse_not_finite(models: Models, block: Block, rows: list[np.ndarray]) -> None:
    broken = np.concatenate([~np.isfinite(values).all(axis=1) for values in (*rows, block.reference.read())])
    if not broken.any():
        raise FedscopeError(
            f"squared distances between the models of {models.rounds[0].run_label} are greater than the greatest "
            f"float64 (in {block.layer}); ask for other rounds"
        )
    raise FedscopeError(
        f"{models.address(int(broken.argmax()))} has parameters that are not finite (in {block.layer}), so it has no "
        "distance to other models; ask for other rounds"
    )
