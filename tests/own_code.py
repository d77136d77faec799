"""Code of one's own for tests: a method of each kind, a model, data and a partition, in a module that says when it is
imported while it is armed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MODULE = '''
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedscope.methods import (
    Averaged,
    AverageMethod,
    ClientMethod,
    Served,
    ServerMethod,
    Weights,
    local_sgd,
    setting,
    weighted_update,
)

if Path("armed").exists():
    Path("mark").touch()  # of an import


@dataclass(frozen=True)
class Heavy(ServerMethod):
    """w⁺ = w + v⁺, v⁺ = β v + Δ̄."""

    reads = "columns"
    beta: float = setting(0.5, "β: how much of the last step is kept", least=0, below=1)

    def init(self, w):
        return {"v": np.zeros_like(w)}

    def step(self, state, start, clients, cohort):
        v = self.beta * state["v"].astype(float) + weighted_update(start, clients, cohort.p)
        dtype = start.layout.dtype
        return Served((start.parameters + v).astype(dtype), {"v": v.astype(dtype)})


@dataclass(frozen=True)
class Pull(ClientMethod):
    """g ← g + μ sign(θ − w), and counts its participations."""

    mu: float = setting(0.01, "μ: strength of the pull", above=0)

    def train(self, task):
        start = task.place.tensor(task.start.parameters)
        update = local_sgd(task, self, correct=lambda w, g: g.add_((w - start).sign(), alpha=self.mu))
        from dataclasses import replace

        return replace(update, state={"count": np.asarray(task.state.get("count", np.zeros(1))) + 1})


@dataclass(frozen=True)
class Fading(AverageMethod):
    """m_t = d m_{t−1} + (1 − d) global_t."""

    decay: float = setting(0.9, "d: how much of the last mean is kept", least=0, below=1)

    def average(self, state, round, global_, history):
        before = state.get("mean", global_.parameters.astype(float))
        mean = self.decay * before + (1 - self.decay) * global_.parameters
        return Averaged(Weights(global_.layout, mean.astype(global_.layout.dtype), global_.buffers), {"mean": mean})


def net(width=6):
    return nn.Sequential(nn.Flatten(), nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))


def load(count=90):
    draw = np.random.default_rng(0)
    y = np.arange(count) % 3
    return (draw.normal(size=(count, 4)) + 2 * np.eye(3, 4)[y]).astype(np.float32), y


def split(labels, clients, random):
    return np.array_split(random.permutation(len(labels)), clients)
'''

#: the words of ``fedscope train`` with all of it
ALL_OWN = (
    "train --client mine:Pull --server mine:Heavy --average mine:Fading --model mine:net(5) --data mine:load "
    "--partition mine:split --clients 6 --participation 0.5 --rounds 3 --epochs 1 --set server.beta=0.25"
)
#: what a resume of such a run is given
GIVEN = (
    "--code client=mine:Pull --code server=mine:Heavy --code average=mine:Fading --code model=mine:net(5) "
    "--code data=mine:load"
)


@contextmanager
def own_module(folder: Path, text: str = MODULE, name: str = "mine") -> Iterator[Path]:
    """Write the module into a folder; it is forgotten at the end, and so that a test can forget it before."""
    path = folder / f"{name}.py"
    path.write_text(text)
    try:
        yield path
    finally:
        forget(name)


def forget(name: str = "mine") -> None:
    """Have Python forget the module, as a new process has not seen it."""
    sys.modules.pop(name, None)
