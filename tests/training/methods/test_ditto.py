"""Ditto: plain SGD for everybody, and a client's own model against a loop written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from local_loops import followed

from fedscope.training.methods.base import LocalSchedule
from fedscope.training.methods.clients.ditto import Ditto
from fedscope.training.methods.clients.sgd import SGD


def by_hand(task: Any, method: Any, v: Any, epochs: int = 2) -> np.ndarray:
    """v after its epochs: g with weight decay, clipped, then pulled towards the model sent."""
    w, own = (
        task.start.parameters,
        replace(task, start=v, pace=LocalSchedule(0.1, epochs), draw=task.draw + 1_000_000_000),
    )
    return followed(own, method, lambda theta, g: g + method.pull * (theta - w))[0]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("clip", [0.0, 0.3])
@pytest.mark.parametrize("seen_before", [False, True])
def test_the_federation_gets_sgds_model_bit_for_bit(
    small: Any, momentum: float, clip: float, seen_before: bool
) -> None:
    state = {"personal": small.model(8)} if seen_before else {}
    got = Ditto(batch=4, momentum=momentum, clip=clip, pull=0.5).train(small.task(state=state))
    sgd = SGD(batch=4, momentum=momentum, clip=clip).train(small.task())
    assert got.weights.parameters.tobytes() == sgd.weights.parameters.tobytes()
    assert (got.loss, got.steps, got.reach, got.message) == (sgd.loss, sgd.steps, sgd.reach, {})


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("clip", [0.0, 0.3])
def test_a_clients_own_model_goes_on_from_its_last_participation(
    small: Any, momentum: float, clip: float, close: Any
) -> None:
    before = small.model(8)
    method, task = Ditto(batch=4, momentum=momentum, clip=clip, weight_decay=0.05, pull=0.5), small.task()
    kept = method.train(replace(task, state={"personal": before})).state["personal"]
    expected = by_hand(task, method, before)
    close(kept.parameters, expected, 1e-11)
    # pulled towards the model sent, and not towards where it began
    free = by_hand(task, replace(method, pull=1e-15), before)
    assert np.abs(kept.parameters - free).max() > 1e-2
    w = small.start.parameters
    assert np.linalg.norm(kept.parameters - w) < np.linalg.norm(free - w)


def test_the_first_time_it_starts_from_the_model_sent(small: Any, close: Any) -> None:
    method, task = Ditto(batch=4, momentum=0, pull=0.5), small.task()
    update = method.train(task)
    expected = by_hand(task, method, small.start)
    close(update.state["personal"].parameters, expected, 1e-11)
    # with orders of its own, it is another model than the federation's
    assert np.abs(update.state["personal"].parameters - update.weights.parameters).max() > 1e-3


def test_as_the_pull_goes_to_nothing_it_is_sgd_alone(small: Any, close: Any) -> None:
    before, task = small.model(8), small.task()
    kept = Ditto(batch=4, pull=1e-14).train(replace(task, state={"personal": before})).state["personal"]
    alone = SGD(batch=4).train(small.task(start=before, draw=1_000_000_001))
    close(kept.parameters, alone.weights.parameters, 1e-12)


@pytest.mark.parametrize("epochs", [1, 4])
def test_its_epochs_can_be_set(small: Any, epochs: int, close: Any) -> None:
    method, task = Ditto(batch=4, momentum=0, personal_epochs=epochs), small.task()
    update = method.train(task)
    expected = by_hand(task, method, small.start, epochs)
    close(update.state["personal"].parameters, expected, 1e-11)
    assert update.steps == 6


def test_a_replay_has_orders_of_its_own_for_both_models(small: Any) -> None:
    method = Ditto(batch=4)
    once, again = method.train(small.task()), method.train(small.task(draw=2))
    assert once.weights.parameters.tobytes() != again.weights.parameters.tobytes()
    kept = [update.state["personal"].parameters.tobytes() for update in (once, again)]
    assert kept[0] != kept[1]


def test_a_client_uses_its_own_model_once_it_has_one(small: Any) -> None:
    own = small.model(8)
    assert Ditto().personalise(small.task(), {"personal": own}) is own
    task = small.task()
    assert Ditto().personalise(task, {}) is task.start
    assert Ditto.personal
    assert not Ditto.proximal
