"""FedBABU: a head that never moves while the body does, and fine-tuning against loops written by hand."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedscope.checkpoints import FedscopeError, Layout
from fedscope.training.building import initial_model
from fedscope.training.clients.fedbabu import FedBABU
from fedscope.training.clients.sgd import SGD
from fedscope.training.local import batches
from fedscope.training.methods import Pace

BODY, HEAD = slice(0, 35), slice(35, 53)


def by_hand(task: Any, method: Any, trained: list[str]) -> np.ndarray:
    """SGD on the named parameters alone, clipped by the norm of the whole gradient, weight decay included."""
    module = deepcopy(task.bench.module)
    module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in task.start.arrays().items()})
    names, parameters = zip(*module.named_parameters(), strict=True)
    velocity = [torch.zeros_like(parameter) for parameter in parameters]
    for x, y in batches(task, method):
        found = torch.autograd.grad(functional.cross_entropy(module(x), y), parameters)
        with torch.no_grad():
            g = [part + method.weight_decay * parameter for part, parameter in zip(found, parameters, strict=True)]
            norm = sum(float((part**2).sum()) for part in g) ** 0.5
            shrink = min(1.0, method.clip / norm) if method.clip else 1.0
            for k, name in enumerate(names):
                if name in trained:
                    velocity[k] = method.momentum * velocity[k] + shrink * g[k]
                    parameters[k].sub_(task.pace.lr * velocity[k])
    return np.concatenate([parameter.detach().numpy().ravel() for parameter in parameters])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("clip", [0.0, 0.3])
def test_the_body_trains_and_the_head_stays_bit_for_bit(small: Any, momentum: float, clip: float, close: Any) -> None:
    method, task = FedBABU(batch=4, momentum=momentum, clip=clip, weight_decay=0.05), small.task()
    got = method.train(task).weights.parameters
    assert got[HEAD].tobytes() == small.start.parameters[HEAD].tobytes()
    close(got, by_hand(task, method, ["0.weight", "0.bias"]), 1e-11)
    plain = SGD(batch=4, momentum=momentum, clip=clip, weight_decay=0.05).train(small.task()).weights.parameters
    assert np.abs(got - plain)[HEAD].max() > 1e-2


@pytest.mark.parametrize(
    ("part", "trained"),
    [
        ("all", ["0.weight", "0.bias", "2.weight", "2.bias"]),
        ("head", ["2.weight", "2.bias"]),
        ("body", ["0.weight", "0.bias"]),
    ],
)
def test_a_clients_own_model_is_fine_tuned_from_the_global_one(
    small: Any, part: Literal["all", "head", "body"], trained: list[str], close: Any
) -> None:
    method = FedBABU(batch=4, fine_tune=part, fine_tune_epochs=3, clip=0.5)
    global_ = small.model(4)
    task = small.task(start=global_)
    own = method.personalise(task, {}).parameters
    # orders of its own, a billion draws after the federated training's
    reference = replace(task, pace=Pace(0.1, 3), draw=1_000_000_001)
    close(own, by_hand(reference, method, trained), 1e-11)
    changed = own != global_.parameters
    assert changed[BODY].any() == (part != "head")
    assert changed[HEAD].any() == (part != "body")


def test_fine_tuning_does_not_repeat_the_federated_orders(small: Any) -> None:
    method, task = FedBABU(batch=4, fine_tune_epochs=2), small.task()
    own = method.personalise(task, {}).parameters
    assert np.abs(own - SGD(batch=4).train(small.task()).weights.parameters).max() > 1e-4
    assert own.tobytes() == method.personalise(small.task(), {}).parameters.tobytes()
    replayed = method.personalise(small.task(draw=2), {}).parameters
    assert own.tobytes() != replayed.tobytes()


def test_ten_epochs_of_the_head_at_the_rounds_rate_by_default(small: Any, close: Any) -> None:
    method, task = FedBABU(batch=4, lr=3.0), small.task(pace=Pace(0.02, 1))
    reference = replace(task, pace=Pace(0.02, 10), draw=1_000_000_001)
    own = method.personalise(task, {}).parameters
    close(own, by_hand(reference, method, ["2.weight", "2.bias"]), 1e-11)
    assert own[BODY].tobytes() == task.start.parameters[BODY].tobytes()


def test_only_the_body_travels(small: Any) -> None:
    assert FedBABU().model_size(small.facts) == 53 - 18
    assert FedBABU().begin(small.start, small.facts) == {}
    assert FedBABU.needs_head
    assert FedBABU.personal


def test_one_sample_trains(small: Any) -> None:
    task = small.task(indices=np.array([3]))
    assert np.isfinite(FedBABU().train(task).weights.parameters).all()
    assert np.isfinite(FedBABU().personalise(task, {}).parameters).all()


def test_a_model_that_is_all_head_is_refused(small: Any) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 3))
    facts = replace(small.facts, layout=Layout.of(module), head="0")
    with pytest.raises(FedscopeError, match=r"the model is nothing else than its head '0'; choose a model"):
        FedBABU().begin(initial_model(module), facts)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(FedscopeError, match=r"client.fine_tune = 'tail' has the wrong type: .* all, head, body"):
        FedBABU(fine_tune="tail")  # type: ignore[arg-type]
    with pytest.raises(FedscopeError, match=r"client.fine_tune_epochs = 0 is out of range"):
        FedBABU(fine_tune_epochs=0)
