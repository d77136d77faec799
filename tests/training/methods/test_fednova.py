"""FedNova: steps are counted as the paper counts them, and nobody is moved by weights that do not add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedscope.checkpoints import FedscopeError, Weights, stack
from fedscope.training import Config
from fedscope.training.local.local_training import local_sgd
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.methods.servers.fednova import FedNova


def counted(steps: int, momentum: float) -> float:
    """a_i in the paper's closed form."""
    if momentum == 0:
        return steps
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_updates_are_averaged_a_step(small: Any, momentum: float) -> None:
    clients = small.clients(3)
    a = np.array([counted(k, momentum) for k in (2, 20, 5)])
    cohort = small.cohort(reach=0.1 * a)
    w, p = small.start.parameters, np.array([0.1, 0.3, 0.6])
    a_step = sum(p[i] * (clients.parameters[i] - w) / a[i] for i in range(3))
    served = FedNova().step({}, small.start, clients, cohort)
    np.testing.assert_allclose(served.parameters, w + (p @ a) * a_step, rtol=0, atol=1e-12)
    assert np.abs(served.parameters - p @ clients.parameters).max() > 1e-2
    assert served.state == {}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("batch", [4, 3, 50])
def test_reach_over_the_rate_is_the_papers_count_of_steps(small: Any, momentum: float, batch: int) -> None:
    method = SGD(momentum=momentum, batch=batch, weight_decay=0.0)
    update = local_sgd(small.task(), method)
    assert update.reach / 0.1 == pytest.approx(counted(update.steps, momentum), rel=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_is_averaged_is_each_clients_mean_gradient(small: Any, momentum: float) -> None:
    method = SGD(momentum=momentum, batch=2)
    updates, means = [], []
    for rows in (np.arange(3), np.arange(10, 32)):
        seen: list[np.ndarray] = []
        task = small.task(indices=rows)
        updates.append(local_sgd(task, method, correct=lambda _, g, seen=seen: seen.append(g.numpy().copy())))
        ages = np.arange(len(seen), 0, -1)
        weights = (1 - momentum**ages) / (1 - momentum)  # the step from a gradient and all that its momentum adds later
        means.append(weights @ np.array(seen) / weights.sum())
    steps = np.array([update.steps for update in updates])
    assert steps.tolist() == [4, 22]
    cohort = small.cohort((3, 22), steps=steps, reach=np.array([update.reach for update in updates]))
    served = FedNova().step({}, small.start, stack([update.weights for update in updates]), cohort)
    p = np.array([3, 22]) / 25
    effective = p @ [counted(k, momentum) for k in steps]
    expected = small.start.parameters - 0.1 * effective * (p @ np.array(means))
    np.testing.assert_allclose(served.parameters, expected, rtol=0, atol=1e-12)


def test_clients_who_have_not_moved_give_the_model_back_exactly(small: Any) -> None:
    # Weights p_i/a_i that are not brought back to a sum of 1 would return 3.025 times the model.
    cohort = small.cohort((10, 10), steps=np.array([2, 20]), reach=np.array([0.2, 2.0]))
    assert np.mean([2, 20]) * np.mean([1 / 2, 1 / 20]) == pytest.approx(3.025)
    served = FedNova().step({}, small.start, stack([small.start, small.start]), cohort)
    np.testing.assert_array_equal(served.parameters, small.start.parameters)


def test_with_equal_steps_it_is_fma_and_of_one_client_that_client(small: Any) -> None:
    clients = small.clients(3)
    served = FedNova().step({}, small.start, clients, small.cohort(reach=np.full(3, 0.7)))
    np.testing.assert_allclose(served.parameters, [0.1, 0.3, 0.6] @ clients.parameters, rtol=0, atol=1e-14)
    one = Weights(clients.layout, clients.parameters[:1], {})
    alone = FedNova().step({}, small.start, one, small.cohort((10,), reach=np.array([3.3])))
    np.testing.assert_allclose(alone.parameters, clients.parameters[0], rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("client", "reason"),
    [
        ("fedprox", "adds a term that pulls towards another model"),
        ("fedswa", "changes the learning rate inside a round"),
        ("fedala", "starts clients from other models than the one sent"),
    ],
)
def test_clients_whose_steps_are_not_counted_are_refused(client: str, reason: str) -> None:
    with pytest.raises(
        FedscopeError, match=rf"--server fednova counts steps .* but --client {client} {reason}; take --client sgd"
    ):
        Config.read({"client": {"method": client}, "server": {"method": "fednova"}})
