"""A client's local training: one loop, in flat parameter space, that every client method shares.

The module's parameters are views of one vector ``w`` [P] and their gradients views of one vector ``g`` [P], so a
method's correction is arithmetic on vectors (``g += c - c_i``), as it stands in the papers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ..checkpoints import Weights
from ..landscape.flat import FlatModule
from ..landscape.precision import forward, products
from .randomness import generator, torch_generator

if TYPE_CHECKING:
    from .methods import ClientMethod, Pace

Batch = tuple[Tensor, Tensor]


class Workbench(FlatModule):
    """A worker's own copy of the module in training mode, its parameters and gradients bound to two flat vectors.

    Attributes:
        w: the parameters, [P].
        g: the gradient, [P]; ``backward`` adds to it.
    """

    def __init__(self, module: nn.Module, device: str = "cpu", precision: str = "float32") -> None:
        super().__init__(module, device, precision)
        self.module.train()
        self.g = torch.zeros_like(self.w)
        own = dict(self.module.named_parameters(remove_duplicate=False))
        for name, where in self.layout.slices.items():
            own[name].grad = self.g[where].view(own[name].shape)

    def read(self) -> Weights:
        """The model as it is now."""
        buffers = {name: value.cpu().numpy().copy() for name, value in self._buffers.items()}
        return Weights(self.layout, self.w.cpu().numpy().copy(), buffers)

    def loss(self, objective: Callable[[nn.Module, Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> float:
        """The objective's value on a batch; its gradient is in ``g`` afterwards."""
        self.g.zero_()
        with products(self.device, self.precision):
            with forward(self.device, self.precision):
                value = objective(self.module, x, y)
            value.backward()  # type: ignore[no-untyped-call]
        return float(value.detach())


@dataclass(frozen=True)
class LocalTask:
    """One client's work in one round.

    Attributes:
        x, y: the training split, on the device; ``indices`` are the client's samples in it.
        start: the model that was sent.
        pace: this round's learning rate and epochs.
        draw: 1 for the recorded training, 2, 3, ... for replays with other mini-batch orders.
        sent: what the server sent beside the model, ``state`` what the client kept from its last participation.
    """

    round: int
    client: int
    x: Tensor
    y: Tensor
    indices: np.ndarray
    start: Weights
    pace: Pace
    seed: int
    draw: int = 1
    augment: str = "none"
    sent: Mapping[str, np.ndarray] = field(default_factory=dict)
    state: Mapping[str, np.ndarray] = field(default_factory=dict)
    bench: Workbench | None = None
    stop: Event | None = None


@dataclass(frozen=True)
class LocalUpdate:
    """What a client returns: its model, how many steps it took, its mean loss over them, and its state to keep."""

    client: int
    weights: Weights
    samples: int
    steps: int
    loss: float
    state: Mapping[str, np.ndarray] = field(default_factory=dict)


class Stopped(Exception):
    """Local training was told to stop; the round is not recorded."""


def batches(task: LocalTask, method: ClientMethod) -> Iterator[Batch]:
    """The client's mini-batches of a round: every sample once an epoch, the last batch of an epoch may be smaller.

    Orders hang on (run.seed, round, client, draw) alone.
    """
    order = generator(task.seed, "batches", round=task.round, client=task.client, draw=task.draw)
    shifts = None
    if task.augment != "none":
        shifts = torch_generator(task.seed, "augment", round=task.round, client=task.client, draw=task.draw)
    for _ in range(task.pace.epochs):
        shuffled = torch.from_numpy(task.indices[order.permutation(len(task.indices))]).to(task.x.device)
        for rows in torch.split(shuffled, method.batch):
            if task.stop is not None and task.stop.is_set():
                raise Stopped
            x = task.x[rows]
            yield (crop_and_flip(x, shifts) if shifts is not None else x), task.y[rows]


def crop_and_flip(x: Tensor, shifts: torch.Generator, padding: int = 4) -> Tensor:
    """Random crops of the zero-padded images and random flips, [n, c, h, w]; the usual CIFAR augmentation."""
    n, _, h, w = x.shape
    padded = functional.pad(x, (padding, padding, padding, padding))
    rows = torch.randint(0, 2 * padding + 1, (n, 1), generator=shifts) + torch.arange(h)
    columns = torch.randint(0, 2 * padding + 1, (n, 1), generator=shifts) + torch.arange(w)
    flipped = torch.rand(n, 1, generator=shifts) < 0.5
    columns = torch.where(flipped, columns.flip(1), columns)
    sample = torch.arange(n, device=x.device)[:, None, None]
    picked = padded[sample, :, rows.to(x.device)[:, :, None], columns.to(x.device)[:, None, :]]
    return picked.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)


def cross_entropy(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The mean cross-entropy of a batch: what a client minimises unless its method says otherwise."""
    return functional.cross_entropy(module(x), y)


def local_sgd(
    task: LocalTask,
    method: ClientMethod,
    *,
    objective: Callable[[nn.Module, Tensor, Tensor], Tensor] = cross_entropy,
    correct: Callable[[Tensor, Tensor], Any] | None = None,
    rate: Callable[[int, int], float] | None = None,
) -> LocalUpdate:
    """Mini-batch SGD from the model that was sent, as torch's ``SGD`` steps it.

    g = gradient of the objective + weight_decay w, clipped to norm ``clip``, then corrected; v = momentum v + g;
    w <- w - eta v, with v = 0 at the start of the round.

    Args:
        correct: changes ``g`` in place, given ``(w, g)``; after clipping.
        rate: eta of local step k of K, given ``(k, K)``; the round's constant rate by default.
    """
    bench = task.bench
    assert bench is not None
    bench.load(task.start.parameters, task.start.buffers)
    w, g = bench.w, bench.g
    velocity = torch.zeros_like(w) if method.momentum else None
    total, steps = 0.0, 0
    planned = task.pace.epochs * -(-len(task.indices) // method.batch)
    for x, y in batches(task, method):
        total += bench.loss(objective, x, y)
        with torch.no_grad():
            if method.weight_decay:
                g.add_(w, alpha=method.weight_decay)
            if method.clip:
                g.mul_((method.clip / (g.norm() + 1e-12)).clamp(max=1.0))
            if correct is not None:
                correct(w, g)
            direction = g if velocity is None else velocity.mul_(method.momentum).add_(g)
            w.add_(direction, alpha=-(task.pace.lr if rate is None else rate(steps, planned)))
        steps += 1
    return LocalUpdate(task.client, bench.read(), len(task.indices), steps, total / max(steps, 1))
