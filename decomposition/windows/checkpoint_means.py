"""Means of the last checkpoints of one training, of every window and weighting, formed in one pass over the bytes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from queue import Empty, SimpleQueue
from tempfile import gettempdir
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits

from ...checkpoints import (
    FedscopeError,
    TemporaryMatrix,
    Weights,
    as_array,
    as_disk_matrix,
    weighted_mean,
)
from ...checkpoints.io.errors import format_size
from ...checkpoints.rounds.disk_matrix import cut
from ...evaluation.device import Compute, run_in_workers
from ...evaluation.samples import Samples
from ...evaluation.unlike_buffers import warn_of_averaged
from ...training.local.cohort_storage import put_aside
from ...training.methods.shared.checkpoint_weights import checkpoint_weights
from ..matrix.losses import losses_at
from .checkpoint_result import NEWEST, CheckpointMean
from .weightings import Weighting

#: numbers of all checkpoints in a block, 8 MiB of float32, so that reading and writing it costs few calls
BLOCK = 2**21
#: numbers of all checkpoints in a step, 1 MiB of float64: with its means it stays near the processor
NUMBERS = 2**17
#: multiplications by 0 for each column that cost less than a product of their own
JOINED = 32


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


class ColumnMeans:
    """K means of C checkpoints, formed some columns at a time.

    They are summed in float64 and rounded once. Means of one window are a product of their own with its checkpoints
    alone: of 40 checkpoints and every window these are two fifths of the multiplications of one product, [K, C] times
    [C, n]. Short windows share a product, because a call costs as much as some multiplications. A checkpoint with the
    share 0 has no part, even where it is not finite.

    Attributes:
        order: which mean each row of the results is: those of one window follow each other.

    Args:
        shares: of the means, [K, C].

    >>> values = np.array([[np.inf], [1.0], [3.0]])
    >>> means = ColumnMeans(np.array([[0, 0.5, 0.5], [0.5, 0, 0.5]]))
    >>> found = np.empty((2, 1))
    >>> means.form(values, found)
    >>> found[np.argsort(means.order)].tolist()
    [[2.0], [inf]]
    """

    def __init__(self, shares: npt.NDArray[np.float64]) -> None:
        used = shares != 0
        first, last = used.argmax(axis=1), shares.shape[1] - used[:, ::-1].argmax(axis=1)
        self.order = np.lexsort((last, first))
        self.shares, self.step = shares[self.order], max(1, NUMBERS // shares.shape[1])
        self._products: list[tuple[slice, slice, npt.NDArray[np.float64]]] = []
        for rows, own in _joined(first[self.order].tolist(), last[self.order].tolist()):
            self._products.append((rows, own, np.ascontiguousarray(self.shares[rows, own])))
        # a mean of all checkpoints is finite only where every one is
        whole = [rows for rows, own, _ in self._products if (own.start, own.stop) == (first.min(), last.max())]
        self._checked = slice(whole[0].stop - 1, whole[0].stop) if whole else slice(None)
        self._wide = np.empty(shares.shape[1] * self.step), np.empty(len(shares) * self.step)

    def copy(self) -> ColumnMeans:
        """Return the same with room of its own, for another thread."""
        made = copy(self)
        made._wide = tuple(map(np.empty_like, self._wide))  # type: ignore[assignment]
        return made

    def form(self, values: np.ndarray, means: np.ndarray) -> None:
        """Form the means [K, n] of columns [C, n], in steps that stay in a core's cache."""
        with np.errstate(over="ignore", invalid="ignore"):  # of checkpoints that diverged
            for begin in range(0, values.shape[1], self.step):
                here = slice(begin, begin + self.step)
                self._form(values[:, here], means[:, here])

    def _form(self, values: np.ndarray, means: np.ndarray) -> None:
        wide = self._wide[0][: values.size].reshape(values.shape)
        sums = self._wide[1][: means.size].reshape(means.shape)
        np.copyto(wide, values)
        for rows, own, shares in self._products:
            np.matmul(shares, wide[own], out=sums[rows])
        if not isfinite(sums[self._checked].sum()):  # 0 · ∞ is no number
            sums = np.stack([own[own != 0] @ wide[own != 0] for own in self.shares])
        np.copyto(means, sums, casting="same_kind")


