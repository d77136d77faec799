"""The layer that is taken for a model's head, where a method needs one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedscope
from fedscope.checkpoints import FedscopeError
from fedscope.evaluation.samples import Samples
from fedscope.training.local.head_checks import seen_in_pass

CONFIG: dict[str, Any] = {
    "data": {"clients": 8, "share": 0.2},
    "run": {"rounds": 2, "participation": 1.0, "evaluate_clients": 0, "evaluate_every": 2},
    "client": {"epochs": 1},
}


class HeadFirst(nn.Module):
    """Its head was registered first."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier, self.fc1, self.fc2 = nn.Linear(8, 10), nn.Linear(64, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.classifier(self.fc2(self.fc1(x.flatten(1)).relu()).relu())
        return answer


class Auxiliary(nn.Module):
    """It has a second classifier, which forward does not call."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.classifier, self.aux = nn.Linear(64, 8), nn.Linear(8, 10), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.classifier(self.fc1(x.flatten(1)).relu())
        return answer


class NoHead(nn.Module):
    """It ends in a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.fc0, self.fc1 = nn.Linear(64, 8), nn.Linear(8, 30)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.fc1(self.fc0(x.flatten(1))).unflatten(1, (10, 3)).sum(2)
        return answer


class CutOutputs(nn.Module):
    """It has ten of its head's outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.head = nn.Linear(64, 8), nn.Linear(8, 100)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.fc1(x.flatten(1)).relu())
        return answer[:, :10]


class TwoHeads(nn.Module):
    """Two layers make its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.other, self.head = nn.Linear(64, 8), nn.Linear(8, 6), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.fc1(x.flatten(1)).relu()
        return torch.cat([self.other(h), self.head(h)], 1)


