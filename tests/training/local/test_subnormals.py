"""Local training takes subnormal numbers for 0, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch

from fedscope.checkpoints import Layout
from fedscope.evaluation.device import Compute, run_in_workers
from fedscope.training.build import initial_model
from fedscope.training.local.engine import Engine, GroupBenches, OfGroup, OfOne
from fedscope.training.local.local_training import LocalTask, local_sgd
from fedscope.training.local.subnormals import subnormals_as_zero, takes_subnormals_as_zero
from fedscope.training.local.worker_model import TrainableModel
from fedscope.training.methods.base import LocalSchedule
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.models.model_info import ModelInfo

#: exp(-GAP) is subnormal
GAP = 95.0
ONE = SGD(batch=1, momentum=0.0, weight_decay=0.0)
CPU = Compute(workers=2)

pytestmark = pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor has no such mode")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    torch.set_flush_denormal(False)


def fitted() -> torch.nn.Module:
    """Two classes from one number x: the logits of x = 1 are GAP apart, and the biases 0."""
    module = torch.nn.Sequential(torch.nn.Linear(1, 2))
    with torch.no_grad():
        module[0].weight.copy_(torch.tensor([[GAP / 2], [-GAP / 2]]))
        module[0].bias.zero_()
    return module


def tasks(count: int) -> list[LocalTask]:
    """Clients that have one sample, and take one step on it."""
    module = fitted()
    facts = ModelInfo(Layout.of(module), classes=2, clients=count, head="0")
    x, y = torch.ones(1, 1), torch.zeros(1, dtype=torch.int64)
    start, own = initial_model(module), np.array([0])
    return [LocalTask(1, k, x, y, own, start, LocalSchedule(1.0, 1), 0, facts) for k in range(count)]


def biases(parameters: np.ndarray) -> list[float]:
    """Of models [C, P], whose weights come first."""
    return np.atleast_2d(parameters)[:, 2:].ravel().tolist()


def alone(count: int) -> np.ndarray:
    return Engine(fitted(), CPU).train(ONE, tasks(count), np.full(count, 1 / count)).clients.parameters


def several(count: int) -> np.ndarray:
    engine = Engine(fitted(), CPU, kind="cohort")
    return engine.train(ONE, tasks(count), np.full(count, 1 / count)).clients.parameters


def elsewhere(count: int) -> np.ndarray:
    bench, work = TrainableModel(fitted()), OfOne(ONE.train)
    return np.stack([work(task, bench, Event()).weights.parameters for task in tasks(count)])


def group_elsewhere(count: int) -> np.ndarray:
    updates = OfGroup(ONE)(tasks(count), GroupBenches(fitted(), CPU), Event())
    return np.stack([update.weights.parameters for update in updates])


def test_a_subnormal_gradient_moves_a_weight_of_zero_where_nothing_is_said() -> None:
    (task,) = tasks(1)
    update = local_sgd(replace(task, bench=TrainableModel(fitted())), ONE)
    moved = biases(update.weights.parameters)
    assert moved[1] == pytest.approx(-np.exp(-GAP), rel=1e-2)  # a subnormal has few digits
    assert moved[1] < 0


@pytest.mark.parametrize("train", [alone, several, elsewhere, group_elsewhere])
@pytest.mark.parametrize("count", [1, 5])
def test_no_engine_moves_it(train: Any, count: int) -> None:
    assert biases(train(count)) == [0.0] * 2 * count
    assert not takes_subnormals_as_zero()


def test_the_callers_thread_and_other_work_compute_as_before() -> None:
    engine = Engine(fitted(), CPU)
    seen = []
    for update in engine.each(ONE.train, tasks(4)):
        seen.append(takes_subnormals_as_zero())
        assert biases(update.weights.parameters) == [0.0, 0.0]
    assert seen == [False] * 4
    assert list(run_in_workers(lambda *_: takes_subnormals_as_zero(), range(3))) == [False] * 3


@pytest.mark.parametrize("before", [False, True])
def test_afterwards_it_is_as_before(before: bool) -> None:
    torch.set_flush_denormal(before)

    @subnormals_as_zero()
    def work() -> None:
        assert takes_subnormals_as_zero()
        with subnormals_as_zero():
            pass
        assert takes_subnormals_as_zero()
        raise KeyError

    with pytest.raises(KeyError):
        work()
    assert takes_subnormals_as_zero() is before


def test_it_is_known_whatever_torch_makes_by_default() -> None:
    torch.set_flush_denormal(True)
    torch.set_default_dtype(torch.float64)
    try:
        assert takes_subnormals_as_zero()
    finally:
        torch.set_default_dtype(torch.float32)