def _joined(first: Sequence[int], last: Sequence[int]) -> list[tuple[slice, slice]]:
    """Cut rows, the one with the earliest column first, into products: their rows, and the columns in which any has
    shares.

    >>> _joined([0, 0, 30, 36, 36, 39], [40] * 6)
    [(slice(0, 2, None), slice(0, 40, None)), (slice(2, 6, None), slice(30, 40, None))]
    """
    found: list[tuple[slice, slice]] = []
    used = 0
    for span, group in groupby(reversed(list(enumerate(zip(first, last, strict=True)))), lambda one: one[1]):
        rows = [k for k, _ in group]
        here, own = slice(rows[-1], rows[0] + 1), slice(*span)
        area = len(rows) * (own.stop - own.start)
        if found:
            below, columns = found[-1]
            both = slice(min(columns.start, own.start), max(columns.stop, own.stop))
            if (below.stop - here.start) * (both.stop - both.start) - used - area <= JOINED:
                found[-1], used = (slice(here.start, below.stop), both), used + area
                continue
        found.append((here, own))
        used = area
    return found[::-1]


class MeanModels(Sequence[Weights]):
    """Models [K, P], of which each is read when it is asked for.

    Args:
        models: as they lie in memory or on the disk.
        rows: of each model, in ``models``' parameters.
    """

    def __init__(self, models: Weights, rows: np.ndarray) -> None:
        self._models, self._rows = models, rows

    def __len__(self) -> int:
        return len(self._models)

    def __getitem__(self, k: Any) -> Any:
        models = self._models
        buffers = {name: values[k] for name, values in models.buffers.items()}
        return Weights(models.layout, models.parameters[int(self._rows[k])], buffers)


def mean_models(
    checkpoints: Weights,
    averages: Sequence[Average],
    progress: Callable[[int, int], None] | None = None,
    look: Callable[[np.ndarray], None] | None = None,
) -> MeanModels:
    """Form all means of checkpoints [C, P], which are read once.

    Means of more than half a GB lie in a file without a name in the folder for temporary files. Buffers are averaged
    alike; whole numbers are those of the checkpoint with the greatest share.

    Args:
        checkpoints: in memory or on the disk, as of :func:`~fedscope.checkpoints.recorded_matrix`.
        progress: called with (numbers done, of).
        look: called with all columns of the checkpoints, [C, n], in their order.

    Raises:
        FedscopeError: no room for the means; damaged checkpoints.
    """
    layout, count = checkpoints.layout, len(checkpoints)
    advice = "give fewer --windows or --weights, or"
    means = room_for(len(averages), layout.size, layout.dtype, "means of checkpoints", advice)
    aside = as_disk_matrix(means)
    shares = np.stack([one.shares for one in averages])

    def keep(where: slice, values: np.ndarray) -> None:
        if isinstance(aside, TemporaryMatrix):
            aside.put(where, values)
        else:
            means[:, where] = values

    order = form_means(checkpoints, shares, keep, progress, look)
    warn_of_averaged(checkpoints.buffers, layout.names)
    only_buffers = Weights(layout, np.empty((count, 0), layout.dtype), checkpoints.buffers)
    averaged = [weighted_mean(only_buffers, own, integer_from=int(own.argmax())).buffers for own in shares]
    names = [entry.name for entry in layout.buffers]
    buffers = {name: np.stack([own[name] for own in averaged]) for name in names}
    return MeanModels(Weights(layout, means, buffers), np.argsort(order))


