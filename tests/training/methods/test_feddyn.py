"""FedDyn's clients against the regularised loss differentiated as a whole, the identity at stationary points, and whole
federations worked out in NumPy; and its server, whose h is what all clients hold on average."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from local_loops import followed
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedscope.checkpoints import FedscopeError, Layout, Weights
from fedscope.training import Config
from fedscope.training.build import initial_model
from fedscope.training.local.worker_model import TrainableModel
from fedscope.training.methods.base import LocalSchedule
from fedscope.training.methods.clients.feddyn import FedDyn
from fedscope.training.methods.clients.fedprox import FedProx
from fedscope.training.methods.servers.feddyn import FedDyn as FedDynServer
from fedscope.training.models.model_info import ModelInfo

ETA, DECAY, ALPHA = 0.3, 0.02, 0.2


def some(small: Any, seed: int) -> np.ndarray:
    vector: np.ndarray = np.random.default_rng(seed).normal(size=small.facts.layout.size) / 5
    return vector


@pytest.mark.parametrize("alpha", [0.01, 0.5])
def test_steps_follow_the_gradient_of_the_whole_regularised_loss(
    small: Any, by_hand: Callable[..., np.ndarray], alpha: float, close: Any
) -> None:
    h = some(small, 1)
    task = small.task(pace=LocalSchedule(0.3, 4), state={"gradient": h}, last=2)
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
    update = method.train(small.task(state={"gradient": h}, last=1, pace=LocalSchedule(0.1, 600)))
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
    theta, _ = followed(task, method, lambda theta, g: g - h + 0.4 * (theta - small.start.parameters))
    close(method.train(task).weights.parameters, theta, 1e-11)


def test_a_federations_states_are_those_worked_out_in_numpy_client_by_client(small: Any, close: Any) -> None:
    module = torch.nn.Linear(6, 3, bias=False).double()
    facts, model = ModelInfo(Layout.of(module), classes=3, clients=4), initial_model(module)
    parts = [np.arange(0, 4), np.arange(4, 15), np.arange(15, 35), np.array([36])]
    method = FedDyn(alpha=ALPHA, batch=20, momentum=0.0, weight_decay=DECAY)
    bench, states = TrainableModel(module), dict[int, Any]()
    W, h = model.parameters.reshape(3, 6).copy(), np.zeros((4, 3, 6))
    # Client 2 is second, then first, then third of its cohort.
    for t, cohort in enumerate([[0, 2], [2, 3], [0, 1, 2], [3]], start=1):
        updates = {
            i: method.train(
                small.task(
                    facts=facts,
                    bench=bench,
                    start=model,
                    pace=LocalSchedule(ETA, 3),
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


# --- the server ---


@pytest.mark.parametrize("alpha", [0.01, 0.5])
def test_three_rounds_by_hand_under_partial_participation(small: Any, alpha: float) -> None:
    server = FedDynServer(alpha=alpha)
    w, state = small.start, server.init(small.start.parameters)
    held = np.zeros((4, w.layout.size))  # h_i of all four clients, by id
    for t, ids in enumerate([[0, 1, 3], [2, 3], [1]], start=1):
        clients = small.clients(len(ids), seed=10 * t)
        cohort = small.cohort(range(1, len(ids) + 1), client_ids=np.array(ids), round=t)
        held[ids] -= alpha * (clients.parameters - w.parameters)
        served = server.step(state, w, clients, cohort)
        np.testing.assert_allclose(served.state["h"], held.mean(0), rtol=0, atol=1e-13)
        expected = clients.parameters.mean(0) - held.mean(0) / alpha
        np.testing.assert_allclose(served.parameters, expected, rtol=0, atol=1e-11)
        assert np.abs(served.parameters - cohort.p @ clients.parameters).max() > 1e-2
        w, state = Weights(w.layout, served.parameters, {}), served.state


def test_clients_with_quadratic_losses_end_at_the_minimum_of_their_sum(small: Any) -> None:
    # Client i's loss is (c_i/2)(θ − a_i)², so that θ_i = (c_i a_i + h_i + α w)/(c_i + α) is stationary. A wrong sign, a
    # plain norm or an h by the place in the cohort leads elsewhere, as does FMA.
    draw = np.random.default_rng(1)
    c, a = draw.uniform(0.5, 2, size=(2, 4, small.start.layout.size))
    server, alpha = FedDynServer(alpha=1.0), 1.0
    w, state = small.start, server.init(small.start.parameters)
    held = np.zeros_like(a)
    for t in range(1, 301):
        ids = np.sort(draw.choice(4, size=2, replace=False))
        theta = (c[ids] * a[ids] + held[ids] + alpha * w.parameters) / (c[ids] + alpha)
        held[ids] -= alpha * (theta - w.parameters)
        served = server.step(state, w, Weights(w.layout, theta, {}), small.cohort((5, 90), client_ids=ids, round=t))
        w, state = Weights(w.layout, served.parameters, {}), served.state
    least = (c * a).sum(0) / c.sum(0)
    np.testing.assert_allclose(w.parameters, least, rtol=0, atol=1e-8)
    assert np.abs(least - a.mean(0)).max() > 0.05


def test_alpha_is_the_clients_or_a_hundredth(small: Any) -> None:
    assert Config.read({"server": {"method": "feddyn"}}).server == FedDynServer(alpha=0.01)
    assert Config.read({"server": {"method": "feddyn", "alpha": 0.3}}).server == FedDynServer(alpha=0.3)
    both = {"client": {"method": "feddyn", "alpha": 0.2}, "server": {"method": "feddyn"}}
    config = Config.read(both)
    assert config.server == FedDynServer(alpha=0.2)
    assert Config.read(config.tables()).server == FedDynServer(alpha=0.2)
    unsettled, settled = (
        server.step({"h": np.ones(small.start.layout.size)}, small.start, small.clients(), small.cohort()).parameters
        for server in (FedDynServer(), FedDynServer(alpha=0.01))
    )
    assert unsettled.tobytes() == settled.tobytes()


def test_two_alphas_are_refused() -> None:
    tables = {"client": {"method": "feddyn", "alpha": 0.1}, "server": {"method": "feddyn", "alpha": 0.2}}
    words = (
        r"^server\.alpha = 0\.2 and client\.alpha = 0\.1 differ, but FedDyn has one alpha; give --set "
        r"server\.alpha=0\.2 --set client\.alpha=0\.2, or --set server\.alpha=0\.1 --set client\.alpha=0\.1$"
    )
    with pytest.raises(FedscopeError, match=words):
        Config.read(tables)
    tables["server"]["alpha"] = 0.123456789
    with pytest.raises(FedscopeError, match=r"^server\.alpha = 0\.123456789 .* --set client\.alpha=0\.123456789, or"):
        Config.read(tables)
