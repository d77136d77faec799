"""The outputs of every model of a round, a chunk of samples at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...checkpoints import FedscopeError, Weights
from ...landscape.evaluation.compute import Compute
from ...landscape.evaluation.evaluator import Evaluator
from ...landscape.evaluation.samples import Samples
from ..cohort.draws import CohortDraws

# A multiple of the batch that suits convolutions on a CPU (50), so that none is a remainder.
CHUNK = 500
# Outputs of one chunk in float64, all models: 64 MiB. With many classes or clients the chunk shrinks, so that memory
# does not grow.
CHUNK_NUMBERS = 8 * 2**20


@dataclass(frozen=True)
class Chunk:
    """Outputs on B samples: `clients` [K, R, B, C], `fma` of w_FMA^r [R, B, C], `recorded` by name [B, C], and the
    targets `y` [B]. Where samples have positions, as sequences do, every position that counts is one of the B; `of` [B]
    says which of the data set's samples each belongs to."""

    of: npt.NDArray[np.int64]
    clients: Tensor
    fma: Tensor
    recorded: Mapping[str, Tensor]
    y: Tensor


def stream_outputs(
    module: torch.nn.Module,
    samples: Samples,
    cohort: CohortDraws,
    fma: Sequence[Weights],
    recorded: Mapping[str, Weights],
    *,
    compute: Compute,
    progress: Callable[[int, int], None] | None,
    chunk: int,
) -> Iterator[Chunk]:
    """Yield the outputs of all models chunk by chunk: O(K R chunk C) numbers are held, whatever n.

    Raises:
        FedscopeError: models that do not fit the module.
    """
    evaluator = Evaluator(module, samples, compute=compute)
    for name, w in {"client": cohort.draws[0], **recorded}.items():
        difference = evaluator.layout.difference(w.layout)
        if difference is not None:
            raise FedscopeError(f"the {name} model of round {cohort.round} does not fit the module: {difference}")
    # Client-major, so that the outputs are [K, R, ...] without a copy.
    clients = [draw.row(k) for k in range(len(cohort.client_ids)) for draw in cohort.draws]
    models = [*clients, *fma, *recorded.values()]
    n, draws, task = len(samples.y), cohort.count, samples.task
    positions = samples.y[0].numel()  # of a classification 1
    size = max(-(-16 // positions), min(chunk, CHUNK_NUMBERS // (len(models) * samples.classes * positions)))
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        f, y, of = task.positions(evaluator.logits(models, rows), samples.y[rows])
        yield Chunk(
            of=start + of.cpu().numpy(),
            clients=f[: len(clients)].reshape(-1, draws, *f.shape[1:]),
            fma=f[len(clients) : len(clients) + draws],
            recorded=dict(zip(recorded, f[len(clients) + draws :], strict=True)),
            y=y.to(f.device),
        )
        if progress is not None:
            progress(rows.stop, n)
