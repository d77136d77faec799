"""What ``fedscope new`` writes: a method, a model, a data set or a partition to begin with, and its test."""

from __future__ import annotations

import re

SERVER = '''"""CLASS: a server method; say here where it comes from."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from fedscope.methods import Served, ServerMethod, setting, weighted_update


@dataclass(frozen=True)
class CLASS(ServerMethod):
    """w⁺ = w + v⁺ with v⁺ = β v + Σ_i p_i (θ_i − w), all [P]: the clients' mean update with momentum."""

    beta: float = setting(0.9, "β: how much of the last step is kept", least=0, below=1)
    reads: ClassVar = "columns"  # each parameter of w⁺ depends on that parameter alone
    limits: ClassVar = {"fma": {"beta": 0.0}}  # with these settings it is that method, which the check compares

    def init(self, w):
        return {"v": np.zeros_like(w)}

    def step(self, state, start, clients, cohort):
        v = self.beta * state["v"].astype(float) + weighted_update(start, clients, cohort.p)
        dtype = start.layout.dtype
        return Served((start.parameters + v).astype(dtype), {"v": v.astype(dtype)})


def test_it_is_well_behaved():
    from fedscope.testing import check_method

    check_method(CLASS).raise_for_failures()
'''
CLIENT = '''"""CLASS: a client method; say here where it comes from."""

from dataclasses import dataclass

from fedscope.methods import ClientMethod, local_sgd, setting


@dataclass(frozen=True)
class CLASS(ClientMethod):
    """Local SGD on the loss + μ‖θ − w‖₁, so g ← g + μ sign(θ − w), all [P]; w is the model that was sent."""

    mu: float = setting(0.001, "μ: strength of the pull towards w", above=0)

    def train(self, task):
        start = task.place.tensor(task.start.parameters)
        return local_sgd(task, self, correct=lambda w, g: g.add_((w - start).sign(), alpha=self.mu))


def test_it_is_well_behaved():
    from fedscope.testing import check_method

    check_method(CLASS).raise_for_failures()
'''
AVERAGE = '''"""CLASS: an average over rounds; say here where it comes from."""

from dataclasses import dataclass

from fedscope.methods import Averaged, AverageMethod, Weights, setting


@dataclass(frozen=True)
class CLASS(AverageMethod):
    """m_t = d m_{t−1} + (1 − d) global_t, m_0 = global_1, all [P]: an exponential mean, for evaluation only."""

    decay: float = setting(0.9, "d: how much of the last mean is kept", least=0, below=1)

    def average(self, state, round, global_, history):
        before = state.get("mean", global_.parameters.astype(float))
        mean = self.decay * before + (1 - self.decay) * global_.parameters
        averaged = Weights(global_.layout, mean.astype(global_.layout.dtype), global_.buffers)
        return Averaged(averaged, {"mean": mean})


def test_it_is_well_behaved():
    from fedscope.testing import check_method

    check_method(CLASS).raise_for_failures()
'''
MODEL = '''"""NAME: a network; it is called without arguments, or as in --model 'NAME:net(32)'."""

from torch import nn


def net(width=64):
    """Inputs [n, 1, 8, 8], the embedded digits; 10 outputs."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def test_its_outputs():
    import torch

    assert net()(torch.zeros(3, 1, 8, 8)).shape == (3, 10)
'''
DATA = '''"""NAME: a data set; inputs are what the network takes, in shape and scale."""

import numpy as np


def load(samples=500):
    """(x, y), of which a fifth of each class is set aside for tests; or ((x, y), (x_test, y_test))."""
    random = np.random.default_rng(0)
    y = random.integers(0, 3, samples)
    x = random.normal(size=(samples, 8)) + 2 * np.eye(3, 8)[y]
    return x.astype("float32"), y


def test_its_shapes():
    x, y = load()
    assert len(x) == len(y)
'''
PARTITION = '''"""NAME: which client holds which samples."""

import numpy as np


def split(labels, clients, random):
    """Client k holds k + 1 parts of 1 + ... + N, of whatever class: indices of samples, an array a client."""
    mixed = random.permutation(len(labels))
    ends = np.cumsum(np.arange(1, clients + 1)) / (clients * (clients + 1) / 2) * len(labels)
    return np.split(mixed, ends[:-1].astype(int))


def test_every_sample_is_one_clients():
    parts = split(np.zeros(100), 4, np.random.default_rng(0))
    assert sorted(np.concatenate(parts)) == list(range(100))
'''
TEMPLATES = {
    "client": CLIENT,
    "server": SERVER,
    "average": AVERAGE,
    "model": MODEL,
    "data": DATA,
    "partition": PARTITION,
}


def class_name(name: str) -> str:
    """Return the name of a method's class, as the field writes it.

    >>> class_name("fedx"), class_name("trimmed_mean"), class_name("fed_half")
    ('FedX', 'TrimmedMean', 'FedHalf')
    """
    parts = [part for part in re.split(r"[_-]+", name) if part]
    words = [word for part in parts for word in (("fed", part[3:]) if re.match("fed.", part) else (part,))]
    return "".join(word[:1].upper() + word[1:] for word in words)


def filled(kind: str, name: str) -> str:
    """Return the text of a file for something of one's own.

    >>> filled("server", "fedx").splitlines()[0]
    '\"\"\"FedX: a server method; say here where it comes from.\"\"\"'
    """
    return TEMPLATES[kind].replace("CLASS", class_name(name)).replace("NAME", name)


def called(kind: str, name: str) -> str:
    """Return how the thing in the file is named on a command line.

    >>> called("server", "fedx"), called("model", "mynet")
    ('fedx:FedX', 'mynet:net')
    """
    inner = {"model": "net", "data": "load", "partition": "split"}.get(kind) or class_name(name)
    return f"{name}:{inner}"
