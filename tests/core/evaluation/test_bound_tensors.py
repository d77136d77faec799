"""Modules whose ``forward`` puts other tensors in the place of their own: as those that change theirs in place."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedscope
from fedscope.checkpoints import Layout, Weights
from fedscope.evaluation import layered_replica
from fedscope.evaluation.bound_tensors import BoundTensors
from fedscope.evaluation.first_layer_cache import first_layer
from fedscope.evaluation.layered_replica import LayeredReplica, answers_in_layers, replica_for
from fedscope.evaluation.model_replica import Replica

X, Y = torch.randn(60, 6, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3


class Assigned(nn.Linear):
    """A max-norm layer, as EEGNet's."""

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data = torch.renorm(self.weight.data, p=2, dim=0, maxnorm=0.5)
        return super().forward(x)


class InPlace(nn.Linear):
    """The same, in place."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.copy_(torch.renorm(self.weight, p=2, dim=0, maxnorm=0.5))
        return super().forward(x)


def net(first: type[nn.Linear], seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(first(6, 5), nn.Tanh(), nn.Linear(5, 3))


def vector(module: nn.Module) -> np.ndarray:
    return nn.utils.parameters_to_vector(module.parameters()).detach().numpy()


@pytest.mark.parametrize("kind", [Assigned, InPlace])
def test_each_model_is_measured_as_it_was_given(kind: type[nn.Linear]) -> None:
    module, other = net(kind), net(kind, 1)
    replica = Replica(module)
    found = []
    for which in (other, module, other):
        replica.load(vector(which), {})
        found.append(replica.logits(X).clone())
    assert torch.equal(found[0], found[2])
    for output, which in zip(found, (other, module), strict=False):
        with torch.no_grad():
            assert torch.equal(output, deepcopy(which)(X))
    models = [Weights(replica.layout, vector(which), {}) for which in (module, other)]
    replica.combine(models, (0.5, 0.5))
    middle = deepcopy(module)
    nn.utils.vector_to_parameters(torch.from_numpy((vector(module) + vector(other)) / 2), middle.parameters())
    with torch.no_grad():
        torch.testing.assert_close(replica.logits(X), middle(X))


def test_a_line_has_the_losses_of_the_models_on_it() -> None:
    lines = [
        fedscope.line([net(kind), net(kind, 1)], points=5, data=(X.numpy(), Y.numpy())) for kind in (Assigned, InPlace)
    ]
    assert np.array_equal(lines[0].loss, lines[1].loss)


class Outer(nn.Module):
    """Changes the weights of its first layer, a plain one, before it calls it."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.a, self.h, self.how = nn.Linear(200, 4), nn.Linear(4, 3), how

    def forward(self, x: Tensor) -> Tensor:
        bound = torch.renorm(self.a.weight.detach(), p=2, dim=0, maxnorm=0.1)
        if self.how == "assigned":
            self.a.weight.data = bound
        elif self.how == "in place":
            with torch.no_grad():
                self.a.weight.copy_(bound)
        found: Tensor = self.h(self.a(x))
        return found


@pytest.mark.parametrize(("how", "alone"), [("assigned", True), ("in place", True), ("plain", False)])
def test_a_first_layer_whose_weights_are_changed_is_computed_at_every_point(how: str, alone: bool) -> None:
    assert (first_layer(Outer(how), torch.ones(2, 200)) is None) is alone


@pytest.mark.parametrize(("kind", "layered"), [(nn.Linear, True), (Assigned, True), (InPlace, False)])
def test_a_module_that_writes_to_its_weights_has_them_to_itself(
    kind: type[nn.Linear], layered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layered_replica, "LARGE", 1)
    module = net(kind)
    assert answers_in_layers(LayeredReplica(module), X) is layered
    replica, given = replica_for(module, X), vector(module).copy()
    replica.load(given, {})
    with torch.no_grad():
        torch.testing.assert_close(replica.logits(X), deepcopy(module)(X))
    assert np.array_equal(given, vector(module))


class Counting(nn.Module):
    """Assigns its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.5 * self.mean + 0.5 * x.mean(0)
        self.seen = self.seen + 1
        found: Tensor = self.a(x - self.mean)
        return found


@pytest.mark.parametrize("layered", [False, True])
def test_buffers_that_forward_assigns_are_read_and_loaded(layered: bool) -> None:
    replica = LayeredReplica(Counting()) if layered else Replica(Counting())
    start = {"mean": np.zeros(6, np.float32), "seen": np.array(3)}
    for _ in range(2):
        replica.load(np.zeros(replica.layout.size, np.float32), start)
        assert {name: values.tolist() for name, values in replica.buffers().items()} == {"mean": [0.0] * 6, "seen": 3}
        replica.logits(X)
        replica.logits(X)
        assert int(replica.buffers()["seen"]) == 5
        np.testing.assert_allclose(replica.buffers()["mean"], 0.75 * X.mean(0).numpy(), rtol=1e-5)


def test_buffers_that_change_places_are_both_kept() -> None:
    module = Counting()
    bound = BoundTensors(module, Layout.of(module))
    kept, module.mean, module.seen = module.mean, torch.arange(6.0), module.seen
    bound.settle()
    assert module.mean is kept
    assert kept.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert bound.left
    module.mean = kept.flip(0)
    bound.put_back()
    assert module.mean.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


class Shared(nn.Module):
    """Two layers with one buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Counting(), Counting()
        self.two.mean = self.one.mean


