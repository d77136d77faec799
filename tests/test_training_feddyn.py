"""FedDyn's clients against the regularised loss differentiated as a whole, the identity at stationary points, and whole
federations worked out in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedscope.checkpoints import FedscopeError, Layout
from fedscope.training.anatomy import Facts
from fedscope.training.bench import Workbench
from fedscope.training.building import initial_model
from fedscope.training.clients.feddyn import FedDyn
from fedscope.training.clients.fedprox import FedProx
from fedscope.training.local import batches
from fedscope.training.methods import Pace

ETA, DECAY, ALPHA = 0.3, 0.02, 0.2


def some(small: Any, seed: int) -> np.ndarray:
    vector: np.ndarray = np.random.default_rng(seed).normal(size=small.facts.layout.size) / 5
    return vector


@pytest.mark.parametrize("alpha", [0.01, 0.5])
def test_steps_follow_the_gradient_of_the_whole_regularised_loss(
    small: Any, by_hand: Callable[..., np.ndarray], alpha: float, close: Any
) -> None:
    h = some(small, 1)
    task = small.task(pace=Pace(0.3, 4), state={"gradient": h}, last=2)
    method = FedDyn(alpha=alpha, batch=4, momentum=0.0, weight_decay=0.0)
    start = torch.from_numpy(small.start.parameters)

    def loss(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        theta = parameters_to_vector(module.parameters())
        regulariser = -(torch.from_numpy(h) @ theta) + alpha / 2 * (theta - start).square().sum()
        return functional.cross_entropy(module(x), y) + regulariser

    update = method.train(task)
    trained = update.weights.parameters
    close(trained, by_hand(task, method, loss), 1e-12)
    kept = update.state["gradient"]
    close(kept, h - alpha * (trained - small.start.parameters), 1e-14)
    assert kept.dtype == small.facts.layout.dtype
    assert (
        np.abs(
            trained - FedProx(mu=alpha, batch=4, momentum=0.0, weight_decay=0.0).train(task).weights.parameters
        ).max()
        > 0.1
    )


def test_before_its_first_participation_a_client_is_fedproxs(small: Any) -> None:
    ours, prox = (method.train(small.task()) for method in (FedDyn(alpha=0.3), FedProx(mu=0.3)))
    assert ours.weights.parameters.tobytes() == prox.weights.parameters.tobytes()


def test_where_training_has_come_to_rest_the_clients_gradient_is_what_it_keeps(small: Any, close: Any) -> None:
    h = some(small, 2)
    method = FedDyn(alpha=0.5, batch=11, weight_decay=0.1)
    update = method.train(small.task(state={"gradient": h}, last=1, pace=Pace(0.1, 600)))
    module, theta = small.task().bench.module, torch.from_numpy(update.weights.parameters)
    vector_to_parameters(theta, module.parameters())
    loss = functional.cross_entropy(module(small.x[5:16]), small.y[5:16])
    gradient = parameters_to_vector(torch.autograd.grad(loss, list(module.parameters()))) + 0.1 * theta
    close(gradient, update.state["gradient"], 1e-10)
    # Not because there is nothing to compare.
    assert gradient.abs().max() > 0.05
    assert np.abs(update.state["gradient"] - h).max() > 0.05


def test_the_regulariser_comes_after_the_clip_and_before_momentum(small: Any, close: Any) -> None:
    method = FedDyn(alpha=0.4, batch=4, momentum=0.9, weight_decay=0.05, clip=0.1)
    h = some(small, 3)
    task = small.task(state={"gradient": h}, last=1)
    module, theta = small.task().bench.module, torch.from_numpy(small.start.parameters.copy())
    start, velocity = theta.clone(), torch.zeros_like(theta)
    for x, y in batches(task, method):
        vector_to_parameters(theta, module.parameters())
        g = parameters_to_vector(torch.autograd.grad(functional.cross_entropy(module(x), y), list(module.parameters())))
        g = g + 0.05 * theta
        assert g.norm() > 0.1
        velocity = 0.9 * velocity + 0.1 * g / g.norm() - torch.from_numpy(h) + 0.4 * (theta - start)
        theta = theta - 0.1 * velocity
    close(method.train(task).weights.parameters, theta, 1e-11)


def test_a_federations_states_are_those_worked_out_in_numpy_client_by_client(small: Any, close: Any) -> None:
    module = torch.nn.Linear(6, 3, bias=False).double()
    facts, model = Facts(Layout.of(module), classes=3, clients=4), initial_model(module)
    parts = [np.arange(0, 4), np.arange(4, 15), np.arange(15, 35), np.array([36])]
    method = FedDyn(alpha=ALPHA, batch=20, momentum=0.0, weight_decay=DECAY)
    bench, states = Workbench(module), dict[int, Any]()
    W, h = model.parameters.reshape(3, 6).copy(), np.zeros((4, 3, 6))
    # Client 2 is second, then first, then third of its cohort.
    for t, cohort in enumerate([[0, 2], [2, 3], [0, 1, 2], [3]], start=1):
        updates = {
            i: method.train(
                small.task(
                    facts=facts,
                    bench=bench,
                    start=model,
                    pace=Pace(ETA, 3),
                    round=t,
                    client=i,
                    indices=parts[i],
                    state=states.get(i, {}),
                )
            )
            for i in cohort
        }
        states |= {i: update.state for i, update in updates.items()}
        model = replace(model, parameters=np.mean([update.weights.parameters for update in updates.values()], axis=0))

        ends = []
        for i in cohort:
            x, y, theta = small.x.numpy()[parts[i]], small.y.numpy()[parts[i]], W.copy()
            for _ in range(3):
                scores = np.exp(x @ theta.T)
                p = scores / scores.sum(1, keepdims=True)
                g = (p - np.eye(3)[y]).T @ x / len(x) + DECAY * theta
                theta = theta - ETA * (g - h[i] + ALPHA * (theta - W))
            h[i] -= ALPHA * (theta - W)
            ends.append(theta)
        W = np.mean(ends, axis=0)
        close(model.parameters, W.ravel(), 1e-12)
        for i, state in states.items():
            close(state["gradient"], h[i].ravel(), 1e-12)


@pytest.mark.parametrize("indices", [[7], [7, 8, 9]])
def test_small_clients_train(small: Any, indices: list[int]) -> None:
    update = FedDyn().train(small.task(indices=np.array(indices)))
    assert update.steps == 2
    assert np.isfinite(update.weights.parameters).all()
    assert np.isfinite(update.state["gradient"]).all()


def test_an_alpha_that_switches_it_off_is_refused() -> None:
    with pytest.raises(FedscopeError, match=r"client\.alpha = 0 would switch the method off.*--client sgd"):
        FedDyn(alpha=0.0)
    with pytest.raises(FedscopeError, match=r"client\.alpha = -1 is out of range"):
        FedDyn(alpha=-1.0)
