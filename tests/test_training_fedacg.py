"""FedACG's clients against the penalised loss differentiated as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from fedscope.checkpoints import FedscopeError
from fedscope.training.clients.fedacg import FedACG
from fedscope.training.clients.fedprox import FedProx
from fedscope.training.clients.sgd import SGD
from fedscope.training.methods import Pace

PLAIN = {"batch": 4, "momentum": 0.0, "weight_decay": 0.0}


@pytest.mark.parametrize("beta", [0.01, 0.5])
def test_steps_follow_the_gradient_of_the_whole_penalised_loss_about_what_was_sent(
    small: Any, by_hand: Callable[..., np.ndarray], beta: float, close: Any
) -> None:
    # The look-ahead model is sent, not the last global one.
    ahead = small.model(3)
    task, method = small.task(pace=Pace(0.3, 4), start=ahead), FedACG(beta=beta, **PLAIN)
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


@pytest.mark.parametrize("indices", [[7], [7, 8, 9]])
def test_small_clients_train(small: Any, indices: list[int]) -> None:
    update = FedACG().train(small.task(indices=np.array(indices)))
    assert update.steps == 2
    assert np.isfinite(update.weights.parameters).all()


def test_a_beta_that_switches_it_off_is_refused() -> None:
    with pytest.raises(FedscopeError, match=r"client\.beta = 0 would switch the method off.*--client sgd"):
        FedACG(beta=0.0)
    with pytest.raises(FedscopeError, match=r"client\.beta = -1 is out of range"):
        FedACG(beta=-1.0)
