"""FedACG: its clients against the penalised loss differentiated as a whole; its server, where clients start ahead, and
momentum is the global model's whole move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from fedscope.checkpoints import Weights
from fedscope.training.methods.base import LocalSchedule
from fedscope.training.methods.clients.fedacg import FedACG
from fedscope.training.methods.clients.fedprox import FedProx
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.methods.servers.fedacg import FedACG as FedACGServer
from fedscope.training.methods.servers.fedavgm import FedAvgM

PLAIN = {"batch": 4, "momentum": 0.0, "weight_decay": 0.0}


@pytest.mark.parametrize("beta", [0.01, 0.5])
def test_steps_follow_the_gradient_of_the_whole_penalised_loss_about_what_was_sent(
    small: Any, by_hand: Callable[..., np.ndarray], beta: float, close: Any
) -> None:
    # The look-ahead model is sent, not the last global one.
    ahead = small.model(3)
    task, method = small.task(pace=LocalSchedule(0.3, 4), start=ahead), FedACG(beta=beta, **PLAIN)
    start = torch.from_numpy(ahead.parameters)

    def loss(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        theta = parameters_to_vector(module.parameters())
        return functional.cross_entropy(module(x), y) + beta * (theta - start).square().sum()

    trained = method.train(task).weights.parameters
    close(trained, by_hand(task, method, loss), 1e-12)
    plain = SGD(**PLAIN).train(task).weights.parameters
    assert np.abs(trained - plain).max() > 0.1 * beta


def test_it_is_fedprox_with_twice_beta_also_with_clip_decay_and_momentum(small: Any) -> None:
    settings = {"batch": 4, "clip": 0.2, "weight_decay": 0.05}
    task = small.task()
    ours, prox = (method.train(task) for method in (FedACG(beta=0.25, **settings), FedProx(mu=0.5, **settings)))  # type: ignore[arg-type]
    assert ours.weights.parameters.tobytes() == prox.weights.parameters.tobytes()
    assert not ours.state
    assert not ours.message


# --- the server ---


P = [0.1, 0.3, 0.6]


@pytest.mark.parametrize("momentum", [0.85, 0.3])
def test_the_global_model_moves_by_the_momentum(small: Any, momentum: float) -> None:
    server = FedACGServer(momentum=momentum)
    last, state = small.start.parameters, server.init(small.start.parameters)
    m = np.zeros_like(last)
    for t in range(3):
        sent = server.look_ahead(state, last)
        np.testing.assert_allclose(sent, last + momentum * m, rtol=0, atol=1e-13)
        clients = small.clients(3, seed=10 * t)
        served = server.step(state, Weights(clients.layout, sent, {}), clients, small.cohort(round=t + 1))
        m = momentum * m + (P @ clients.parameters - sent)
        np.testing.assert_allclose(served.state["m"], m, rtol=0, atol=1e-13)
        np.testing.assert_allclose(served.parameters, P @ clients.parameters, rtol=0, atol=1e-13)
        np.testing.assert_allclose(served.parameters, last + m, rtol=0, atol=1e-13)
        last, state = served.parameters, served.state


def test_the_first_round_starts_from_the_first_model(small: Any) -> None:
    w = small.start.parameters
    sent = FedACGServer().look_ahead(FedACGServer().init(w), w)
    assert sent.tobytes() == w.tobytes()


def test_looking_ahead_changes_neither_the_model_nor_its_dtype(small: Any) -> None:
    w = small.start.parameters.astype(np.float32)
    before, m = w.copy(), np.full_like(w, 0.25)
    sent = FedACGServer().look_ahead({"m": m}, w)
    assert sent.dtype == np.float32
    np.testing.assert_array_equal(w, before)
    np.testing.assert_allclose(sent, before + 0.85 * 0.25, rtol=1e-6)


def test_where_clients_move_alike_from_anywhere_it_is_fedavgm(small: Any) -> None:
    # The same moves from the model that is sent: FedACG adds its momentum before them, FedAvgM after.
    ahead, after = FedACGServer(momentum=0.6), FedAvgM(momentum=0.6)
    last = w = small.start.parameters
    kept, state = ahead.init(last), after.init(w)
    for t in range(4):
        moves = small.clients(3, seed=10 * t).parameters - small.start.parameters
        sent = ahead.look_ahead(kept, last)
        layout = small.start.layout
        one = ahead.step(kept, Weights(layout, sent, {}), Weights(layout, sent + moves, {}), small.cohort())
        two = after.step(state, Weights(layout, w, {}), Weights(layout, w + moves, {}), small.cohort())
        np.testing.assert_allclose(one.parameters, two.parameters, rtol=0, atol=1e-12)
        last, kept, w, state = one.parameters, one.state, two.parameters, two.state
