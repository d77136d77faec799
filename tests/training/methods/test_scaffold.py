"""SCAFFOLD against federations worked out in NumPy, and its control variates as means of the clients' gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from local_loops import carried, followed

from fedscope.checkpoints import Layout, stack, weighted_mean
from fedscope.training.build import initial_model
from fedscope.training.local.worker_model import TrainableModel
from fedscope.training.methods.base import Cohort, Exchange, LocalSchedule
from fedscope.training.methods.clients.scaffold import SCAFFOLD
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.models.model_info import ModelInfo

ETA, DECAY = 0.3, 0.02


def some(small: Any, seed: int) -> np.ndarray:
    vector: np.ndarray = np.random.default_rng(seed).normal(size=small.facts.layout.size) / 5
    return vector


@pytest.mark.parametrize("clip", [0.0, 0.3])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_are_corrected_after_clipping_and_the_control_is_the_mean_of_the_clients_own_gradients(
    small: Any, momentum: float, clip: float, close: Any
) -> None:
    method = SCAFFOLD(batch=4, momentum=momentum, weight_decay=DECAY, clip=clip)
    c, own = some(small, 1), some(small, 2)
    task = small.task(sent={"control": c}, state={"control": own}, last=1)

    theta, gradients = followed(task, method, lambda _, g: g - own + c)
    update = method.train(task)
    close(update.weights.parameters, theta, 1e-11)

    # Gradient j is stepped along in steps j, j + 1, ..., with η, ηβ, ηβ², ...
    mean = np.average(gradients, axis=0, weights=carried(len(gradients), momentum))
    close(update.state["control"], mean, 1e-11)
    close(update.message["control"], update.state["control"] - own, 1e-14)


def test_the_first_round_is_sgd_and_later_ones_are_not(small: Any) -> None:
    method = SCAFFOLD()
    nothing = method.begin(small.start, small.facts)
    first = method.train(small.task(sent=nothing))
    assert first.weights.parameters.tobytes() == SGD().train(small.task()).weights.parameters.tobytes()
    later = method.train(small.task(sent=nothing, state=first.state, last=3))
    assert np.abs(later.weights.parameters - first.weights.parameters).max() > 1e-3


def softmax_gradient(W: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the mean cross-entropy of softmax(x W'), and weight decay: [3, 6]."""
    scores = np.exp(x @ W.T)
    p = scores / scores.sum(1, keepdims=True)
    gradient: np.ndarray = (p - np.eye(3)[y]).T @ x / len(x) + DECAY * W
    return gradient


@pytest.mark.parametrize("cohorts", [[[0, 2], [1, 2], [3], [0, 1, 2, 3], [2, 3]], [[1]] * 3])
def test_a_federation_with_partial_participation_is_the_one_worked_out_in_numpy(
    small: Any, cohorts: list[list[int]], close: Any
) -> None:
    module = torch.nn.Linear(6, 3, bias=False).double()
    facts, model = ModelInfo(Layout.of(module), classes=3, clients=4), initial_model(module)
    parts = [np.arange(0, 4), np.arange(4, 15), np.arange(15, 35), np.array([36])]
    method = SCAFFOLD(batch=20, momentum=0.0, weight_decay=DECAY)
    bench, sent = TrainableModel(module), method.begin(model, facts)
    states: dict[int, Any] = {}

    W = model.parameters.reshape(3, 6).copy()
    c, own = np.zeros((3, 6)), np.zeros((4, 3, 6))
    for t, cohort in enumerate(cohorts, start=1):
        task = small.task(facts=facts, bench=bench, start=model, pace=LocalSchedule(ETA, 3), round=t, sent=sent)
        updates = [
            method.train(replace(task, client=i, indices=parts[i], state=states.get(i, {}), last=int(i in states)))
            for i in cohort
        ]
        states |= {i: update.state for i, update in zip(cohort, updates, strict=True)}
        samples = np.array([update.samples for update in updates])
        seen = Cohort(t, np.array(cohort), samples, samples, samples / samples.sum(), 4)
        clients = stack([update.weights for update in updates])
        message = {"control": np.mean([update.message["control"] for update in updates], axis=0)}
        sent = method.share(sent, Exchange(model, clients, model, seen, facts, message))
        model = weighted_mean(clients, seen.p)

        ends, changes = [], []
        for i in cohort:
            theta = W.copy()
            for _ in range(3):
                theta -= ETA * (
                    softmax_gradient(theta, small.x.numpy()[parts[i]], small.y.numpy()[parts[i]]) - own[i] + c
                )
            new = own[i] - c + (W - theta) / (3 * ETA)
            changes.append(new - own[i])
            own[i] = new
            ends.append(len(parts[i]) * theta)
        W = np.sum(ends, axis=0) / sum(len(parts[i]) for i in cohort)
        c = c + np.sum(changes, axis=0) / 4

        close(model.parameters, W.ravel(), 1e-12)
        close(sent["control"], c.ravel(), 1e-12)
        for i in range(4):
            close(states[i]["control"] if i in states else np.zeros(18), own[i].ravel(), 1e-12)
        kept = np.sum([state["control"] for state in states.values()], axis=0) / 4
        close(sent["control"], kept, 1e-12)
    assert np.abs(sent["control"]).max() > 1e-2


def test_messages_count_alike_whatever_a_client_has(small: Any, close: Any) -> None:
    assert SCAFFOLD.message_weighting == "uniform"
    sent, message = {"control": some(small, 3)}, {"control": some(small, 4)}
    exchange = Exchange(small.start, small.clients(), small.start, small.cohort(), small.facts, message)
    shared = SCAFFOLD().share(sent, exchange)
    close(shared["control"], sent["control"] + 3 / 4 * message["control"], 1e-14)
