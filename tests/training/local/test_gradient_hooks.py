"""Hooks on the gradients of parameters, which training keeps or refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.evaluation.module_copy import copy_module
from fedscope.training.local.gradient_hooks import refuse_hooks

CONFIG: dict[str, Any] = {
    "data": {"clients": 8, "share": 0.2},
    "run": {"rounds": 2, "participation": 1.0, "evaluate_clients": 0},
    "client": {"epochs": 1, "weight_decay": 0.0},
}


def hooked() -> nn.Module:
    """Half of the first layer's rows have a gradient of 0."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Tanh(), nn.Linear(4, 10))
    mask = torch.tensor([[1.0], [0.0], [1.0], [0.0]])
    module.get_parameter("1.weight").register_hook(lambda gradient: gradient * mask)
    return module


@pytest.mark.parametrize("engine", ["threads", "cohort"])
@pytest.mark.parametrize("client", ["sgd", "ditto"])
def test_hooks_are_kept_in_training(tmp_path: Path, client: str, engine: str) -> None:
    given = {**CONFIG, "client": {**CONFIG["client"], "method": client}, "run": {**CONFIG["run"], "engine": engine}}
    run = fedscope.train(given, tmp_path / "run", model=hooked)
    before, after = run.round(1).read("start").arrays(), run.round(2).read("global").arrays()
    moved = (before["1.weight"] != after["1.weight"]).any(axis=1)
    assert moved.tolist() == [True, False, True, False]
    if engine == "cohort":
        assert run.config is not None
        assert run.config["run"]["engine"] == "threads"


def test_a_copy_calls_each_hook_once_and_a_copy_of_it_too() -> None:
    calls: list[int] = []
    module = nn.Linear(2, 1)
    module.weight.register_hook(lambda gradient: calls.append(1))
    copy = copy_module(copy_module(module))
    copy(torch.ones(1, 2)).sum().backward()
    assert calls == [1]
    assert module.weight.grad is None
    assert np.array_equal(np.asarray(copy.weight.grad), [[1.0, 1.0]])


def test_hooks_that_would_be_lost_are_refused(tmp_path: Path) -> None:
    def late() -> nn.Module:
        module = hooked()
        module.get_parameter("3.bias").register_post_accumulate_grad_hook(lambda parameter: None)
        return module

    with pytest.raises(FedscopeError, match=r"3.bias has a hook that register_post.* with register_hook$"):
        fedscope.train(CONFIG, tmp_path / "run", model=late)
    with pytest.raises(FedscopeError, match=r"1.weight has a hook on its gradient .*; train without --engine$"):
        refuse_hooks(hooked(), "net", cluster=True)
