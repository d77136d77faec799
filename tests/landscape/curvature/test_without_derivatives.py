"""What sharpness cannot differentiate is said in a sentence whose remedy works."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import fedscope
from fedscope.checkpoints import FedscopeError

X = torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
Y = X[:, :3].argmax(1)
QUICK: dict[str, Any] = {"data": (X, Y), "draws": 1}


def zero_one(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs.argmax(1) != y).float()


def linear(outputs: Tensor, y: Tensor) -> Tensor:
    return outputs[:, 0] - y


class Net(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.body, self.head, self.idle = nn.Linear(6, 4), nn.Linear(4, 3), nn.Linear(2, 2)
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.body(x))
        if self.how == "no_grad":
            with torch.no_grad():
                return self.head(h)  # type: ignore[no-any-return]
        if self.how == "detach":
            return self.head(h).detach()  # type: ignore[no-any-return]
        if self.how == "reentrant on data":
            return checkpoint(nn.Sequential(self.body, self.head), x, use_reentrant=True)  # type: ignore[no-any-return]
        if self.how == "reentrant beside":
            h = checkpoint(lambda x: torch.tanh(self.body(x)), x.detach().requires_grad_(), use_reentrant=True)
            return self.head(h)  # type: ignore[no-any-return]
        if self.how == "plain":
            return self.head(h)  # type: ignore[no-any-return]
        return checkpoint(self.head, h, use_reentrant=self.how == "reentrant")  # type: ignore[no-any-return]


NO_GRADIENT = (
    "the outputs of the Net have no gradient, and sharpness needs one: its forward computes under torch.no_grad() or "
    "in a checkpoint with use_reentrant=True, or detaches what it returns; take that out"
)
CASES: list[tuple[str, Any, str]] = [
    ("no_grad", None, NO_GRADIENT),
    ("detach", None, NO_GRADIENT),
    ("reentrant on data", None, NO_GRADIENT),
    (
        "plain",
        zero_one,
        f"the loss of the task {__name__}:zero_one has no gradient, and sharpness needs one; give task= a loss that "
        "can be differentiated",
    ),
    (
        "reentrant",
        None,
        "the forward of the Net calls torch.utils.checkpoint with use_reentrant=True, which torch takes in training "
        "alone; give it use_reentrant=False",
    ),
    (
        "reentrant beside",
        None,
        "backward() gives the Net other gradients than torch.autograd.grad, as it does behind a checkpoint with "
        "use_reentrant=True; give that use_reentrant=False",
    ),
]


@pytest.mark.parametrize("hessian", [True, False])
@pytest.mark.parametrize(("how", "task", "sentence"), CASES)
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_what_has_no_gradient_is_said(how: str, task: Any, sentence: str, hessian: bool) -> None:
    more = {"top": 1, "probes": 1} if hessian else {}
    with pytest.raises(FedscopeError) as refusal:
        fedscope.sharpness(Net(how), task=task, hessian=hessian, **QUICK, **more)
    assert str(refusal.value) == sentence


def test_what_has_no_second_derivative_is_measured_without_it() -> None:
    asked = {**QUICK, "task": nn.MultiMarginLoss()}
    with pytest.raises(FedscopeError) as refusal:
        fedscope.sharpness(Net("plain"), top=1, probes=1, **asked)
    assert str(refusal.value) == (
        "the loss of the Net cannot be differentiated twice (derivative for aten::multi_margin_loss_backward is not "
        "implemented); leave the Hessian out (hessian=False)"
    )
    measures = fedscope.sharpness(Net("plain"), hessian=False, **asked).models[0].measures
    assert all(one.value is not None for one in measures)


def test_a_loss_that_is_linear_has_a_hessian_of_zeros() -> None:
    torch.manual_seed(0)
    made = fedscope.sharpness(nn.Linear(6, 1), task=linear, top=1, probes=2, data=(X, Y.float()), draws=1).models[0]
    values = {one.name: one.value for one in made.measures}
    assert (values["eigenvalue_1"], values["eigenvalue_min"], values["trace"]) == (0.0, 0.0, 0.0)
    assert values["gradient_norm"] > 0  # type: ignore[operator]


def test_a_loss_that_is_piecewise_linear_has_a_hessian_of_zeros() -> None:
    torch.manual_seed(0)
    x = torch.randn(20, 200)
    asked: dict[str, Any] = {"data": (x, x[:, 0]), "draws": 1, "task": nn.L1Loss()}
    made = fedscope.sharpness(nn.Linear(200, 1), top=2, probes=2, **asked).models[0]
    values = {one.name: one.value for one in made.measures}
    assert [values[f"eigenvalue_{i}"] for i in (1, 2, "min")] == [0.0, 0.0, 0.0]
    assert values["trace"] == 0.0


def test_checkpoints_that_are_not_reentrant_give_the_same_numbers() -> None:
    found = []
    for how in ("plain", "other"):
        torch.manual_seed(0)
        found.append(fedscope.sharpness(Net(how), top=1, probes=2, **QUICK).models[0].measures)
    for one, other in zip(*found, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-5)


def test_layers_that_a_loss_does_not_depend_on_have_zeros() -> None:
    torch.manual_seed(0)
    made = fedscope.sharpness(Net("plain"), layers="idle", top=1, probes=2, **QUICK)
    values = {one.name: one.value for one in made.models[0].measures}
    assert (values["gradient_norm"], values["sam"], values["trace"]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("bag", [True, False])
def test_sparse_gradients_are_as_dense_ones(bag: bool) -> None:
    class Words(nn.Module):
        def __init__(self, sparse: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            of: Any = nn.EmbeddingBag if bag else nn.Embedding
            self.words, self.head = of(5, 4, sparse=sparse), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.words(x) if bag else self.words(x).mean(1))  # type: ignore[no-any-return]

    x = torch.randint(5, (20, 6), generator=torch.Generator().manual_seed(0))
    asked: dict[str, Any] = {"data": (x, Y), "draws": 1, "task": "sequence-classification"}
    # torch cannot differentiate a bag twice
    asked |= {"hessian": False} if bag else {"top": 1, "probes": 2}
    sparse, plain = (fedscope.sharpness(Words(sparse), **asked).models[0].measures for sparse in (True, False))
    assert [one.name for one in sparse] == [one.name for one in plain]
    for one, other in zip(sparse, plain, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-5, abs=1e-8)


class Frees(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.z = z
        return z**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        z = ctx.z
        del ctx.z
        return g * 3 * z * z


class Cubes(nn.Module):
    def __init__(self, frees: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.frees = nn.Linear(6, 4), nn.Linear(4, 3), frees

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        return self.head(Frees.apply(h) if self.frees else h**3)  # type: ignore[no-untyped-call, no-any-return]


def test_a_backward_that_frees_what_it_saved_is_gone_through_once() -> None:
    with pytest.raises(FedscopeError) as refusal:
        fedscope.sharpness(Cubes(True), top=1, probes=1, **QUICK)
    assert str(refusal.value) == (
        "the loss of the Cubes cannot be differentiated twice ('FreesBackward' object has no attribute 'z'); leave the "
        "Hessian out (hessian=False)"
    )
    own, plain = (
        fedscope.sharpness(Cubes(frees), hessian=False, **QUICK).models[0].measures for frees in (True, False)
    )
    assert [one.name for one in own] == [one.name for one in plain]
    for one, other in zip(own, plain, strict=True):
        assert one.value == pytest.approx(other.value, rel=1e-4)


def test_a_loss_with_parameters_keeps_its_gradients() -> None:
    class Weighed(nn.Module):
        def __init__(self, how: str) -> None:
            super().__init__()
            self.w, self.how = nn.Parameter(torch.ones(3)), how

        def forward(self, outputs: Tensor, y: Tensor) -> Tensor:
            if self.how == "function":
                outputs = Frees.apply(outputs)  # type: ignore[no-untyped-call]
            return nn.functional.cross_entropy(outputs * self.w, y, reduction="none")

    more: dict[str, Any]
    for how, more in (("plain", {"top": 1, "probes": 1}), ("function", {"hessian": False})):
        task = Weighed(how)
        fedscope.sharpness(Net("plain"), task=task, **more, **QUICK)
        assert task.w.grad is None
        before = task.w.grad = torch.full((3,), 2.0)
        fedscope.sharpness(Net("plain"), task=task, **more, **QUICK)
        assert task.w.grad is before
        assert before.tolist() == [2.0, 2.0, 2.0]