class Functional(nn.Module):
    """It computes with its head's weight, and does not call the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.head = nn.Linear(64, 8), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(self.fc1(x.flatten(1)).relu(), self.head.weight, self.head.bias)


def given(client: str = "sgd", head: str | None = None, **own: Any) -> dict[str, Any]:
    check = {"fedgen": {"generator_steps": 2, "hidden": 4, "noise": 3}, "fedbabu": {"fine_tune_epochs": 1}}
    model = {} if head is None else {"model": {"head": head}}
    return {**CONFIG, **model, "client": {"epochs": 1, "method": client, **check.get(client, {}), **own}}


@pytest.mark.parametrize("client", ["fedbabu", "moon", "fedfa", "fedgen"])
@pytest.mark.parametrize(
    ("model", "why"),
    [(HeadFirst, "'fc2' has 8 outputs, not the model's 10"), (Auxiliary, "'aux' is not called in forward")],
)
def test_another_layer_is_refused_and_the_head_named_which_then_goes(
    tmp_path: Path, client: str, model: type[nn.Module], why: str
) -> None:
    sentence = rf"client.method = '{client}' needs .* its last linear layer {why}; .*{{'head': 'classifier'}}}}$"
    with pytest.raises(FedscopeError, match=sentence):
        fedscope.train(given(client), tmp_path / "run", model=model)
    assert not (tmp_path / "run").exists()
    run = fedscope.train(given(client, "classifier"), tmp_path / "run", model=model)
    if client == "fedbabu":
        first, last = run.round(1).read("start").arrays(), run.round(2).read("global").arrays()
        assert np.array_equal(first["classifier.weight"], last["classifier.weight"])
        assert not np.array_equal(first["fc1.weight"], last["fc1.weight"])


def test_parts_of_an_average_and_muon_need_it_too(tmp_path: Path) -> None:
    parts = {**given(), "average": {"method": "wima", "window": 2, "parts": "classifier"}}
    with pytest.raises(FedscopeError, match=r"average.method = 'wima' needs .*'fc2' has 8 .*'head': 'classifier'}}$"):
        fedscope.train(parts, tmp_path / "run", model=HeadFirst)
    with pytest.raises(
        FedscopeError, match=r"client.optimiser = 'muon' needs .*'aux' is not .*'head': 'classifier'}}$"
    ):
        fedscope.train(given(optimiser="muon", lr=0.001), tmp_path / "run", model=Auxiliary)
    run = fedscope.train(given(), tmp_path / "run", model=HeadFirst)
    with pytest.raises(FedscopeError, match=r"parts='classifier' needs .* the head is classifier: train with .*all'$"):
        fedscope.wima(run, windows=[2], parts="classifier", model=HeadFirst)


def test_where_no_layer_is_the_head_another_method_is_advised(tmp_path: Path) -> None:
    with pytest.raises(
        FedscopeError, match=r"'fc1' has 30 outputs, not the model's 10; name .*, or give client='sgd'$"
    ):
        fedscope.train(given("fedbabu"), tmp_path / "run", model=NoHead)
    with pytest.raises(FedscopeError, match=r"'fc1' has 30 outputs, not the model's 10; name another layer"):
        fedscope.train(given("fedfa"), tmp_path / "run", model=NoHead)  # which takes no layer of 30 outputs
    fedscope.train(given(optimiser="muon", lr=0.001), tmp_path / "run", model=NoHead)


@pytest.mark.parametrize(
    ("settings", "otherwise"),
    [
        ({"client": {"method": "moon", "epochs": 1}}, "name another layer with .*, or give client='sgd'"),
        ({"client": {"method": "fedbabu", "epochs": 1}}, "name another layer with .*, or give client='sgd'"),
        (
            {"average": {"method": "wima", "window": 2, "parts": "classifier"}},
            r"give config={'average': {'parts': 'all'}}",
        ),
    ],
)
@pytest.mark.parametrize(("model", "outputs"), [(CutOutputs, 100), (TwoHeads, 4)])
def test_a_head_of_other_outputs_is_to_be_named_itself_which_then_goes(
    tmp_path: Path, settings: dict[str, Any], otherwise: str, model: type[nn.Module], outputs: int
) -> None:
    sentence = rf"'head' has {outputs} outputs, not the model's 10; name it if it is the head: .*'head'}}}}; "
    with pytest.raises(FedscopeError, match=f"{sentence}otherwise {otherwise}$"):
        fedscope.train({**given(), **settings}, tmp_path / "run", model=model)
    named = {**given(), **settings, "model": {"head": "head"}}
    assert fedscope.train(named, tmp_path / "run", model=model).rounds == (1, 2)


def test_a_head_that_is_used_without_a_call_serves_those_who_ask_for_its_numbers(tmp_path: Path) -> None:
    run = fedscope.train(given("fedbabu"), tmp_path / "run", model=Functional)
    first, last = run.round(1).read("start").arrays(), run.round(2).read("global").arrays()
    assert np.array_equal(first["head.weight"], last["head.weight"])
    with pytest.raises(FedscopeError, match=r"'head' is not called in forward; name another layer"):
        fedscope.train(given("moon"), tmp_path / "other", model=Functional)


def test_a_layer_named_by_hand_may_have_other_outputs_unless_it_is_asked_for_answers(tmp_path: Path) -> None:
    run = fedscope.train(given("fedbabu", "fc1"), tmp_path / "run", model=HeadFirst)
    first, last = run.round(1).read("start").arrays(), run.round(2).read("global").arrays()
    assert np.array_equal(first["fc1.weight"], last["fc1.weight"])
    with pytest.raises(
        FedscopeError, match=r"model.head = 'fc1' has 8 outputs, not the model's 10; .*'head': 'classifier'}}$"
    ):
        fedscope.train(given("fedfa", "fc1"), tmp_path / "other", model=HeadFirst)


@pytest.mark.parametrize(
    ("answer", "outputs"), [(lambda h: h, (6,)), (lambda h: h.unflatten(1, (2, 3)), (2, 3)), (lambda h: h[:, 0], ())]
)
def test_outputs_of_any_shape_are_told_from_a_layers(answer: Any, outputs: tuple[int, ...]) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(3, 5), nn.Linear(5, 6 if outputs else 1)

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = answer(self.head(self.body(x)))
            return made

    samples = Samples(torch.ones(4, 3), torch.zeros(4, dtype=torch.int64), 1, "toy", "train", np.arange(4))
    seen = seen_in_pass(Net(), samples)
    assert seen is not None
    assert (seen.called, seen.outputs) == (("body", "head"), outputs)
    assert seen.fits(6 if outputs else 1)
    assert not seen.fits(5)
