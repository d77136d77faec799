"""Models of linear layers in one pass on a device: which can be, and that each has the numbers it has alone."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from device.pretend import loaded
from random_models import random_models, random_samples
from torch import Tensor, nn

from fedscope.checkpoints import Layout, Weights
from fedscope.evaluation.device import Compute
from fedscope.evaluation.evaluator import Evaluator
from fedscope.evaluation.model_replica import Replica
from fedscope.evaluation.samples import Samples
from fedscope.evaluation.stacked_models import STACKED, PostponingReplica, StackedModels, stacked_models
from fedscope.landscape import line, plane
from fedscope.training.models.sequential import Classifier, linear_layers

pytestmark = pytest.mark.device


def flat(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Flatten(), *layers)


class Skip(nn.Module):
    """The head sees the samples, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(12, 12), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.head(self.first(x).relu() + x)


class Twice(nn.Module):
    """One layer used twice, and a sum over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(4, 4, bias=False), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(self.first(x).tanh()).flatten(1, 2).sum(1))


class Beside(nn.Module):
    """What a sample's output is depends on the others of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.head(x.flatten(1))
        return outputs - outputs.mean(0)


def shared() -> nn.Module:
    one, other = nn.Linear(12, 12), nn.Linear(12, 12)
    other.weight = one.weight
    return flat(one, nn.ReLU(), other, nn.Linear(12, 3))


STACK: dict[str, Callable[[], nn.Module]] = {
    "one layer": lambda: flat(nn.Linear(12, 3)),
    "without biases": lambda: flat(nn.Linear(12, 7, bias=False), nn.ReLU(), nn.Linear(7, 3, bias=False)),
    "the built-in": lambda: Classifier([("flatten", nn.Flatten()), *linear_layers([12, 9, 5])], nn.Linear(5, 3)),
    "dropout, softplus": lambda: flat(nn.Linear(12, 7), nn.Softplus(), nn.Dropout(0.5), nn.Linear(7, 3)),
    "twice, positions": Twice,
}
ALONE: dict[str, Callable[[], nn.Module]] = {
    "a skip": Skip,
    "batch": Beside,
    "shared weights": shared,
    "convolution": lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(24, 3)),
    "normalization": lambda: flat(nn.Linear(12, 7), nn.LayerNorm(7), nn.Linear(7, 3)),
    "statistics": lambda: flat(nn.Linear(12, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)),
    "weight norm": lambda: flat(nn.utils.parametrizations.weight_norm(nn.Linear(12, 3))),
    "too large": lambda: flat(nn.Linear(12, 70_000), nn.Linear(70_000, 3)),
}


def data() -> Samples:
    return random_samples(50, (1, 3, 4), seed=4)


@pytest.mark.parametrize("name", STACK)
def test_models_in_one_pass_have_the_processors_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module, samples = STACK[name](), data()
    models = random_models(module, STACKED + 3)
    weights = [model.weights for model in models]
    passes = []
    whole = StackedModels.logits
    monkeypatch.setattr(StackedModels, "logits", lambda own, x, n: passes.append(n) or whole(own, x, n))
    for batch in (None, 7):
        evaluator = Evaluator(module, samples, compute=Compute("pretend"), batch=batch)
        passes.clear()
        loss, error = evaluator.models(weights)
        assert len(passes) == 2 * (1 if batch is None else 8)
        own, wrong = Evaluator(module, samples, batch=batch).models(weights)
        np.testing.assert_allclose(loss, own, rtol=1e-5)
        np.testing.assert_allclose(error, wrong, rtol=1e-12)
        # which models are beside it changes no more than the last bits of a float32
        np.testing.assert_allclose(evaluator.models(weights[5])[0], loss[5:6], rtol=1e-6)
        np.testing.assert_allclose(evaluator.models(weights[::-1])[0], loss[::-1], rtol=1e-6)
    here, there, both = (
        plane(module, samples, models[:3], grid=7, compute=Compute(where))
        for where in ("cpu", "pretend:1", "pretend:0,pretend:1")
    )
    np.testing.assert_allclose(there.loss, here.loss, rtol=1e-5)
    assert np.array_equal(there.loss, both.loss)
    assert np.array_equal(there.error, both.error)


