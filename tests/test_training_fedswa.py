"""FedSWA's client half: against a loop written by hand, and where it is plain SGD."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from fedscope.checkpoints import FedscopeError
from fedscope.training.clients.fedswa import FedSWA
from fedscope.training.clients.sgd import SGD
from fedscope.training.local import batches


def by_falling_rates(task: Any, method: Any, floor: float) -> np.ndarray:
    """Six steps at 0.1, ..., towards 0.1 ``floor``."""
    module, theta, velocity = deepcopy(task.bench.module), task.start.parameters.copy(), 0.0
    for k, (x, y) in enumerate(batches(task, method)):
        torch.nn.utils.vector_to_parameters(torch.from_numpy(theta.copy()), module.parameters())
        found = torch.autograd.grad(functional.cross_entropy(module(x), y), list(module.parameters()))
        g = np.concatenate([part.numpy().ravel() for part in found]) + method.weight_decay * theta
        velocity = method.momentum * velocity + g
        theta = theta - (0.1 * (1 - k / 6) + floor * 0.1 * k / 6) * velocity
    return theta


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("floor", [0.1, 0.6])
def test_the_clients_rate_falls_linearly_inside_the_round(
    small: Any, momentum: float, floor: float, close: Any
) -> None:
    method, task = FedSWA(batch=4, momentum=momentum, lr_floor=floor), small.task()
    update = method.train(task)
    close(update.weights.parameters, by_falling_rates(task, method, floor), 1e-12)
    assert update.steps == 6
    plain = SGD(batch=4, momentum=momentum).train(small.task())
    assert np.abs(update.weights.parameters - plain.weights.parameters).max() > 1e-3


@pytest.mark.parametrize("clip", [0.0, 0.2])
def test_a_floor_of_one_is_sgd_bit_for_bit(small: Any, clip: float) -> None:
    swa = FedSWA(batch=4, lr_floor=1, clip=clip).train(small.task())
    sgd = SGD(batch=4, clip=clip).train(small.task())
    assert swa.weights.parameters.tobytes() == sgd.weights.parameters.tobytes()
    assert swa.reach == sgd.reach


def test_the_reach_is_the_sum_of_the_rates(small: Any) -> None:
    update = FedSWA(batch=4, momentum=0).train(small.task())
    assert update.reach == pytest.approx(sum(0.1 * (1 - 0.9 * k / 6) for k in range(6)), rel=1e-12)


@given(lr=st.floats(1e-6, 10), floor=st.floats(0.01, 0.99), steps=st.integers(1, 60), again=st.integers(1, 60))
def test_rates_start_at_the_rounds_and_never_reach_the_floor(lr: float, floor: float, steps: int, again: int) -> None:
    rate = FedSWA(lr_floor=floor).rate(lr)
    rates = [rate(k, steps) for k in range(steps)]
    assert rates[0] == lr == rate(0, again)
    assert all(later < earlier for earlier, later in pairwise(rates))
    assert rates[-1] > floor * lr


def test_the_rounds_pace_is_what_falls(small: Any, by_hand: Callable[..., Any], close: Any) -> None:
    """One step a round has nothing to fall from: it is SGD's at the rate of the task, not of the settings."""
    method = FedSWA(batch=50, momentum=0, weight_decay=0, lr=7.0)
    task = small.task(pace=small.task().pace._replace(epochs=1))
    expected = by_hand(task, method, lambda module, x, y: functional.cross_entropy(module(x), y))
    close(method.train(task).weights.parameters, expected, 1e-13)


def test_one_sample_trains(small: Any) -> None:
    update = FedSWA().train(small.task(indices=np.array([3])))
    assert update.steps == 2
    assert np.isfinite(update.weights.parameters).all()


def test_servers_that_assume_a_constant_rate_are_told() -> None:
    assert FedSWA.changing_rate
    assert not SGD.changing_rate


def test_floors_out_of_range_are_refused() -> None:
    with pytest.raises(FedscopeError, match=r"client.lr_floor = 0 is out of range: it must be greater than 0"):
        FedSWA(lr_floor=0)
    with pytest.raises(FedscopeError, match=r"client.lr_floor = 1.1 is out of range: it must be at most 1"):
        FedSWA(lr_floor=1.1)
