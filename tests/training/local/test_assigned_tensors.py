"""Clients whose network puts other tensors in the place of its own in ``forward``: as a loop written by hand."""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedscope import Samples
from fedscope.checkpoints import FedscopeWarning, Layout
from fedscope.evaluation.device import Compute
from fedscope.training.build import initial_model
from fedscope.training.local.engine import Engine
from fedscope.training.local.local_training import batches, local_sgd
from fedscope.training.local.trial_batch import try_batch
from fedscope.training.local.vectorized_model import why_not_vectorised
from fedscope.training.local.worker_model import TrainableModel
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.models.model_info import ModelInfo


class MaxNorm(nn.Linear):
    """As EEGNet's; counts its calls and keeps a mean of its inputs, all of them assigned."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data = torch.renorm(self.weight.data, p=2, dim=0, maxnorm=0.3)
        if self.training:
            self.mean, self.seen = 0.9 * self.mean + 0.1 * x.mean(0), self.seen + 1
        return super().forward(x - self.mean)


class MaxNormInPlace(MaxNorm):
    """The same, in place."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.copy_(torch.renorm(self.weight, p=2, dim=0, maxnorm=0.3))
        if self.training:
            self.mean.copy_(0.9 * self.mean + 0.1 * x.mean(0))
            self.seen.add_(1)
        return nn.Linear.forward(self, x - self.mean)


def net(kind: type[nn.Linear] = MaxNorm) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(kind(6, 5), nn.Tanh(), nn.Linear(5, 3))


def on(small: Any, module: nn.Module, **changes: Any) -> Any:
    facts = ModelInfo(Layout.of(module), classes=3)
    task = small.task(start=initial_model(module), bench=TrainableModel(module), facts=facts, x=small.x.float())
    return replace(task, **changes)