def other_shape(module: Any) -> None:
    module.one.mean = torch.zeros(2)


def other_kind(module: Any) -> None:
    module.one.seen = module.one.seen + 0.5


def nothing(module: Any) -> None:
    module.one.seen = None


def another(module: Any) -> None:
    module.one.a.weight = nn.Parameter(torch.zeros(3, 6))


def longer(module: Any) -> None:
    module.one.a.bias.data = torch.zeros(4)


def sparse(module: Any) -> None:
    module.one.mean = torch.zeros(6).to_sparse()


def parted(module: Any) -> None:
    module.one.mean = module.one.mean + 1


@pytest.mark.parametrize(
    ("change", "name", "said"),
    [
        (
            other_shape,
            "one.mean",
            "a tensor of shape [2] in the place of one.mean, a buffer of type float32 [6]; no model can hold that, and "
            "models keep what was there before: keep its shape, or register it with persistent=False",
        ),
        (
            other_kind,
            "one.seen",
            "a tensor of type float32 in the place of one.seen, a buffer of type int64 []; no model can hold that, and "
            "models keep what was there before: keep its type, or register it as float32",
        ),
        (
            longer,
            "one.a.bias",
            "a tensor of shape [4] in the place of one.a.bias, a parameter of type float32 [3]; no model can hold "
            "that, and models keep what was there before: keep its shape",
        ),
        (
            nothing,
            "one.seen",
            "nothing in the place of one.seen, a buffer of type int64 []; no model can hold that, and models keep what "
            "was there before: change it in place (self.seen.copy_(...))",
        ),
        (
            sparse,
            "one.mean",
            "a sparse tensor in the place of one.mean, a buffer of type float32 [6]; no model can hold that, and "
            "models keep what was there before: change it in place (self.mean.copy_(...))",
        ),
        (
            another,
            "one.a.weight",
            "another parameter, which no optimiser steps, in the place of one.a.weight, a parameter of type float32 "
            "[3, 6]; no model can hold that, and models keep what was there before: change it in place (with "
            "torch.no_grad(): self.weight.copy_(...))",
        ),
    ],
)
def test_what_no_model_can_hold_stays_until_the_next_is_loaded(change: Any, name: str, said: str) -> None:
    module = Shared()
    module.two.mean = torch.zeros(6)
    bound, before = BoundTensors(module, Layout.of(module)), deepcopy(module.state_dict())
    change(module)
    module.two.mean = torch.ones(6)
    bound.settle()
    assert bound.unheld == {name: f"the forward of a Shared puts {said}"}
    assert module.two.mean.tolist() == [1.0] * 6, "what can be held is taken over"
    bound.put_back()
    after = module.state_dict()
    del before["two.mean"]
    for key, values in before.items():
        assert torch.equal(after[key], values), key


def test_a_shared_buffer_is_not_parted() -> None:
    module = Shared()
    bound = BoundTensors(module, Layout.of(module))
    parted(module)
    bound.settle()
    said = (
        "the forward of a Shared puts another tensor in the place of two.mean, which two of its layers share, in one "
        "of them alone; models keep what was there before: change it in place (self.mean.copy_(...))"
    )
    assert bound.unheld == {"two.mean": said}
    module.two.mean = module.one.mean
    bound.settle()
    assert module.one.mean is module.two.mean
    assert module.one.mean.tolist() == [1.0] * 6


def test_the_same_memory_in_another_order_is_taken_over() -> None:
    module = nn.Linear(2, 2)
    bound, before = BoundTensors(module, Layout.of(module)), module.weight.detach().clone()
    memory = module.weight.data
    module.weight.data = module.weight.data.t()
    bound.settle()
    assert torch.equal(memory, before.t())
    assert module.weight.stride() == memory.stride()
    module.weight.data = module.weight.data[:1]
    bound.put_back()
    assert torch.equal(module.weight, before.t())


class Tying(nn.Module):
    """Ties the weights of its layers when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)

    def forward(self, x: Tensor) -> Any:
        self.b.weight = self.a.weight
        return self.b(self.a(x))


def test_weights_that_forward_ties_are_measured_tied() -> None:
    module, other = Tying(), Tying()
    replica = Replica(module)
    for which in (other, module):
        replica.load(vector(which), {})
        with torch.no_grad():
            assert torch.equal(replica.logits(X), deepcopy(which)(X))
        replica.settle()
        assert np.array_equal(replica.w.numpy(), vector(which))
    assert not replica._bound.unheld
