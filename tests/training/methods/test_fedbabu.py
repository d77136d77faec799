"""FedBABU: a head that never moves while the body does, and fine-tuning against loops written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from local_loops import followed

from fedscope.checkpoints import FedscopeError, Layout
from fedscope.training.build import initial_model
from fedscope.training.methods.base import LocalSchedule
from fedscope.training.methods.clients.fedbabu import FedBABU
from fedscope.training.methods.clients.sgd import SGD

BODY, HEAD = slice(0, 35), slice(35, 53)


def by_hand(task: Any, method: Any, trained: slice) -> np.ndarray:
    """SGD on a part of the parameters, clipped by the norm of the whole gradient, weight decay included."""
    part = np.zeros(53)
    part[trained] = 1
    return followed(task, method, lambda _, g: part * g)[0]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("clip", [0.0, 0.3])
def test_the_body_trains_and_the_head_stays_bit_for_bit(small: Any, momentum: float, clip: float, close: Any) -> None:
    method, task = FedBABU(batch=4, momentum=momentum, clip=clip, weight_decay=0.05), small.task()
    got = method.train(task).weights.parameters
    assert got[HEAD].tobytes() == small.start.parameters[HEAD].tobytes()
    close(got, by_hand(task, method, BODY), 1e-11)
    plain = SGD(batch=4, momentum=momentum, clip=clip, weight_decay=0.05).train(small.task()).weights.parameters
    assert np.abs(got - plain)[HEAD].max() > 1e-2


@pytest.mark.parametrize(
    ("part", "trained"),
    [
        ("all", slice(53)),
        ("head", HEAD),
        ("body", BODY),
    ],
)
def test_a_clients_own_model_is_fine_tuned_from_the_global_one(
    small: Any, part: Literal["all", "head", "body"], trained: slice, close: Any
) -> None:
    method = FedBABU(batch=4, fine_tune=part, fine_tune_epochs=3, clip=0.5)
    global_ = small.model(4)
    task = small.task(start=global_)
    own = method.personalise(task, {}).parameters
    # orders of its own, a billion draws after the federated training's
    reference = replace(task, pace=LocalSchedule(0.1, 3), draw=1_000_000_001)
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
    method, task = FedBABU(batch=4, lr=3.0), small.task(pace=LocalSchedule(0.02, 1))
    reference = replace(task, pace=LocalSchedule(0.02, 10), draw=1_000_000_001)
    own = method.personalise(task, {}).parameters
    close(own, by_hand(reference, method, HEAD), 1e-11)
    assert own[BODY].tobytes() == task.start.parameters[BODY].tobytes()


def test_only_the_body_travels(small: Any) -> None:
    assert FedBABU().model_size(small.facts) == 53 - 18
    assert FedBABU().begin(small.start, small.facts) == {}
    assert FedBABU.needs_head
    assert FedBABU.personal


def test_a_model_that_is_all_head_is_refused(small: Any) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 3))
    facts = replace(small.facts, layout=Layout.of(module), head="0")
    with pytest.raises(FedscopeError, match=r"the model is nothing else than its head '0'; choose a model"):
        FedBABU().begin(initial_model(module), facts)
