"""FedSWA: its clients against a loop written by hand, and where they are plain SGD; its server."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_loops import followed
from torch.nn import functional

from fedscope.training.methods.clients.fedswa import FedSWA
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.methods.servers.fedswa import FedSWA as FedSWAServer
from fedscope.training.methods.servers.fma import FMA


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("floor", [0.1, 0.6])
def test_the_clients_rate_falls_linearly_inside_the_round(
    small: Any, momentum: float, floor: float, close: Any
) -> None:
    method, task = FedSWA(batch=4, momentum=momentum, lr_floor=floor), small.task()
    update = method.train(task)
    falling = [0.1 * (1 - k / 6) + floor * 0.1 * k / 6 for k in range(6)]
    close(update.weights.parameters, followed(task, method, rates=falling)[0], 1e-12)
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


def test_servers_that_assume_a_constant_rate_are_told() -> None:
    assert FedSWA.changing_rate
    assert not SGD.changing_rate


# --- the server ---


@pytest.mark.parametrize("alpha", [1.5, 0.4, 3.0])
def test_the_server_goes_alpha_times_as_far_as_the_mean(small: Any, alpha: float) -> None:
    clients = small.clients()
    served = FedSWAServer(alpha=alpha).step({}, small.start, clients, small.cohort())
    mean = [0.1, 0.3, 0.6] @ clients.parameters
    expected = (1 - alpha) * small.start.parameters + alpha * mean
    np.testing.assert_allclose(served.parameters, expected, rtol=0, atol=1e-13)
    assert np.abs(served.parameters - mean).max() > 1e-2
    assert FedSWAServer().alpha == 1.5


def test_with_alpha_one_it_is_fma_and_of_one_client_that_client(small: Any) -> None:
    clients = small.clients()
    served = FedSWAServer(alpha=1.0).step({}, small.start, clients, small.cohort())
    fma = FMA().step({}, small.start, clients, small.cohort())
    np.testing.assert_allclose(served.parameters, fma.parameters, rtol=0, atol=1e-14)
    one = small.clients(1)
    alone = FedSWAServer(alpha=1.0).step({}, small.start, one, small.cohort((10,)))
    np.testing.assert_allclose(alone.parameters, one.parameters[0], rtol=0, atol=1e-14)
