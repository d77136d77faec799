"""Loss and error of a model, batch by batch."""

from __future__ import annotations

import torch
from torch import Tensor

from .tasks import Task


class Tally:
    """Sums of a task's losses and errors over the samples of a data set, in float64."""

    def __init__(self, task: Task, device: str) -> None:
        self.task = task
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.error: Tensor | None = torch.zeros((), dtype=torch.float64, device=device)
        self.n = 0

    def add(self, outputs: Tensor, y: Tensor) -> None:
        """Take in a batch of outputs and targets."""
        outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
        weights = self.task.weights(y)
        self.loss += _summed(self.task.loss(outputs, y), weights)
        error = self.task.error(outputs, y)
        self.error = None if self.error is None or error is None else self.error + _summed(error, weights)
        self.n += self.task.count(y)

    def means(self) -> tuple[float, float]:
        """Mean loss, and mean error; NaN where the task has none."""
        return float(self.loss) / self.n, float("nan") if self.error is None else float(self.error) / self.n


def _summed(values: Tensor, weights: Tensor | None) -> Tensor:
    values = values.double()
    return values.sum() if weights is None else (values * weights).sum()
