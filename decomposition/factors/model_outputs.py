"""The outputs of every model of a round, a chunk of samples at a time, and sums of what is taken from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol, Self, TypedDict, TypeVar, Unpack

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...checkpoints import FedscopeError, Weights, weighted_mean
from ...evaluation.device import CPU, Compute
from ...evaluation.evaluator import Evaluator
from ...evaluation.measured_statistics import Measured
from ...evaluation.samples import Samples
from ...evaluation.unlike_buffers import warn_of_averaged
from ..draws.cohort_draws import CohortDraws
from ..draws.divergence import distances

# A multiple of the batch that suits convolutions on a CPU (50), so that none is a remainder.
CHUNK = 500
# Outputs of one chunk in float64, all models: 64 MiB. With many classes or clients the chunk shrinks, so that memory
# does not grow.
CHUNK_NUMBERS = 8 * 2**20
# Outputs in float32 that wait for their chunk where the models were on a device, 1 GiB: each model is sent there once,
# as a rule, and answers as many samples at a time as suit the device.
WAITING = 2**28


class PassSettings(TypedDict, total=False):
    """Settings of one pass over the samples.

    Attributes:
        compute: the device, precision and workers.
        progress: called with (samples done, n) after every chunk.
        chunk: samples at a time, at most.
    """

    compute: Compute
    progress: Callable[[int, int], None] | None
    chunk: int


class SampleSums(Protocol):
    """Sums over samples."""

    def merge(self, more: Self, /) -> Self: ...


S = TypeVar("S", bound=SampleSums)


@dataclass(frozen=True)
class Chunk:
    """Outputs on B samples: `clients` [K, R, B, C], `fma` of w_FMA^r [R, B, C], `recorded` by name [B, C], or [R, B, C]
    where each draw has its own, and the targets `y` [B]. Where samples have positions, as sequences do, every position
    that counts is one of the B; `of` [B] says which of the data set's samples each belongs to."""

    of: npt.NDArray[np.int64]
    clients: Tensor
    fma: Tensor
    recorded: Mapping[str, Tensor]
    y: Tensor


def add_up(
    module: torch.nn.Module,
    samples: Samples,
    cohort: CohortDraws,
    recorded: Mapping[str, Weights | None],
    sums: Callable[[Chunk, Tensor], S],
    *,
    measured: Measured | None = None,
    **how: Unpack[PassSettings],
) -> tuple[S, npt.NDArray[np.float64]]:
    """(the sums of all chunks, ||w_k^r - w_FMA^r|| [K, R]).

    Args:
        recorded: models besides the cohort's, where there are such: one, or one a draw, [R, P].
        sums: of a chunk, with p [K] where its outputs are.
        measured: gives w_FMA^r its running statistics; None: they are averaged as the weights are.
        how: see :class:`PassSettings`.

    Raises:
        FedscopeError: models that do not fit the module, or the draws.
    """
    there = {name: model for name, model in recorded.items() if model is not None}
    for name, model in there.items():
        if has_one_each(model) and len(model) != cohort.count:
            raise FedscopeError(
                f"{len(model)} {name} models are given for the {cohort.count} draws of round {cohort.round}: give one, "
                "or one a draw"
            )
    warn_of_averaged(cohort.draws[0].buffers, cohort.draws[0].layout.names, cohort.p)
    fma = [weighted_mean(draw, cohort.p) for draw in cohort.draws]
    if measured is not None:
        fma = [measured(one) for one in fma]
    p = torch.from_numpy(np.asarray(cohort.p, dtype=np.float64))
    parts = stream_outputs(module, samples, cohort, fma, there, **how)
    total = reduce(lambda a, b: a.merge(b), (sums(part, p.to(part.clients.device)) for part in parts))
    return total, distances(cohort, fma)


def has_one_each(recorded: Weights) -> bool:
    """Tell whether each draw has its own, [R, P], and not one model stands beside all draws."""
    return recorded.parameters.ndim == 2


def stream_outputs(
    module: torch.nn.Module,
    samples: Samples,
    cohort: CohortDraws,
    fma: Sequence[Weights],
    recorded: Mapping[str, Weights],
    **how: Unpack[PassSettings],
) -> Iterator[Chunk]:
    """Yield the outputs of all models chunk by chunk: O(K R chunk C) numbers are held, whatever n.

    Raises:
        FedscopeError: models that do not fit the module.
    """
    named = {f"the {name} model": model for name, model in {"client": cohort.draws[0], **recorded}.items()}
    # Client-major, so that the outputs are [K, R, ...] without a copy.
    clients = [draw.row(k) for k in range(len(cohort.client_ids)) for draw in cohort.draws]
    draws, first = cohort.count, len(clients) + len(fma)
    beside = [row for model in recorded.values() for row in (_rows(model) if has_one_each(model) else [model])]
    models = [*clients, *fma, *beside]
    places: dict[str, int | slice] = {}
    for name, model in recorded.items():
        places[name] = slice(first, first + draws) if has_one_each(model) else first
        first += draws if has_one_each(model) else 1
    for rows, logits in model_outputs(module, samples, models, named, number=cohort.round, **how):
        f, y, of = samples.task.positions(logits, samples.y[rows])
        yield Chunk(
            of=rows.start + of.cpu().numpy(),
            clients=f[: len(clients)].reshape(-1, draws, *f.shape[1:]),
            fma=f[len(clients) : len(clients) + draws],
            recorded={name: f[place] for name, place in places.items()},
            y=y.to(f.device),
        )


def _rows(model: Weights) -> list[Weights]:
    return [model.row(r) for r in range(len(model))]


def model_outputs(
    module: torch.nn.Module,
    samples: Samples,
    models: Sequence[Weights],
    named: Mapping[str, Weights],
    *,
    number: int,
    compute: Compute = CPU,
    progress: Callable[[int, int], None] | None = None,
    chunk: int = CHUNK,
) -> Iterator[tuple[slice, Tensor]]:
    """Yield rows of the samples and the outputs of all models on them, chunk by chunk.

    Args:
        named: those whose layout stands for all, by their names in a sentence.
        number: of the round.

    Raises:
        FedscopeError: models that do not fit the module.
    """
    evaluator = Evaluator(module, samples, compute=compute)
    for name, model in named.items():
        if difference := evaluator.layout.difference(model.layout):
            raise FedscopeError(f"{name} of round {number} does not fit the module: {difference}")
    n, positions = len(samples.y), samples.y[0].numel()  # of a classification 1
    size = max(-(-16 // positions), min(chunk, CHUNK_NUMBERS // (len(models) * samples.classes * positions)))
    at_once = size
    if compute.is_gpu:
        at_once = size * max(1, WAITING // (len(models) * samples.classes * positions * size))
    for first in range(0, n, at_once):
        outputs = evaluator.logits(models, slice(first, min(first + at_once, n)))
        for start in range(first, min(first + at_once, n), size):
            rows = slice(start, min(start + size, n))
            # apart, so that sums are those of a chunk that was computed alone
            yield rows, outputs if at_once == size else outputs[:, start - first : rows.stop - first].contiguous()
            if progress is not None:
                progress(rows.stop, n)
