"""FedGMA: the mask, parameter by parameter, and where it is 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscope.checkpoints import Layout, TensorEntry, Weights
from fedscope.training.methods.base import Cohort
from fedscope.training.methods.servers.fedgma import FedGMA


def step(method: FedGMA, updates: np.ndarray, p: Any) -> np.ndarray:
    """One step from 0 with given updates [C, P]."""
    layout = Layout((TensorEntry("w", updates.shape[1:], "float64", "parameter"),))
    n = np.ones(len(p), dtype=int)
    cohort = Cohort(1, np.arange(len(p)), n, n, np.asarray(p))
    return method.step({}, Weights(layout, np.zeros(layout.size), {}), Weights(layout, updates, {}), cohort).parameters


def test_the_mask_is_one_from_the_threshold_on_and_the_agreement_below() -> None:
    updates = np.array(
        [
            #  all agree, one against, the greatest against, unmoved by one, by all
            [1.0, -1.0, 1.0, 0.0, 0.0],
            [2.0, 2.0, 1.0, 2.0, 0.0],
            [3.0, 3.0, -1.0, 3.0, 0.0],
        ]
    )
    p = [0.1, 0.3, 0.6]
    mean = np.array([2.5, 2.3, -0.2, 2.4, 0.0])
    agree = np.array([1.0, 0.8, 0.2, 0.9, 0.0])
    np.testing.assert_allclose(step(FedGMA(), updates, p), [2.5, 2.3, 0.2 * -0.2, 2.4, 0.0], atol=1e-15)
    np.testing.assert_allclose(step(FedGMA(tau=0.85), updates, p), [2.5, 0.8 * 2.3, 0.2 * -0.2, 2.4, 0.0], atol=1e-15)
    np.testing.assert_allclose(step(FedGMA(tau=0.1, lr=0.5), updates, p), mean / 2, atol=1e-15)
    np.testing.assert_allclose(step(FedGMA(tau=1.0), updates, p), [2.5, *(agree * mean)[1:]], atol=1e-15)
    hard = FedGMA(tau=0.85, mask="hard")
    np.testing.assert_allclose(step(hard, updates, p), [2.5, 0.0, 0.0, 2.4, 0.0], atol=1e-15)
    assert FedGMA().mask == "soft"


@settings(max_examples=40)
@given(
    tau=st.floats(0.01, 1),
    lr=st.floats(0.1, 2),
    seed=st.integers(0, 10**6),
    count=st.integers(1, 6),
    hard=st.booleans(),
)
def test_any_cohort_parameter_by_parameter(tau: float, lr: float, seed: int, count: int, hard: bool) -> None:
    draw = np.random.default_rng(seed)
    updates, p = draw.normal(size=(count, 5)), draw.dirichlet(np.ones(count))
    expected = []
    for column in updates.T:
        up, down = p[column > 0].sum(), p[column < 0].sum()
        agree = abs(up - down)
        expected.append(lr * (1 if agree > tau - 1e-9 else 0 if hard else agree) * (p @ column))
    method = FedGMA(tau=tau, lr=lr, mask="hard" if hard else "soft")
    np.testing.assert_allclose(step(method, updates, p), expected, rtol=0, atol=1e-8)


def test_nine_of_ten_agree_enough_in_whatever_order_they_come() -> None:
    p = np.full(10, 0.1)
    for against in range(10):
        updates = np.ones((10, 1))
        updates[against] = -1
        assert step(FedGMA(), updates, p) == pytest.approx(0.8, abs=1e-12)  # 0.64 if it were masked


def test_one_client_always_agrees(small: Any) -> None:
    one = small.clients(1)
    served = FedGMA().step({}, small.start, one, small.cohort((10,)))
    np.testing.assert_allclose(served.parameters, one.parameters[0], rtol=0, atol=1e-14)