@pytest.mark.parametrize("name", ALONE)
def test_others_are_measured_one_by_one(name: str) -> None:
    torch.manual_seed(0)
    module, samples = ALONE[name](), data()
    compute = Compute("pretend")
    assert stacked_models(module, compute, Replica(module, compute).prepare(samples.x[:4])) is None
    if name == "too large":
        return
    weights = [model.weights for model in random_models(module, 3)]
    loss, _ = Evaluator(module, samples, compute=compute).models(weights)
    np.testing.assert_allclose(loss, Evaluator(module, samples).models(weights)[0], rtol=1e-5)


def test_a_processor_and_float64_stack_nothing() -> None:
    module, x = flat(nn.Linear(12, 3)), data().x[:4]
    assert stacked_models(module, Compute(), x) is None
    assert stacked_models(module.double(), Compute("pretend"), x.double().to("pretend")) is None


def test_points_in_one_pass_are_formed_to_the_same_bits() -> None:
    module = flat(nn.Linear(12, 3))
    weights = [model.weights for model in random_models(module, 4)]
    compute = Compute("pretend")
    stacked, replica = StackedModels(module, compute), PostponingReplica(module, compute)
    wanted: list[tuple[list[Weights], list[float]]] = [
        (weights[:3], [0.2, 0.3, 0.5]),
        (weights[:3], [1.7, -0.4, -0.3]),
        (weights[:3], [0.0, 1.0, 0.0]),
        (weights[1:], [0.1, 0.0, 0.9]),
        (weights[:3], [1e-3, 2.0, -7.0]),
    ]

    def form(k: int) -> Replica:
        replica.combine(*wanted[k])
        return replica

    stacked.form(len(wanted), form)
    alone = Replica(module)
    for k, how in enumerate(wanted):
        alone.combine(*how)
        assert torch.equal(stacked.w[k].cpu(), alone.w), k


def test_whoever_looks_at_a_postponed_combination_sees_it() -> None:
    module, samples = flat(nn.Linear(12, 3)), data()
    weights = [model.weights for model in random_models(module, 2)]

    def form(i: int, replica: Replica) -> None:
        replica.combine(weights, (0.25, 0.75))
        if i == 1:
            replica.w += 0.5
        if i == 2:
            replica.load(weights[1].parameters, {})
        if i == 3:
            seen.append(replica.logits(replica.prepare(samples.x)).cpu())

    seen: list[Any] = []
    for compute in (Compute(), Compute("pretend")):
        seen.append(np.array([loss for _, loss, _ in Evaluator(module, samples, compute=compute).evaluate(4, form)]))
    np.testing.assert_allclose(seen[1], seen[3], rtol=1e-5)
    torch.testing.assert_close(seen[0], seen[2], rtol=1e-5, atol=1e-6)


def test_a_nan_reaches_no_point_that_does_not_count_it() -> None:
    module, samples = flat(nn.Linear(12, 3)), data()
    models = random_models(module, 2)
    broken = Weights(Layout.of(module), np.full(39, np.nan, np.float32), {})

    def form(i: int, replica: Replica) -> None:
        replica.combine([models[0].weights, models[1].weights, broken], [(0.5, 0.5, 0.0), (0.5, 0.0, 0.5)][i % 2])

    there, here = (
        np.array([loss for _, loss, _ in Evaluator(module, samples, compute=compute).evaluate(6, form)])
        for compute in (Compute("pretend"), Compute())
    )
    np.testing.assert_allclose(there, here, rtol=1e-5)
    ends = line(module, samples, [(models[0], models[1])], betas=5, compute=Compute("pretend"))
    assert np.isfinite(ends.loss).all()


def test_an_evaluator_goes_with_its_memory_and_waits_for_no_collection() -> None:
    module, samples = flat(nn.Linear(12, 3)), data()
    weights = [model.weights for model in random_models(module, 9)]
    Evaluator(module, samples, compute=Compute("pretend")).models(weights)
    gc.collect()
    gc.disable()
    try:
        before = loaded().held()
        evaluator = Evaluator(module, samples, compute=Compute("pretend"))
        evaluator.models(weights)
        assert loaded().held() > before
        del evaluator
        assert loaded().held() == before
    finally:
        gc.enable()
