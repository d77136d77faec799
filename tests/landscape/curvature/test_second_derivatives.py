"""Second derivatives that torch has wrong: made right, refused or told; kinks are none of these."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedscope
from fedscope.checkpoints import FedscopeError, Layout, Weights
from fedscope.checkpoints.io.errors import FedscopeWarning
from fedscope.evaluation.samples import Samples
from fedscope.landscape.curvature.derivatives import Derivatives

X = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(30) % 3
ASKED: dict[str, Any] = {"data": (X, Y), "draws": 1, "top": 1, "probes": 2}


def hessian(module: nn.Module, x: Tensor = X) -> np.ndarray:
    """As fedscope has it, column by column."""
    flat = torch.cat([one.detach().reshape(-1) for one in module.parameters()]).numpy()
    samples = Samples(x, Y[: len(x)], 3, "toy", "test", np.arange(len(x)))
    return Derivatives(module, samples).products(Weights(Layout.of(module), flat, {}), np.eye(len(flat)))


def by_hand(module: nn.Module, loss: Callable[..., Tensor]) -> np.ndarray:
    """The same of a loss of the parameters in float64."""
    shapes = [one.shape for one in module.parameters()]
    flat = torch.cat([one.detach().reshape(-1) for one in module.parameters()]).double()

    def of(w: Tensor) -> Tensor:
        parts = w.split([shape.numel() for shape in shapes])
        return loss(*(part.view(shape) for part, shape in zip(parts, shapes, strict=True)))

    return np.asarray(torch.autograd.functional.hessian(of, flat))  # type: ignore[no-untyped-call]


def normed(v: Tensor, g: Tensor, *axes: int) -> Tensor:
    return v * (g / v.square().sum(axes or None, keepdim=bool(axes)).sqrt())


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`:FutureWarning")
@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("old", [True, False])
def test_weight_normalization_has_the_hessian_of_its_loss(old: bool, dim: int | None) -> None:
    torch.manual_seed(0)
    norm: Any = nn.utils.weight_norm if old else nn.utils.parametrizations.weight_norm
    net = nn.Sequential(norm(nn.Linear(6, 4), dim=dim), nn.Tanh(), nn.Linear(4, 3))
    axes = {0: (1,), 1: (0,), None: ()}[dim]

    def loss(bias: Tensor, g: Tensor, v: Tensor, weight: Tensor, other: Tensor) -> Tensor:
        return cross_entropy(torch.tanh(X.double() @ normed(v, g, *axes).T + bias) @ weight.T + other, Y)

    right = by_hand(net, loss)
    assert np.abs(hessian(net) - right).max() < 1e-5 * np.abs(right).max()


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)
        return z**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        return g * 3 * z * z


class Once(Cube):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        return g * 3 * z * z


class Held(Cube):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        return g.detach() * 3 * z * z


class Saved(Cube):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        return g * 3 * (z * z).detach()


class Net(nn.Module):
    def __init__(self, cube: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.cube = nn.Linear(6, 4), nn.Linear(4, 3), cube

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cube.apply(self.body(x)))  # type: ignore[no-any-return]


REFUSED = {
    Once: "the loss of the Net cannot be differentiated twice (trying to differentiate twice a function that was "
    "marked with @once_differentiable); leave the Hessian out (hessian=False)",
    Held: "torch's second derivative of the Net is wrong, for its matrix is not symmetric, as behind an "
    "autograd.Function whose backward cannot be differentiated again; write that in torch's own operations, or leave "
    "the Hessian out (hessian=False)",
}


@pytest.mark.parametrize("cube", REFUSED)
def test_a_backward_that_is_differentiated_once_is_refused(cube: Any) -> None:
    with pytest.raises(FedscopeError) as refusal:
        fedscope.sharpness(Net(cube), **ASKED)
    assert str(refusal.value) == REFUSED[cube]
    assert fedscope.sharpness(Net(cube), data=(X, Y), draws=1, hessian=False).models[0].measures


def told_of(name: str) -> str:
    return (
        f"the Hessian of the {name} is not that of its loss: gradients nearby differ by something else, as behind "
        "detach(), a straight-through gradient or an autograd.Function that saves what it has computed; write that in "
        "torch's own operations, or leave the Hessian out (hessian=False)"
    )


def test_a_hessian_that_is_not_the_gradients_derivative_is_told() -> None:
    with pytest.warns(FedscopeWarning) as told:
        fedscope.sharpness(Net(Saved), **ASKED)
    assert [str(one.message) for one in told] == [told_of("Net")]


def test_an_own_function_that_is_differentiated_twice_is_measured() -> None:
    net = Net(Cube)
    right = by_hand(net, lambda a, b, c, d: cross_entropy(((X.double() @ a.T + b) ** 3) @ c.T + d, Y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.abs(hessian(net) - right).max() < 1e-5 * np.abs(right).max()


def test_kinks_refuse_and_tell_nothing() -> None:
    torch.manual_seed(0)
    x = torch.rand(30, 1, 8, 8)
    x[:, :, :4] = 0  # at a kink, where the biases are 0
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    for layer in (net[0], net[4]):
        nn.init.zeros_(layer.bias)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = hessian(net, x)
    assert np.abs(found - found.T).max() < 1e-5 * np.abs(found).max()


class Squared(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) ** 2


class StraightThrough(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = nn.functional.elu(x)
        return h + (torch.sign(h) - h).detach()


def squared_hinge(outputs: Tensor, y: Tensor) -> Tensor:
    return torch.relu(1 - outputs.gather(1, y[:, None])[:, 0]).square()


def at_zero(act: nn.Module) -> nn.Module:
    """A network whose activations are at 0 in rows of zeros."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), act, nn.Linear(8, 3))
    nn.init.zeros_(net[0].bias)
    return net


