"""Models measured on an accelerator: several without a wait between them, and the sums of all read with one copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import ceil, prod
from operator import add
from threading import Event

import numpy as np
import torch
from torch import Tensor

from .model_replica import Replica
from .places import WorkerPlace
from .samples import Samples
from .stacked_models import STACKED
from .standard_tasks import is_own_task
from .tasks import Task
from .uint8_images import in_batches

# Constants and nothing that a card has free, so that the last bits do not depend on it.
#: models whose sums are read together: a wait for each of them costs as much as ten operators
POINTS = STACKED
#: batches after which a wait costs nothing any more, and progress and Ctrl-C should not wait longer
BATCHES = 64
#: numbers of outputs that are kept until then
OUTPUTS = 2**26


def points_together(parts: Sequence[Samples], batch: int) -> int:
    """Count the models that are measured without a wait between them; depends on the samples alone."""
    batches = sum(ceil(len(part) / batch) for part in parts)
    outputs = sum(
        len(part) * prod(part.y.shape[1:]) * (part.classes if part.task.has_classes or part.task.tokens else 1)
        for part in parts
    )
    return max(1, min(POINTS, BATCHES // batches, OUTPUTS // max(1, outputs)))


def measure_points(
    place: WorkerPlace,
    parts: Sequence[Samples],
    count: int,
    form: Callable[[int], Replica],
    batch: int,
    stop: Event,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Measure loss and error, float64 [S] each, of so many models on the S data sets of a place.

    Outputs of several models wait for each other, for their losses cost no more operators than those of one.

    Args:
        form: makes the k-th model; a replica may be the one before, formed anew.
    """
    sums = [PointSums(part.task, count, place.float64) for part in parts]
    waiting: list[list[list[Tensor]]] = [[[] for _ in range(0, len(part), batch)] for part in parts]
    if place.stacked is not None:
        stacked, _ = place.stacked
        stacked.form(count, form)
    with torch.inference_mode():
        targets = [torch.split(y, batch) for _, y in place.data]
        if place.stacked is not None:
            for s, (inputs, _) in enumerate(place.data):
                for x, y in zip(in_batches(inputs, batch), targets[s], strict=True):
                    _heed(stop)
                    sums[s].add(stacked.logits(x, count), y)
            return read_sums(sums)
        for k in range(count):
            replica = form(k)
            for s, (inputs, _) in enumerate(place.data):
                for number, x in enumerate(in_batches(inputs, batch)):
                    _heed(stop)
                    outputs = replica.logits(x)
                    if count == 1:
                        sums[s].add([outputs], targets[s][number])
                    else:
                        waiting[s][number].append(replica.apart(outputs))
        for own, of_part, ys in zip(sums, waiting, targets, strict=True):
            for together, y in zip(of_part, ys, strict=True):
                if together:
                    own.add(together, y)
                    together.clear()
        return read_sums(sums)


def _heed(stop: Event) -> None:
    if stop.is_set():
        raise InterruptedError("the evaluation was told to stop")


class PointSums:
    """Sums of a task's losses and errors over samples, of several models, on their device until they are read.

    Where a device has no float64, losses and errors of all samples are read and summed by the processor.
    """

    def __init__(self, task: Task, count: int, float64: bool) -> None:
        self.task, self._count, self._float64 = task, count, float64
        self._loss, self._error = _Mean(float64), _Mean(float64)
        self._has_error = True

    def add(self, outputs: Sequence[Tensor], y: Tensor) -> None:
        """Take in a batch: outputs of every model, and targets."""
        outputs = [one if one.dtype == torch.float64 else one.float() for one in outputs]
        if len(outputs) > 1 and not is_own_task(
            self.task
        ):  # of which each sample has a loss of its own, whatever is beside
            together = [torch.cat(list(outputs))], y.repeat(len(outputs), *[1] * (y.dim() - 1))
        else:
            together = outputs, y
        losses = torch.stack([self.task.loss(one, together[1]) for one in together[0]])
        self._loss.add(losses.view(self._count, -1), self.task.weights(y))
        errors = [self.task.error(one, together[1]) for one in together[0]] if self._has_error else []
        there = [one for one in errors if one is not None]
        self._has_error = bool(there)
        if there:
            self._error.add(torch.stack(there).view(self._count, -1), self.task.error_weights(y))

    @property
    def pieces(self) -> list[Tensor]:
        """What is read of the device."""
        return [*self._loss.pieces, *(self._error.pieces if self._has_error else [])]

    def means(self, pieces: Sequence[Tensor]) -> tuple[np.ndarray, np.ndarray]:
        """Mean loss and error [count], of the pieces as they were read; NaN where there is none."""
        loss = self._loss.means(pieces[: len(self._loss.pieces)])
        if not self._has_error:
            return loss, np.full(self._count, np.nan)
        return loss, self._error.means(pieces[len(self._loss.pieces) :])


class _Mean:
    """Σ_j c_j v_j / Σ_j c_j of several models' values v [count, n], a batch at a time."""

    def __init__(self, float64: bool) -> None:
        self._float64 = float64
        self._counted = 0
        self._weighted = False
        self.pieces: list[Tensor] = []

    def add(self, values: Tensor, weights: Tensor | None) -> None:
        self._weighted = weights is not None
        if weights is None:
            self._counted += values.shape[1]
        if not self._float64:
            self.pieces += [values.float()] if weights is None else [values.float(), weights.float()]
            return
        values = values.double()
        sums = [values.sum(1)] if weights is None else [(values * weights).sum(1), weights.double().sum()[None]]
        self.pieces = [one + more for one, more in zip(self.pieces, sums, strict=True)] if self.pieces else sums

    def means(self, pieces: Sequence[Tensor]) -> np.ndarray:
        total, counted = self._totals(pieces)
        if not counted:
            return np.full(len(total), np.nan)
        return np.asarray(total.numpy() / counted)

    def _totals(self, pieces: Sequence[Tensor]) -> tuple[Tensor, float]:
        """Σ_j c_j v_j [count] and Σ_j c_j."""
        if self._float64:
            return pieces[0], float(pieces[1]) if self._weighted else self._counted
        values = [piece.double() for piece in pieces]
        if not self._weighted:
            return reduce(add, [one.sum(1) for one in values]), self._counted
        pairs = list(zip(values[::2], values[1::2], strict=True))
        counted = reduce(add, [weights.sum() for _, weights in pairs])
        return reduce(add, [(one * weights).sum(1) for one, weights in pairs]), float(counted)


def read_sums(sums: Sequence[PointSums]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Read the means of every data set: of each model loss and error, [S] each. One copy, and so one wait."""
    pieces = [own.pieces for own in sums]
    flat = torch.cat([piece.flatten() for of_part in pieces for piece in of_part]).cpu()
    shaped = iter(torch.split(flat, [piece.numel() for of_part in pieces for piece in of_part]))
    read = [[next(shaped).view(piece.shape) for piece in of_part] for of_part in pieces]
    means = [own.means(of_part) for own, of_part in zip(sums, read, strict=True)]
    loss, error = (np.stack([mean[which] for mean in means], axis=1) for which in (0, 1))
    return list(zip(loss, error, strict=True))