def form_means(
    checkpoints: Weights,
    shares: npt.NDArray[np.float64],
    keep: Callable[[slice, np.ndarray], None],
    progress: Callable[[int, int], None] | None = None,
    look: Callable[[np.ndarray], None] | None = None,
) -> npt.NDArray[np.int64]:
    """Form K means of checkpoints [C, P], some columns after others, and hand them on.

    One worker at a time reads, in the order of the columns, while the others form means, which takes more of a core.

    Args:
        shares: of the means, [K, C].
        keep: called in several threads with the place of columns and their means [K, n], which are overwritten later.
        progress: called with (numbers done, of).
        look: called with all columns of the checkpoints, [C, n], in their order.

    Returns:
        which mean each row is that ``keep`` was given.
    """
    layout, made = checkpoints.layout, ColumnMeans(shares)
    columns = max(1, min(layout.size, max(made.step, BLOCK // len(checkpoints))))
    on_disk = as_disk_matrix(checkpoints.parameters)
    free: SimpleQueue[np.ndarray] = SimpleQueue()

    def read_into(size: int) -> np.ndarray:
        # written again and again, because the system clears new memory first
        try:
            return free.get_nowait()[:size]
        except Empty:
            return np.empty(len(checkpoints) * columns, layout.dtype)[:size]

    def room() -> tuple[ColumnMeans, np.ndarray]:
        return made.copy(), np.empty(len(shares) * columns, layout.dtype)

    def form(block: tuple[slice, np.ndarray], context: tuple[ColumnMeans, np.ndarray], stop: Event) -> int:
        where, values = block
        means = context[1][: len(shares) * values.shape[1]].reshape(len(shares), -1)
        context[0].form(values, means)
        if values.base is not None and on_disk is not None:
            free.put(values.base)
        keep(where, means)
        return int(where.stop)

    def blocks() -> Iterator[tuple[slice, np.ndarray]]:
        if on_disk is not None:
            each = on_disk.once(columns, read_into)
        else:
            each = ((where, checkpoints.parameters[:, where]) for where in cut(layout.size, columns))
        for where, values in each:
            if look is not None:
                look(values)
            yield where, values

    # a thread a core, each with products of its own: those of several threads wait for each other where cores are busy
    with threadpool_limits(1):
        for done in run_in_workers(form, blocks(), make=room):
            if progress is not None:
                progress(done, layout.size)
    return made.order


def room_for(count: int, size: int, dtype: np.dtype[Any], what: str, advice: str = "give") -> np.ndarray:
    """Return an empty matrix [count, size], in memory or on the disk.

    Args:
        what: its rows are, and advice: what else than another folder helps, for sentences.

    Raises:
        FedscopeError: there is no room on the disk.
    """
    if not put_aside(count, size, dtype):
        return np.empty((count, size), dtype)
    folder, needed = gettempdir(), count * size * dtype.itemsize
    if (free := shutil.disk_usage(folder).free) < needed:
        raise FedscopeError(
            f"{count} {what} take {format_size(needed)} in {folder}, which has {format_size(free)} left; {advice} "
            "another folder for temporary files (TMPDIR)"
        )
    return as_array(TemporaryMatrix(folder, (count, size), dtype, what))


def measure_means(
    module: torch.nn.Module,
    samples: Samples,
    checkpoints: Weights,
    averages: Sequence[Average],
    compute: Compute,
    number: int,
    progress: Callable[[int, int], None] = lambda done, of: None,
    look: Callable[[np.ndarray], None] | None = None,
) -> tuple[CheckpointMean, ...]:
    """Measure the loss and error of every mean, and what it gains on the newest checkpoint on the same samples.

    Args:
        checkpoints: [C, P], in memory or on the disk.
        averages: the newest checkpoint first.
        number: of the round whose clients they are.
        progress: called with (done, of): half of it for the means, half for the samples.
        look: called with all columns of the checkpoints, [C, n], in their order.
    """
    models = mean_models(checkpoints, averages, lambda done, of: progress(done, 2 * of), look)
    pairs = [(k, 0, 0) for k in range(len(models))]
    _, means, less = losses_at(
        module,
        samples,
        models,
        None,
        pairs,
        number=number,
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
