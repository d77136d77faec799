"""FedNTD against its formula written out sample by sample, and the cases in which it is plain SGD."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from local_loops import SUPERVISED, learning
from torch.nn import functional

from fedscope.checkpoints import Layout
from fedscope.training.build import initial_model
from fedscope.training.local.worker_model import TrainableModel
from fedscope.training.methods.base import LocalSchedule
from fedscope.training.methods.clients.fedntd import FedNTD
from fedscope.training.methods.clients.sgd import SGD

PLAIN = {"batch": 4, "momentum": 0.0, "weight_decay": 0.0}


def sgd(task: Any, **settings: Any) -> np.ndarray:
    parameters: np.ndarray = SGD(**{**PLAIN, **settings}).train(task).weights.parameters
    return parameters


def log_shares(answers: list[Any], true: int, tau: float) -> dict[int, Any]:
    """log softmax(answers/τ) over the classes that are not the true one, by class."""
    others = [c for c in range(len(answers)) if c != true]
    total = sum(torch.exp(answers[c] / tau) for c in others)
    return {c: answers[c] / tau - torch.log(total) for c in others}


@pytest.mark.parametrize("supervised", list(SUPERVISED))
@pytest.mark.parametrize(("beta", "tau"), [(1.0, 1.0), (3.0, 1.0), (2.0, 2.5)])
def test_fedntd_follows_its_formula(
    small: Any, by_hand: Callable[..., Any], beta: float, tau: float, close: Any, supervised: str
) -> None:
    method, task = FedNTD(**PLAIN, beta=beta, temperature=tau), small.task(facts=learning(small, supervised))
    sent = deepcopy(small.module)

    def step(module: Any, x: Any, y: Any) -> Any:
        total = torch.zeros((), dtype=torch.float64)
        for i in range(len(y)):
            own = log_shares(list(module(x[i])), int(y[i]), tau)
            teacher = {c: value.item() for c, value in log_shares(list(sent(x[i])), int(y[i]), tau).items()}
            total = total + sum(math.exp(teacher[c]) * (teacher[c] - own[c]) for c in own)
        return SUPERVISED[supervised](module(x), y) + beta * tau**2 * total / len(y)

    trained = method.train(task).weights.parameters
    close(trained, by_hand(task, method, step), 1e-12)
    assert np.abs(trained - sgd(small.task())).max() > 1e-3


def test_the_first_step_is_that_of_sgd_because_teacher_and_client_are_equal(small: Any, close: Any) -> None:
    once = {"pace": LocalSchedule(0.1, 1)}
    trained = FedNTD(**{**PLAIN, "batch": 20}, beta=50.0).train(small.task(**once)).weights.parameters
    close(trained, sgd(small.task(**once), batch=20), 1e-14)
    again = FedNTD(**{**PLAIN, "batch": 20}, beta=50.0).train(small.task()).weights.parameters
    assert np.abs(again - sgd(small.task(), batch=20)).max() > 1e-3


def test_the_teacher_is_the_model_that_was_sent_in_this_round(small: Any) -> None:
    method, bench, other = FedNTD(**PLAIN), TrainableModel(small.module), small.model(4)
    before = other.parameters.copy()
    method.train(small.task(bench=bench))
    used = method.train(small.task(bench=bench, start=other)).weights.parameters
    fresh = method.train(small.task(start=other)).weights.parameters
    assert used.tobytes() == fresh.tobytes()
    assert other.parameters.tobytes() == before.tobytes()


def test_a_strong_teacher_keeps_the_answers_on_other_classes(small: Any) -> None:
    task = small.task(pace=LocalSchedule(0.1, 8))

    def distance(parameters: np.ndarray) -> float:
        """Mean KL of the not-true answers to those of the model that was sent."""
        place, x, y = small.task().place, small.x[5:16], small.y[5:16]
        others = torch.arange(3) != y[:, None]
        with torch.no_grad():
            sent = place.module(x)[others].view(-1, 2).softmax(1)
            place.load(parameters, {})
            own = place.module(x)[others].view(-1, 2).log_softmax(1)
        return float(functional.kl_div(own, sent, reduction="batchmean"))

    free, held = (distance(p) for p in (sgd(task), FedNTD(**PLAIN, beta=20.0).train(task).weights.parameters))
    assert held < 0.2 * free


def test_a_vanishing_weight_gives_sgd(small: Any, close: Any) -> None:
    trained = FedNTD(**PLAIN, beta=1e-12).train(small.task()).weights.parameters
    close(trained, sgd(small.task()), 1e-11)


def test_with_two_classes_it_is_sgd(small: Any, close: Any) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()
    facts = replace(small.facts, layout=Layout.of(module), classes=2)
    task = small.task(y=small.y % 2, start=initial_model(module), facts=facts)

    def trained(method: Any) -> np.ndarray:
        parameters: np.ndarray = method.train(replace(task, bench=TrainableModel(module))).weights.parameters
        return parameters

    close(trained(FedNTD(**PLAIN, beta=9.0)), trained(SGD(**PLAIN)), 1e-14)
