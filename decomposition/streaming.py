"""The outputs of every model of a round, a chunk of samples at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..checkpoints import FedscopeError, Weights
from ..landscape.evaluator import Evaluator
from ..landscape.samples import Samples
from .draws import CohortDraws

# A multiple of the batch that suits convolutions on a CPU (50), so that none is a remainder.
CHUNK = 500
# Outputs of one chunk in float64, all models: 64 MiB. With many classes or clients the chunk shrinks, so that memory
# does not grow.
CHUNK_NUMBERS = 8 * 2**20


@dataclass(frozen=True)
class Chunk:
    """Logits on B samples, `rows` of all: `clients` [K, R, B, C], `fma` of w_FMA^r [R, B, C], `recorded` by name
    [B, C], and the labels `y` [B]."""

    rows: slice
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
    device: str,
    precision: str,
    workers: int | None,
    progress: Callable[[int, int], None] | None,
    chunk: int,
) -> Iterator[Chunk]:
    """Yield the outputs of all models chunk by chunk: O(K R chunk C) numbers are held, whatever n.

    Raises:
        FedscopeError: models that do not fit the module.
    """
    evaluator = Evaluator(module, samples, device=device, precision=precision, workers=workers)
    for name, w in {"client": cohort.draws[0], **recorded}.items():
        difference = evaluator.layout.difference(w.layout)
        if difference is not None:
            raise FedscopeError(f"the {name} model of round {cohort.round} does not fit the module: {difference}")
    # Client-major, so that the outputs are [K, R, ...] without a copy.
    clients = [draw.row(k) for k in range(len(cohort.client_ids)) for draw in cohort.draws]
    models = [*clients, *fma, *recorded.values()]
    n, draws = len(samples.y), cohort.count
    size = max(16, min(chunk, CHUNK_NUMBERS // (len(models) * samples.classes)))
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        f = evaluator.logits(models, rows)
        yield Chunk(
            rows=rows,
            clients=f[: len(clients)].reshape(-1, draws, *f.shape[1:]),
            fma=f[len(clients) : len(clients) + draws],
            recorded=dict(zip(recorded, f[len(clients) + draws :], strict=True)),
            y=samples.y[rows].to(f.device),
        )
        if progress is not None:
            progress(rows.stop, n)