ROWS = torch.where(torch.arange(30)[:, None] % 2 == 0, X, torch.zeros(()))


@pytest.mark.parametrize("act", [nn.ELU(), nn.CELU(), Squared()])
def test_a_kink_of_the_gradient_at_a_sample_tells_nothing(act: nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fedscope.sharpness(at_zero(act), **ASKED | {"data": (ROWS, Y)})


@pytest.mark.parametrize("first", [True, False])
def test_layers_that_begin_with_zeros_tell_nothing(first: bool) -> None:
    net: Any = at_zero(nn.ELU())
    if first:
        nn.init.zeros_(net[0].weight)
    else:  # at the kink of the hinge
        nn.init.zeros_(net[2].weight)
        nn.init.ones_(net[2].bias)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fedscope.sharpness(net, **ASKED, task=None if first else squared_hinge)


def test_a_straight_through_gradient_at_a_kink_is_told() -> None:
    with pytest.warns(FedscopeWarning) as told:
        fedscope.sharpness(at_zero(StraightThrough()), **ASKED | {"data": (ROWS, Y)})
    assert [str(one.message) for one in told] == [told_of("Sequential")]


def test_derivatives_of_layers_are_tried_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, try_twice = [], Derivatives._try_twice

    def counted(self: Derivatives, model: Weights) -> bool:
        asked.append(1)
        return try_twice(self, model)

    monkeypatch.setattr(Derivatives, "_try_twice", counted)
    norm = nn.utils.parametrizations.weight_norm
    torch.manual_seed(0)
    net = nn.Sequential(norm(nn.Linear(6, 4)), nn.Tanh(), nn.Linear(4, 3))
    together = fedscope.sharpness(net, **ASKED, layers="each").models
    assert (len(together), len(asked)) == (4, 1)


def test_a_network_of_one_type_is_asked_in_it() -> None:
    class Single(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.cube.apply(self.body(x)) + torch.zeros(len(x), 4).float()).float() @ torch.eye(3)

    assert np.abs(hessian(Single(Cube)) - hessian(Net(Cube))).max() < 1e-6
    with pytest.raises(FedscopeError, match="is not symmetric"):
        hessian(Single(Held))
