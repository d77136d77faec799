"""Means of the last checkpoints of one training, of every window and weighting, formed in one pass over the bytes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from tempfile import gettempdir
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits

from ...checkpoints import (
    ColumnChunk,
    FedscopeError,
    Round,
    TemporaryMatrix,
    Weights,
    as_array,
    as_disk_matrix,
    read_chunks,
    recorded_matrix,
    weighted_mean,
)
from ...checkpoints.io.errors import format_size
from ...evaluation.device import Compute, run_in_workers
from ...evaluation.samples import Samples
from ...training.local.cohort_storage import put_aside
from ...training.methods.shared.checkpoint_weights import checkpoint_weights
from ..matrix.losses import losses_at
from .checkpoint_result import NEWEST, CheckpointMean
from .weightings import Weighting

#: numbers of all checkpoints in a chunk, 2 MiB of float32: with its means it stays in a core's cache
NUMBERS = 2**19


@dataclass(frozen=True, eq=False)
class Average:
    """A mean of checkpoints.

    Attributes:
        window: how many of the newest are in it; weights: how these weigh, in a word.
        shares: of all checkpoints [C], 0 of those that are not in it; they sum to 1.
    """

    window: int
    weights: str
    shares: npt.NDArray[np.float64]


def averages_of(p: np.ndarray, windows: Sequence[int], weightings: Sequence[Weighting]) -> list[Average]:
    """Return the newest checkpoint, and a mean for every weighting and window.

    Of the last n checkpoints with p_k > 0, and the weights g_k of their age, the shares are g_k p_k / Σ g_k p_k, those
    of the server ``checkpoints``.

    Args:
        p: the checkpoints' recorded weights [C], the newest last, as a round has them.
        windows: at most as long as there are checkpoints.

    >>> made = averages_of(np.full(3, 1 / 3), [2], [Weighting("linear")])
    >>> [(one.window, one.weights, one.shares.round(3).tolist()) for one in made]
    [(1, 'newest', [0.0, 0.0, 1.0]), (2, 'linear', [0.0, 0.333, 0.667])]
    """
    order = np.flatnonzero(p)
    made = [Average(1, NEWEST, _shares(len(p), order[-1:], np.ones(1)))]
    for weighting in weightings:
        for window in windows:
            own = order[-window:]
            weights = checkpoint_weights(weighting.shape, window, weighting.beta) * p[own]
            made.append(Average(window, str(weighting), _shares(len(p), own, weights / weights.sum())))
    return made


def _shares(count: int, places: np.ndarray, weights: np.ndarray) -> npt.NDArray[np.float64]:
    shares = np.zeros(count)
    shares[places] = weights
    return shares


def mean_columns(
    values: np.ndarray, shares: npt.NDArray[np.float64], room: npt.NDArray[np.float64] | None = None
) -> np.ndarray:
    """Compute some columns of K means, [K, n], from those of the checkpoints, [C, n]: shares [K, C] times values,
    summed in float64 and rounded once. A checkpoint with the share 0 has no part, even where it is not finite.

    Args:
        room: at least (C + K) n numbers that are written to; new ones by default.

    >>> values = np.array([[np.inf], [1.0], [3.0]])
    >>> mean_columns(values, np.array([[0, 0.5, 0.5], [0.5, 0, 0.5]])).tolist()
    [[2.0], [inf]]
    """
    with np.errstate(over="ignore", invalid="ignore"):  # of checkpoints that diverged
        n = values.shape[1]
        flat = np.empty(sum(shares.shape) * n) if room is None else room[: sum(shares.shape) * n]
        wide, means = flat[: values.size].reshape(values.shape), flat[values.size :].reshape(len(shares), n)
        np.copyto(wide, values)
        np.matmul(shares, wide, out=means)
        if not np.isfinite(means).all():  # 0 · ∞ is no number
            means = np.stack([own[own != 0] @ wide[own != 0] for own in shares])
        return means.astype(values.dtype)


class MeanModels(Sequence[Weights]):
    """Models [K, P], of which each is read when it is asked for."""

    def __init__(self, models: Weights) -> None:
        self._models = models

    def __len__(self) -> int:
        return len(self._models)

    def __getitem__(self, k: Any) -> Any:
        return self._models.row(k)


def mean_models(
    round_: Round, averages: Sequence[Average], progress: Callable[[int, int], None] | None = None
) -> MeanModels:
    """Form all means of a round's checkpoints, which are read once.

    Means of more than half a GB lie in a file without a name in the folder for temporary files. Buffers are averaged
    alike; whole numbers are those of the checkpoint with the greatest share.

    Args:
        progress: called with (numbers done, of).

    Raises:
        FedscopeError: no room for the means.
    """
    checkpoints = recorded_matrix(round_)
    layout = checkpoints.layout
    means = _room(len(averages), layout.size, layout.dtype)
    aside = as_disk_matrix(means)
    shares = np.stack([one.shares for one in averages])

    columns = max(1, NUMBERS // len(checkpoints))

    def room() -> tuple[np.ndarray, np.ndarray]:
        # written again and again, because the system clears new memory first
        return np.empty(len(checkpoints) * columns, layout.dtype), np.empty(sum(shares.shape) * columns)

    def form(chunk: ColumnChunk, context: tuple[np.ndarray, np.ndarray], stop: Event) -> int:
        values = mean_columns(chunk.read(context[0]), shares, context[1])
        if isinstance(aside, TemporaryMatrix):
            aside.put(chunk.where, values)
        else:
            means[:, chunk.where] = values
        return int(chunk.where.stop)

    # a thread a core, each with products of its own: those of several threads wait for each other where cores are busy
    with threadpool_limits(1):
        for done in run_in_workers(form, read_chunks(round_, columns), make=room):
            if progress is not None:
                progress(done, layout.size)
    only_buffers = Weights(layout, np.empty((len(checkpoints), 0), layout.dtype), checkpoints.buffers)
    averaged = [weighted_mean(only_buffers, own, integer_from=int(own.argmax())).buffers for own in shares]
    names = [entry.name for entry in layout.buffers]
    return MeanModels(Weights(layout, means, {name: np.stack([own[name] for own in averaged]) for name in names}))


def _room(count: int, size: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Return an empty matrix [count, size], in memory or on the disk.

    Raises:
        FedscopeError: there is no room on the disk.
    """
    if not put_aside(count, size, dtype):
        return np.empty((count, size), dtype)
    folder, needed = gettempdir(), count * size * dtype.itemsize
    if (free := shutil.disk_usage(folder).free) < needed:
        raise FedscopeError(
            f"{count} means of checkpoints take {format_size(needed)} in {folder}, which has {format_size(free)} left; "
            "give fewer --windows or --weights, or another folder for temporary files (TMPDIR)"
        )
    return as_array(TemporaryMatrix(folder, (count, size), dtype, "means of checkpoints"))


def measure_means(
    module: torch.nn.Module,
    samples: Samples,
    round_: Round,
    averages: Sequence[Average],
    compute: Compute,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[CheckpointMean, ...]:
    """Measure the loss and error of every mean, and what it gains on the newest checkpoint on the same samples.

    Args:
        averages: the newest checkpoint first.
        progress: called with (done, of): half of it for the means, half for the samples.
    """
    models = mean_models(round_, averages, lambda done, of: progress(done, 2 * of))
    pairs = [(k, 0, 0) for k in range(len(models))]
    _, means, less = losses_at(
        module,
        samples,
        models,
        None,
        pairs,
        number=round_.number,
        compute=compute,
        progress=lambda done, of: progress(of + done, 2 * of),
    )
    rows = []
    for k, one in enumerate(averages):
        gained = (-less.loss[k], less.loss_stderr[k], -less.error[k], less.error_stderr[k])
        numbers = float(means.loss[k, 0]), float(means.error[k, 0])
        rows.append(CheckpointMean(one.window, one.weights, *numbers, *map(_number, gained)))
    return tuple(rows)


def _number(value: float) -> float | None:
    """Return a number; None where there is none, and 0 without a sign."""
    return None if np.isnan(value) else float(value) + 0.0
