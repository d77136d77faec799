"""Layers in plain lists, and tensors that are no parameters: what no ``state_dict()`` has is told."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedscope
from fedscope.checkpoints import FedscopeError, FedscopeWarning
from fedscope.checkpoints.models.unregistered import say_unregistered


class Deep(nn.Module):
    """A layer in a list: usual among those who are new to torch."""

    def __init__(self, hidden: Callable[[], object] = lambda: [nn.Linear(4, 4)]) -> None:
        super().__init__()
        self.hidden, self.head = hidden(), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)


CLAUSE = (
    "Deep holds {0} parameters where torch does not look (hidden), so they are neither recorded nor averaged; hold "
    "layers in nn.ModuleList or nn.ModuleDict, and tensors in nn.Parameter"
)


@pytest.mark.parametrize(
    ("hidden", "count"),
    [
        (lambda: [nn.Linear(4, 4)], 20),
        (lambda: {"a": (nn.Linear(4, 4), "relu"), "b": None}, 20),
        (lambda: [[nn.Parameter(torch.zeros(2, 600))]], "1,200"),
        (lambda: torch.zeros(5, requires_grad=True), 5),
    ],
)
def test_what_torch_does_not_know_is_counted(hidden: Callable[[], object], count: object) -> None:
    assert say_unregistered(Deep(hidden)) == CLAUSE.format(count)
    assert "(0.hidden)" in say_unregistered(nn.Sequential(Deep(hidden)))


def test_what_torch_knows_and_what_is_not_trained_is_passed_over() -> None:
    assert say_unregistered(Deep(lambda: nn.ModuleList([nn.Linear(4, 4)]))) == ""
    frozen = nn.Linear(4, 4).requires_grad_(False)
    assert say_unregistered(Deep(lambda: [frozen])) == "", "a teacher that is kept out on purpose"
    named = Deep(lambda: nn.Linear(4, 4))
    named.again = [named.hidden]  # a list of layers that torch knows by another name
    assert say_unregistered(named) == ""
    assert say_unregistered(nn.utils.weight_norm(nn.Linear(4, 4))) == ""
    assert say_unregistered(nn.LSTM(4, 4)) == ""
    normalised = nn.utils.parametrizations.weight_norm(nn.LSTM(3, 4), "weight_hh_l0")
    assert say_unregistered(normalised) == "", "what the layer knew before is used no more"
    whole = nn.Sequential(Deep(lambda: []))
    whole[0].parent = [whole]  # a way back, which a list keeps from being registered
    assert say_unregistered(whole[0]) == ""


def test_layers_without_a_shape_yet_are_told_without_a_number() -> None:
    assert say_unregistered(Deep(lambda: OrderedDict(a=nn.LazyLinear(3)))) == CLAUSE.replace("{0} ", "")


class Table(nn.Module):
    """Tokens that are looked up in a parameter, without a layer of torch's that does so."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.linspace(-1, 1, 36).reshape(12, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.embedding(x, self.table).mean(1)


def recorded(path: Path, **how: object) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with fedscope.Recorder(path, **how) as recorder:
            for _ in range(2):
                recorder.round(start=Deep(), clients=[Deep(), Deep()])
    return [str(one.message) for one in caught if "does not look" in str(one.message)]


def test_a_recorder_tells_it_once(tmp_path: Path) -> None:
    assert recorded(tmp_path / "run") == [f"{tmp_path}/run@1: {CLAUSE.format(20)}"]


def test_it_is_told_before_a_run_and_before_a_measurement(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
    settings = {"run": {"rounds": 1, "participation": 1.0, "evaluate_clients": 0}, "data": {"clients": 2}}
    with pytest.warns(FedscopeWarning, match=r"Deep\(\) returned a model that is not whole: Deep holds 20 parameters"):
        fedscope.train({**settings, "client": {"epochs": 1}}, model=Deep, data=(data, data), out=tmp_path / "run")
    with pytest.warns(FedscopeWarning, match=r"model= is not whole: Deep holds 20 parameters"):
        fedscope.line([Deep().state_dict(), Deep().state_dict()], model=Deep(), data=data, points=3)


def test_networks_that_look_tokens_up_otherwise_are_trained(tmp_path: Path) -> None:
    data = np.arange(180).reshape(30, 6) % 12, np.arange(30) % 3
    settings = {"run": {"rounds": 1, "participation": 1.0}, "data": {"clients": 2, "partition": "iid"}}

    def trained(model: Callable[[], nn.Module], name: str) -> fedscope.Run:
        how = {"model": model, "data": (data, data), "task": "sequence-classification"}
        return fedscope.train({**settings, "client": {"epochs": 1}}, out=tmp_path / name, **how)

    run = trained(Table, "table")
    assert run.layout.parameters[0].name == "table"
    assert run.round(1).metrics["test_loss"] > 0
    bag = trained(lambda: nn.Sequential(nn.EmbeddingBag(12, 4), nn.Linear(4, 3)), "bag")
    assert bag.round(1).metrics["test_loss"] > 0
    with pytest.raises(FedscopeError, match=r"whole numbers of shape \[6\] a sample, which are taken as tokens"):
        trained(lambda: nn.Linear(6, 3), "linear")
