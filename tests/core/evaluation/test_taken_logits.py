"""Outputs that are no tensor: everywhere the logits in them give the numbers that a module of tensors gives."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import FedscopeWarning
from fedscope.evaluation.module_copy import copy_module
from fedscope.evaluation.taken_logits import taken_from

pytestmark = pytest.mark.same_elsewhere


@dataclass
class Answer:
    """As networks for language answer."""

    loss: Tensor | None
    logits: Tensor


WRAPS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "object": (lambda y: Answer(None, y), "its outputs are an Answer, of which .logits is taken"),
    "dict": (lambda y: {"loss": y.mean(), "logits": y}, 'its outputs are a dict, of which "logits" is taken'),
    "out": (lambda y: {"aux": -y, "out": y}, 'its outputs are a dict, of which "out" is taken'),
    "only": (lambda y: {"head": y, "names": ["a"]}, 'its outputs are a dict, of which "head" is taken'),
    "tuple": (lambda y: (y, -y), "its outputs are a tuple of 2, of which the first is taken"),
    "list": (lambda y: [y], "its outputs are a list of 1, of which the first is taken"),
}


class Net(nn.Module):
    def __init__(self, wrap: str = "", seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.first, self.head = nn.Linear(6, 5), nn.Linear(5, 3)
        self.wrap = wrap

    def forward(self, x: Tensor) -> Any:
        y = self.head(self.first(x.flatten(1)).tanh())
        return WRAPS[self.wrap][0](y) if self.wrap else y


def data(n: int = 60) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(1))
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()


def quietly(question: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FedscopeWarning)
        return question()


QUESTIONS: dict[str, Callable[[list[Net]], np.ndarray]] = {
    "line": lambda nets: fedscope.line(nets[:2], data=data(), points=5).loss,
    "layer line": lambda nets: fedscope.line(nets[:2], data=data(), points=3, layers="each").loss,
    "plane": lambda nets: fedscope.plane(nets, data=data(), grid=5).loss,
    "sharpness": lambda nets: np.array(
        [one.value for _, one in fedscope.sharpness(nets[:1], data=data(), split="test").measures()]
    ),
}


@pytest.mark.parametrize(
    ("question", "wrap"), [*((question, "object") for question in QUESTIONS), *(("line", wrap) for wrap in WRAPS)]
)
def test_questions_have_the_numbers_of_a_module_of_tensors(question: str, wrap: str) -> None:
    ask = QUESTIONS[question]
    plain = quietly(partial(ask, [Net(seed=k) for k in range(3)]))
    assert np.array_equal(quietly(partial(ask, [Net(wrap, k) for k in range(3)])), plain)


@pytest.mark.parametrize("wrap", WRAPS)
def test_what_is_taken_is_said_and_kept(wrap: str) -> None:
    nets = [Net(wrap, k) for k in range(2)]
    with pytest.warns(FedscopeWarning) as told:
        line = fedscope.line(nets, data=data(), points=3)
    said = WRAPS[wrap][1]
    assert [str(one.message) for one in told if "outputs" in str(one.message)] == [
        f"the model returns no tensor: {said}"
    ]
    assert line.attrs["outputs"] == said
    assert not nets[0]._forward_hooks  # the user's own module is left as it is


def test_a_tensor_is_not_spoken_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        line = fedscope.line([Net(seed=k) for k in range(2)], data=data(), points=3)
    assert "outputs" not in line.attrs


def test_copies_of_copies_take_once() -> None:
    copy = copy_module(copy_module(Net("tuple")))
    assert len(copy._forward_hooks) == 1
    assert taken_from(copy) == ""
    assert copy(data()[0]).shape == (60, 3)
    assert taken_from(copy) == WRAPS["tuple"][1]


RUN_QUESTIONS: dict[str, Callable[..., Any]] = {
    "subsets": fedscope.subsets,
    "matrix": fedscope.matrix,
    "forgetting": fedscope.forgetting,
    "decompose": partial(fedscope.decompose, draws="local:2"),
    "theory": partial(fedscope.theory, draws=2, kernel=2, kernel_samples=20, dimension=8),
    "sharpness": partial(fedscope.sharpness, split="test"),
    "cka": fedscope.cka,
}


@pytest.mark.slow
def test_a_model_of_ones_own_is_trained_and_asked_by_its_logits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = (part.numpy() for part in data(200))
    both = ((x[:160], y[:160]), (x[160:], y[160:]))
    found: dict[str, dict[str, Any]] = {}
    for wrap in ("", "object"):
        folder = tmp_path / f"of-{wrap}"
        folder.mkdir()
        monkeypatch.chdir(folder)
        own: dict[str, Any] = {"model": Net(wrap), "data": both}
        run = quietly(partial(fedscope.train, rounds=2, clients=4, participation=1.0, out="run", **own))
        assert run.info.get("outputs", "") == ("its outputs are an Answer, of which .logits is taken" if wrap else "")
        found[wrap] = {"global": run.round(2).read("global").parameters.tolist()}
        for name, ask in RUN_QUESTIONS.items():
            found[wrap][name] = numbers(quietly(partial(ask, "run", rounds=2, **own)))
    for name, plain in found[""].items():
        assert found["object"][name] == plain, name


def numbers(result: Any) -> str:
    """What a result says, but for where it is from."""
    if hasattr(result, "rows"):
        return repr([None if part is None else list(map(list, part)) for part in result.rows()])
    return repr([{name: np.asarray(one[1]).tolist() for name, one in part.items()} for part in result.arrays()])


class Digits(nn.Module):
    """A network of the digits that wraps its outputs, always or in training alone."""

    def __init__(self, wrap: str = "", *, trained_alone: bool = False) -> None:
        super().__init__()
        self.flat, self.head, self.wrap, self.alone = nn.Flatten(), nn.Linear(64, 10), wrap, trained_alone

    def forward(self, x: Tensor) -> Any:
        y = self.head(self.flat(x))
        return WRAPS[self.wrap][0](y) if self.wrap and (self.training or not self.alone) else y


@pytest.mark.usefixtures("few_digits")
@pytest.mark.parametrize("client", ["sgd", "fedntd", "fedfa", "fedgen"])
def test_training_has_the_numbers_of_a_module_of_tensors(client: str, tmp_path: Path) -> None:
    found = []
    for k, model in enumerate((Digits, partial(Digits, "out"), partial(Digits, "only"), partial(Digits, "dict"))):
        fixed: dict[str, Any] = {"clients": 8, "participation": 1, "rounds": 2, "epochs": 1, "partition": "iid"}
        run = quietly(partial(fedscope.train, out=tmp_path / str(k), model=model, client=client, **fixed))
        found.append(run.round(2).read("global").parameters.tobytes())
    assert len(set(found)) == 1
    alone = partial(Digits, "out", trained_alone=True)
    run = quietly(partial(fedscope.train, out=tmp_path / "alone", model=alone, client=client, **fixed))
    assert run.round(2).read("global").parameters.tobytes() == found[0]
