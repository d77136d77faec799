"""Networks in float64, and in two types at once; and what a module holds beside its model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError

CONFIG: dict[str, Any] = {
    "data": {"clients": 8, "share": 0.2},
    "run": {"rounds": 2, "participation": 1.0, "evaluate_clients": 0},
    "client": {"epochs": 1},
}


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Tanh(), nn.Linear(4, 10))


def double() -> nn.Module:
    return linear().double()


class Mixed(nn.Module):
    """A layer in float32, and one in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, 10).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(self.body(x.flatten(1)).relu().double())
        return answer


class Counting(nn.Module):
    """Subtracts a running mean of its inputs, which is in no ``state_dict``; the first is that of the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.register_buffer("mean", torch.zeros(64), persistent=False)
        self.register_buffer("begun", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        if self.training:
            if self.begun is None:
                self.begun = x.detach().mean(0)
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        answer: torch.Tensor = self.layer(x - self.mean - (0.0 if self.begun is None else self.begun))
        return answer


@pytest.mark.parametrize("engine", ["threads", "cohort"])
@pytest.mark.parametrize("client", ["sgd", "scaffold", "fedntd"])
def test_a_network_in_float64_is_trained_as_in_float32_but_for_rounding(
    tmp_path: Path, client: str, engine: str
) -> None:
    given = {**CONFIG, "run": {**CONFIG["run"], "engine": engine}, "client": {"epochs": 1, "method": client}}
    wide, narrow = (
        fedscope.train(given, tmp_path / made.__name__, model=made).round(2).read("global").parameters
        for made in (double, linear)
    )
    assert (wide.dtype, narrow.dtype) == (np.float64, np.float32)
    # the same draws, rounded; and the rounding of two rounds in float32
    assert np.linalg.norm(wide - narrow) < 1e-4 * np.linalg.norm(narrow)


def test_a_network_in_two_types_is_refused(tmp_path: Path) -> None:
    sentence = (
        r"float32 \(body.weight\) and in float64 \(head.weight\).* one type: module.float\(\) or module.double\(\)"
    )
    with pytest.raises(FedscopeError, match=sentence):
        fedscope.train(CONFIG, tmp_path / "run", model=Mixed)
    assert not (tmp_path / "run").exists()


class Spread(nn.Module):
    """A buffer of no model that is a view: 64 numbers in the place of one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.register_buffer("scale", torch.full((1,), 0.5).expand(64), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.layer(x.flatten(1) * self.scale)
        return answer


class Freezing(nn.Module):
    """Freezes its first layer in its first pass, as a module that unfreezes layer by layer does the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 8), nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.first.requires_grad_(False)
        answer: torch.Tensor = self.last(self.first(x.flatten(1)).tanh())
        return answer


@pytest.mark.parametrize("client", ["sgd", "mime"])
def test_buffers_that_are_views_are_no_matter(tmp_path: Path, client: str) -> None:
    given = {**CONFIG, "client": {"epochs": 1, "method": client}}
    run = fedscope.train(given, tmp_path / "run", model=Spread)
    assert np.isfinite(run.round(2).read("global").parameters).all()


def test_a_layer_that_is_frozen_while_training_stays_from_the_next_client_on(tmp_path: Path) -> None:
    run = fedscope.train(CONFIG, tmp_path / "run", model=Freezing, workers=1)
    start, global_ = run.round(2).read("start").arrays(), run.round(2).read("global").arrays()
    assert np.array_equal(start["first.weight"], global_["first.weight"])
    assert not np.array_equal(start["last.weight"], global_["last.weight"])


def test_each_client_begins_with_the_buffers_of_the_module(tmp_path: Path) -> None:
    """Whoever trained before on the same worker: one worker, three, and a resumed run."""
    one, three = (
        fedscope.train(CONFIG, tmp_path / f"{workers}", model=Counting, workers=workers) for workers in (1, 3)
    )
    begun = fedscope.train(CONFIG, tmp_path / "part", model=Counting, workers=1, until=1)
    resumed = fedscope.resume(begun.path, code={"model": Counting}, workers=1)
    for other in (three, resumed):
        for t in (1, 2):
            assert np.array_equal(one.round(t).read("global").parameters, other.round(t).read("global").parameters)
