"""Local training written by hand on one vector, apart from the code that it checks: plain SGD and its corrections, and
sharpness-aware steps."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.nn.utils import vector_to_parameters

from fedscope.training.local.local_training import batches
from fedscope.training.tasks import given_task

Change = Callable[[np.ndarray, np.ndarray], Any]
#: what a client learns: a classification, and one whose classes weigh differently and whose labels are smoothed
SUPERVISED = {
    "plain": torch.nn.CrossEntropyLoss(),
    "weighted": torch.nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 30.0], dtype=torch.float64), label_smoothing=0.2),
}


def learning(small: Any, supervised: str) -> Any:
    """Return what is known of a federation that learns one of :data:`SUPERVISED`."""
    return small.facts if supervised == "plain" else replace(small.facts, task=given_task(SUPERVISED[supervised]))


def gradient(module: Any, theta: np.ndarray, x: Any, y: Any, weight_decay: float, clip: float = 0.0) -> np.ndarray:
    """g of a batch at θ: weight decay included, then clipped."""
    vector_to_parameters(torch.from_numpy(theta.copy()), module.parameters())
    parts = torch.autograd.grad(functional.cross_entropy(module(x), y), list(module.parameters()))
    g = np.concatenate([part.numpy().ravel() for part in parts]) + weight_decay * theta
    norm = np.linalg.norm(g)
    return g * clip / norm if clip and norm > clip else g


def followed(
    task: Any, method: Any, correct: Change | None = None, rates: Any = None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """θ after a task's mini-batches, and the clipped gradient of each: v = β v + correct(θ, g), θ ← θ − η v.

    Args:
        rates: of each step; by default the task's.
    """
    module, theta, velocity = deepcopy(task.place.module), task.start.parameters.copy(), 0.0
    seen: list[np.ndarray] = []
    for k, (x, y) in enumerate(batches(task, method)):
        g = gradient(module, theta, x, y, method.weight_decay, method.clip)
        seen.append(g)
        velocity = method.momentum * velocity + (g if correct is None else correct(theta, g))
        theta = theta - (task.pace.lr if rates is None else rates[k]) * velocity
    if method.clip:
        assert any(np.isclose(np.linalg.norm(g), method.clip) for g in seen), "nothing was clipped"
    return theta, seen


def carried(count: int, momentum: float) -> list[float]:
    """How far each of ``count`` gradients carries the model at rate 1: it is in the velocity of every later step."""
    return [sum(momentum**k for k in range(count - j)) for j in range(count)]


def followed_uphill(
    task: Any,
    method: Any,
    epsilon: Change,
    mix: Callable[[np.ndarray], Any] = lambda g: g,
    losses: list[float] | None = None,
) -> np.ndarray:
    """θ after steps along mix(G), G the gradient at θ + ε(θ, g).

    ``apart``: ε from the loss alone, G clipped, then decay at θ. ``within``: decay is in g and in G, before clipping.

    Args:
        losses: gets the loss of each mini-batch at θ.
    """
    module, theta, velocity = deepcopy(task.place.module), task.start.parameters.copy(), 0.0
    within = method.weight_decay if method.sam_decay == "within" else 0.0
    for x, y in batches(task, method):
        g = gradient(module, theta, x, y, within)
        if losses is not None:
            losses.append(functional.cross_entropy(module(x), y).item())
        g = gradient(module, theta + epsilon(theta, g), x, y, within, method.clip)
        if method.sam_decay == "apart":
            g = g + method.weight_decay * theta
        velocity = method.momentum * velocity + mix(g)
        theta = theta - task.pace.lr * velocity
    return theta
