"""FedProx against the penalised loss differentiated as a whole, and its order of clipping and pulling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from local_loops import followed
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from fedscope.training.methods.base import LocalSchedule
from fedscope.training.methods.clients.fedprox import FedProx
from fedscope.training.methods.clients.sgd import SGD

PLAIN = {"batch": 4, "momentum": 0.0, "weight_decay": 0.0}


@pytest.mark.parametrize("mu", [0.01, 0.5])
def test_steps_follow_the_gradient_of_the_whole_penalised_loss(
    small: Any, by_hand: Callable[..., np.ndarray], mu: float, close: Any
) -> None:
    task, method = small.task(pace=LocalSchedule(0.3, 4)), FedProx(mu=mu, **PLAIN)
    start = torch.from_numpy(small.start.parameters)

    def loss(module: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        theta = parameters_to_vector(module.parameters())
        return functional.cross_entropy(module(x), y) + mu / 2 * (theta - start).square().sum()

    trained = method.train(task).weights.parameters
    close(trained, by_hand(task, method, loss), 1e-12)
    # A penalty whose gradient does not arrive (summed through .item(), or detached) would leave SGD's result.
    plain = SGD(**PLAIN).train(task).weights.parameters
    assert np.abs(trained - plain).max() > 0.04 * mu


def test_the_pull_keeps_a_client_nearer_the_stronger_it_is(small: Any) -> None:
    task = small.task(pace=LocalSchedule(0.3, 20))

    def distance(mu: float) -> float:
        return float(np.linalg.norm(FedProx(mu=mu, **PLAIN).train(task).weights.parameters - small.start.parameters))

    assert distance(1.0) < distance(0.1) < distance(0.01)


def test_as_mu_goes_to_0_it_is_sgd_and_the_first_step_always_is(small: Any, close: Any) -> None:
    task = small.task()
    tiny, plain = (method.train(task).weights.parameters for method in (FedProx(mu=1e-12), SGD()))
    close(tiny, plain, 1e-11)
    once = replace(task, pace=LocalSchedule(0.1, 1))
    first = [method.train(once).weights.parameters for method in (FedProx(mu=5.0, batch=11), SGD(batch=11))]
    assert first[0].tobytes() == first[1].tobytes()


def test_the_pull_comes_after_the_clip_and_before_momentum(small: Any, close: Any) -> None:
    task = small.task(indices=np.arange(5, 12), pace=LocalSchedule(0.2, 3))
    method = FedProx(mu=0.4, batch=7, momentum=0.9, weight_decay=0.05, clip=0.1)
    expected, _ = followed(task, method, lambda theta, g: g + 0.4 * (theta - small.start.parameters))
    close(method.train(task).weights.parameters, expected, 1e-11)
