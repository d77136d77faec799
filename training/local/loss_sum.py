"""The sum of clients' losses over their steps, without waiting for an accelerator at each of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

#: so many losses of a device are put into one tensor: alone each takes 512 bytes there
TOGETHER = 1_000


class LossSum:
    """Σ_k weight_k loss_k in float64, in the order of the steps: of one client, or of several with a column each.

    What is on the host is added at once. Tensors of a device stay there until the sum is asked for, which waits once;
    the sum is made on the host, in the same order and so to the same bits.

    >>> losses = LossSum()
    >>> losses.add(0.5), losses.add(torch.tensor(1.5), 2)
    (None, None)
    >>> losses.total()
    3.5
    """

    def __init__(self) -> None:
        self._sum: Any = 0.0
        self._waiting: list[Tensor] = []
        self._kept: list[Tensor] = []
        self._weights: list[float] = []

    def add(self, loss: Any, weight: float = 1) -> None:
        """Add one step's loss: a number, or a tensor of one, or of one a client [C]."""
        if not isinstance(loss, Tensor):
            self._sum += weight * float(loss)
        elif loss.device.type == "cpu":
            self._sum = self._sum + weight * _numbers(loss.detach())
        else:
            self._waiting.append(loss.detach())
            self._weights.append(weight)
            if len(self._waiting) == TOGETHER:
                self._gather()

    def total(self) -> Any:
        """Return the sum so far: a number, or an array [C]."""
        self._gather()
        if self._kept:
            for value, weight in zip(torch.cat(self._kept).cpu(), self._weights, strict=True):
                self._sum = self._sum + weight * _numbers(value)
            self._kept, self._weights = [], []
        return self._sum

    def _gather(self) -> None:
        if self._waiting:
            self._kept.append(torch.stack(self._waiting))
            self._waiting = []


def _numbers(loss: Tensor) -> Any:
    return loss.double().numpy() if loss.dim() else float(loss)
