"""Losses by sample of some of the models that are evaluated, and the standard errors over samples that they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event

import numpy as np
import torch
from torch import Tensor

from .evaluator import Evaluator
from .model_replica import Replica
from .places import WorkerPlace

#: numbers that are kept at most; of more models they are measured again where they are asked for
KEPT = 2**25


class SampleLosses:
    """The losses of models on every sample of an evaluator's first data set.

    Args:
        evaluator: of the models.
        models: how many there are.

    Attributes:
        weights: how much each sample counts, [n]; None where all count alike.
    """

    def __init__(self, evaluator: Evaluator, models: int) -> None:
        self._evaluator = evaluator
        self._targets = evaluator.targets(0)
        self._keeps = models * len(evaluator.samples) <= KEPT
        self._found: dict[int, list[np.ndarray]] = {}
        task = evaluator.samples.task
        weights = [task.weights(y) for y in self._targets]
        known = [one.cpu().double().numpy() for one in weights if one is not None]
        self.weights = np.concatenate(known) if known else None

    def add(self, i: int, batch: int, outputs: Tensor) -> None:
        """Take in a model's outputs on a batch, whose batches come in their order."""
        if self._keeps:
            mine = self._found.setdefault(i, [])
            del mine[batch:]  # of an attempt that was stopped
            mine.append(_losses(self._evaluator, outputs, self._targets[batch]))

    def know(self, i: int, losses: np.ndarray) -> None:
        """Take over a model's losses [n], which were measured before as those of another."""
        self._found[i] = [losses]

    def kept(self, i: int) -> np.ndarray | None:
        """Return a model's losses [n] where they are all there."""
        losses = np.concatenate(self._found[i]) if i in self._found else None
        return losses if losses is not None and len(losses) == len(self._evaluator.samples) else None

    def of(self, models: Sequence[int], form: Callable[[int, Replica], None]) -> dict[int, np.ndarray]:
        """Return the losses of models, [n] each; those that were not kept are measured.

        Args:
            form: writes a model into a replica.
        """
        wanted = list(dict.fromkeys(models))
        found = {i: losses for i in wanted if (losses := self.kept(i)) is not None}
        lacking = [i for i in wanted if i not in found]

        def measure(i: int, place: WorkerPlace, stop: Event) -> np.ndarray:
            (replica,) = place.replicas(1)
            form(i, replica)
            inputs, targets = place.data[0]
            losses = []
            for batch, y in enumerate(torch.split(targets, self._evaluator.batch)):
                if stop.is_set():
                    raise InterruptedError("the evaluation was told to stop")
                start = batch * self._evaluator.batch
                losses.append(_losses(self._evaluator, replica.logits(inputs[start : start + len(y)]), y))
            return np.concatenate(losses)

        found.update(zip(lacking, self._evaluator.each(measure, lacking), strict=True))
        return found


def _losses(evaluator: Evaluator, outputs: Tensor, y: Tensor) -> np.ndarray:
    outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
    losses: np.ndarray = evaluator.samples.task.loss(outputs, y).detach().cpu().double().numpy()
    return losses


def stderr_of_mean(values: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Compute the standard error over samples of Σ_j c_j v_j / Σ_j c_j = m; NaN of one sample.

    stderr² = n / (n − 1) Σ_j c_j² (v_j − m)² / (Σ_j c_j)². Where v are differences of two models' losses on the same
    samples, it is the error of a paired difference.

    >>> round(stderr_of_mean(np.array([1.0, 2.0, 3.0])), 6)  # 1 / √3
    0.57735
    """
    c = np.ones(len(values)) if weights is None else weights
    total = c.sum()
    if len(values) < 2 or not total > 0:
        return float("nan")
    away = values - values[0]  # of samples that are alike exactly 0
    with np.errstate(invalid="ignore", over="ignore"):
        away = away - (c @ away) / total
        return float(np.sqrt(len(values) / (len(values) - 1) * (c**2 @ away**2)) / total)
