"""Hooks of a backward pass: training keeps them, and no derivative that is measured passes through them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import Layout, Weights
from fedscope.decomposition.theory.tangent import tangent_kernel
from fedscope.evaluation.device import CPU
from fedscope.evaluation.model_replica import FlatModule
from fedscope.evaluation.samples import Samples
from fedscope.training.local.worker_model import TrainableModel
from fedscope.training.loop.model_probe import ModelProbe

DRAW = torch.Generator().manual_seed(0)
X = torch.randn(20, 6, generator=DRAW)
SAMPLES = Samples(X, X[:, :3].argmax(1), 3, "toy", "test", np.arange(20))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


def on_parameters(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))


def on_modules(module: nn.Module) -> None:
    module.get_submodule("1").register_full_backward_hook(lambda *_: (torch.zeros(20, 4),))


def before_modules(module: nn.Module) -> None:
    module.get_submodule("2").register_full_backward_pre_hook(lambda _, given: (given[0] * 0,))


def after_accumulation(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(_broken)


def _broken(*_: object) -> None:
    raise AssertionError("a measurement calls no hook")


HOOKS = [on_parameters, on_modules, before_modules, after_accumulation]


def weights_of(module: nn.Module) -> Weights:
    layout = Layout.of(module)
    return layout.flatten({name: value.detach().numpy() for name, value in module.state_dict().items()})


@pytest.mark.parametrize("hook", HOOKS)
def test_derivatives_are_those_of_the_function(hook: Any) -> None:
    plain, hooked = net(), net()
    hook(hooked)
    given = (X, SAMPLES.y)
    few: dict[str, Any] = {"data": given, "draws": 1, "top": 1, "probes": 2}
    found = [[one.value for one in fedscope.sharpness(own, **few).models[0].measures] for own in (plain, hooked)]
    assert found[0] == found[1]
    model = weights_of(plain)
    squared = [ModelProbe(own, SAMPLES, CPU).squared_gradients(model, "model") for own in (plain, hooked)]
    assert np.array_equal(*squared)
    assert squared[0].any()
    kernels = [tangent_kernel(own, X[:4], model) for own in (plain, hooked)]
    assert np.array_equal(*kernels)
    assert kernels[0].any()


def test_hooks_of_the_forward_pass_stay_and_training_keeps_all() -> None:
    module = net()
    module.get_submodule("0").register_forward_hook(lambda *given: given[2] * 2)
    on_parameters(module)
    on_modules(module)
    bench = FlatModule(module)
    assert torch.equal(bench.module(X), module(X))
    kept = [TrainableModel(module).module, module]
    for one in kept:
        assert all(len(parameter._backward_hooks or ()) == 1 for parameter in one.parameters())
        assert len(one.get_submodule("1")._backward_hooks) == 1
    assert not any(part._backward_hooks for part in bench.module.modules())
    assert not any(parameter._backward_hooks for parameter in bench.module.parameters())


class Lent(nn.Linear):
    """Is in all copies the same."""

    def __deepcopy__(self, memo: object) -> nn.Module:
        return self


def test_what_a_copy_shares_with_the_module_keeps_its_hooks() -> None:
    class Borrowing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lent, self.own = Lent(6, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            answer: Tensor = self.own(self.lent(x))
            return answer

    module = Borrowing()
    on_parameters(module)
    module.lent.register_full_backward_hook(lambda *_: None)
    copy = FlatModule(module).module
    assert copy.get_submodule("lent") is module.lent
    assert len(module.lent._backward_hooks) == 1
    assert module.lent.weight._backward_hooks