@pytest.mark.parametrize("kind", [MaxNorm, MaxNormInPlace])
def test_a_client_is_that_of_a_plain_loop(small: Any, kind: type[nn.Linear]) -> None:
    task, method = on(small, net(kind)), SGD(batch=4, momentum=0.9, weight_decay=0.01)
    update = local_sgd(task, method)
    plain = net(kind).train()
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for x, y in batches(task, method):
        optimiser.zero_grad()
        nn.functional.cross_entropy(plain(x), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    found = update.weights.arrays()
    for name, values in plain.state_dict().items():
        np.testing.assert_allclose(found[name], values.numpy(), rtol=1e-5, atol=1e-7, err_msg=name)
    assert update.weights.buffers["0.seen"] == update.steps == 6


@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_goes_on_from_client_to_client(small: Any, workers: int) -> None:
    module = net()
    tasks = [on(small, module, client=k, bench=None) for k in (1, 2, 3, 1)]
    trained = Engine(module, Compute(workers=workers)).train(SGD(batch=4), tasks, np.full(4, 0.25))
    assert trained.clients.buffers["0.seen"].tolist() == [6] * 4
    for values in (trained.clients.parameters, *trained.clients.buffers.values()):
        assert values[0].tobytes() == values[3].tobytes()
    alone = SGD(batch=4).train(on(small, module, client=2)).weights
    assert trained.clients.parameters[1].tobytes() == alone.parameters.tobytes()


def test_a_gradient_elsewhere_leaves_the_model_as_it_was(small: Any) -> None:
    task = on(small, net())
    bench, x, y = task.place, task.x[:4], task.y[:4]
    bench.begin(task)
    bench.loss(task.objective, x, y)
    before, other = bench.read(), torch.ones_like(bench.w)
    bench.gradient_at(task.objective, other, x, y, 0.0)
    after = bench.read()
    assert after.parameters.tobytes() == before.parameters.tobytes()
    assert {name: values.tolist() for name, values in after.buffers.items()} == {
        name: values.tolist() for name, values in before.buffers.items()
    }
    assert after.buffers["0.seen"] == 1


class Bound(nn.Linear):
    """Without buffers."""

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data = self.weight.data.clamp(-0.1, 0.1)
        return super().forward(x)


class BoundInPlace(nn.Linear):
    """The same, in place."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.copy_(self.weight.clamp(-0.1, 0.1))
        return super().forward(x)


def samples_of(small: Any) -> Samples:
    return Samples(small.x.float(), small.y, 3, "toy", "train", np.arange(40))


def test_such_clients_are_trained_one_by_one(small: Any) -> None:
    assert why_not_vectorised(net(Bound), samples_of(small)) == (
        "its forward puts other values in the place of its parameters (parameter.data = ...)"
    )
    assert why_not_vectorised(net(BoundInPlace), samples_of(small)) == ""


class Growing(nn.Module):
    """A buffer that takes in each batch."""

    def __init__(self, *, persistent: bool = True) -> None:
        super().__init__()
        self.a = nn.Linear(6, 3)
        self.register_buffer("kept", torch.zeros(0), persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.kept = torch.cat([self.kept, x.mean(0)])
        found: Tensor = self.a(x)
        return found


class Batch(nn.Module):
    """A buffer that holds the last batch, of four samples as it begins."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 3)
        self.register_buffer("batch", torch.zeros(4, 6))

    def forward(self, x: Tensor) -> Tensor:
        self.batch = x.detach()
        found: Tensor = self.a(x)
        return found


def tried(small: Any, module: nn.Module) -> list[str]:
    """What the trial of a network says."""
    data: Any = type("Data", (), {"y_test": [], "samples": lambda _, split: samples_of(small)})()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", FedscopeWarning)
        try_batch("mine", module, data, Compute(), np.arange(4))
    return [str(one.message) for one in told]


def test_what_no_model_can_hold_is_told_by_the_trial_and_trained(small: Any) -> None:
    kept = "no model can hold that, and models keep what was there before: keep its shape, or register it with"
    assert tried(small, Growing()) == [
        "the forward of a Growing puts a tensor of shape [6] in the place of kept, a buffer of type float32 [0]; "
        f"{kept} persistent=False"
    ]
    assert tried(small, Batch()) == [
        "the forward of a Batch puts a tensor of shape [3, 6] in the place of batch, a buffer of type float32 [4, 6]; "
        f"{kept} persistent=False"
    ]
    for module in (Growing(), Batch()):  # batches of four, four and three samples
        update = local_sgd(on(small, module), SGD(batch=4))
        assert update.steps == 6
        assert {name: list(values.shape) for name, values in update.weights.buffers.items()} == {
            name: list(values.shape) for name, values in module.named_buffers()
        }
    assert tried(small, Growing(persistent=False)) == tried(small, net()) == []


class Tying(nn.Module):
    """Ties the weights of two layers in ``forward``."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Any:
        self.b.weight = self.a.weight
        return self.out(self.b(torch.tanh(self.a(x))))


def test_weights_that_forward_ties_are_trained_as_in_a_plain_loop(small: Any) -> None:
    module = Tying()
    task, method = on(small, module), SGD(batch=4, momentum=0.9, weight_decay=0.01)
    update = local_sgd(task, method)
    plain = deepcopy(module).train()
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for x, y in batches(task, method):
        optimiser.zero_grad()
        nn.functional.cross_entropy(plain(x), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    found = update.weights.arrays()
    for name in ("a.weight", "out.weight", "out.bias"):
        np.testing.assert_allclose(found[name], plain.state_dict()[name].numpy(), rtol=1e-5, atol=1e-7, err_msg=name)
    assert found["b.weight"].tobytes() == module.b.weight.detach().numpy().tobytes(), "as no pass computes with it"
    assert tried(small, module) == []


def test_a_companion_of_such_a_network_computes_with_its_own_weights() -> None:
    bench, x = TrainableModel(Tying()), torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    bench.module(x)
    with torch.no_grad():
        bench.w.mul_(2)
        found = bench.companion(bench.read(), "before")(x)
        np.testing.assert_allclose(found.numpy(), bench.module.eval()(x).numpy(), rtol=1e-6)


class Hanging(nn.Module):
    """A running mean that is not detached."""

    def __init__(self, *, used: bool) -> None:
        super().__init__()
        self.a, self.used = nn.Linear(6, 3), used
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.a(x)
        self.mean = 0.9 * self.mean + found.mean(0) if self.used else found.mean(0)
        return found - self.mean if self.used else found


def test_a_buffer_that_hangs_on_the_batch_before_is_no_other_than_in_a_plain_loop(small: Any) -> None:
    with pytest.raises(RuntimeError, match=r"^Trying to backward through the graph a second time"):
        local_sgd(on(small, Hanging(used=True)), SGD(batch=4))
    update = local_sgd(on(small, Hanging(used=False)), SGD(batch=4))
    assert np.abs(update.weights.buffers["mean"]).min() > 0


def test_a_gradient_elsewhere_leaves_such_a_buffer_as_it_was(small: Any) -> None:
    task = on(small, Hanging(used=False))
    bench, (x, y) = task.place, next(batches(task, SGD(batch=4)))
    bench.loss(task.objective, x, y)
    before = bench.read().buffers["mean"]
    bench.gradient_at(task.objective, 2 * bench.w, 3 * x, y, 0.0)
    np.testing.assert_array_equal(bench.read().buffers["mean"], before)


def test_a_companion_is_the_model_that_it_was_given(small: Any) -> None:
    module = net()
    task = on(small, module)
    start = initial_model(module)
    with torch.no_grad():
        first = task.place.companion(start, "global")(task.x[:4])
        task.place.companion(replace(start, parameters=start.parameters * 0.5), "global")(task.x[:4])
        assert torch.equal(task.place.companion(start, "global")(task.x[:4]), first)
        assert torch.equal(first, deepcopy(module).eval()(task.x[:4]))
