"""FedCM against a loop by autograd, and its momentum as the mean of the directions that were followed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_loops import carried, followed

from fedscope.checkpoints import Layout, TensorEntry, Weights, stack
from fedscope.training.methods.base import Cohort, Exchange, LocalSchedule
from fedscope.training.methods.clients.fedcm import FedCM
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.models.model_info import ModelInfo


@pytest.mark.parametrize("alpha", [0.1, 0.7])
@pytest.mark.parametrize(("momentum", "weight_decay", "clip"), [(0.0, 0.0, 0.0), (0.9, 0.0, 0.0), (0.9, 0.05, 0.3)])
def test_steps_follow_the_mix_of_clipped_gradient_and_momentum(
    small: Any, alpha: float, momentum: float, weight_decay: float, clip: float, close: Any
) -> None:
    method = FedCM(alpha=alpha, batch=4, momentum=momentum, weight_decay=weight_decay, clip=clip)
    sent = {"momentum": np.random.default_rng(5).normal(size=53) / 5}
    expected, seen = followed(small.task(sent=sent), method, lambda _, g: alpha * g + (1 - alpha) * sent["momentum"])
    update = method.train(small.task(sent=sent))
    close(update.weights.parameters, expected, 1e-11)
    plain = SGD(batch=4, momentum=momentum, weight_decay=weight_decay, clip=clip)
    assert np.abs(expected - plain.train(small.task()).weights.parameters).max() > 1e-2

    # A cohort of one: c⁺ is the mean of its directions, with momentum and without.
    cohort = small.cohort([11], reach=np.array([update.reach]))
    exchange = Exchange(small.start, stack([update.weights]), small.start, cohort, small.facts)
    own = np.average(seen, axis=0, weights=carried(len(seen), momentum))
    close(method.share(sent, exchange)["momentum"], alpha * own + (1 - alpha) * sent["momentum"], 1e-11)


def test_the_first_round_steps_by_a_times_the_gradient(small: Any, close: Any) -> None:
    method = FedCM(alpha=0.3)
    sent = method.begin(small.start, small.facts)
    assert not sent["momentum"].any()
    slower = SGD().train(small.task(pace=LocalSchedule(0.03, 2)))
    trained = method.train(small.task(sent=sent))
    close(trained.weights.parameters, slower.weights.parameters, 1e-13)


@given(parts=st.lists(st.tuples(st.integers(1, 1000), st.floats(1e-3, 10)), min_size=1, max_size=6))
def test_clients_that_follow_one_direction_give_it_back_however_far_they_go(
    parts: list[tuple[int, float]], close: Any
) -> None:
    layout = Layout((TensorEntry("w", (3,), "float64", "parameter"),))
    samples, reach = np.array([n for n, _ in parts]), np.array([r for _, r in parts])
    w, direction = np.array([1.0, -2.0, 0.5]), np.array([0.3, -4.0, 0.0])
    clients = Weights(layout, w - reach[:, None] * direction, {})
    cohort = Cohort(1, np.arange(len(parts)), samples, samples, samples / samples.sum(), reach=reach)
    start = Weights(layout, w, {})
    shared = FedCM().share({"momentum": 9 * w}, Exchange(start, clients, start, cohort, ModelInfo(layout)))
    close(shared["momentum"], direction, 1e-11)


def test_the_momentum_is_the_cohorts_weighted_mean_alone(small: Any, close: Any) -> None:
    cohort = small.cohort(reach=np.array([0.2, 0.4, 0.8]))
    clients, w = small.clients().parameters, small.start.parameters
    exchange = Exchange(small.start, small.clients(), small.model(1), cohort, small.facts)
    expected = sum(p * (w - theta) / r for p, theta, r in zip((0.1, 0.3, 0.6), clients, (0.2, 0.4, 0.8), strict=True))
    shared = FedCM().share({"momentum": w}, exchange)["momentum"]
    close(shared, expected, 1e-13)
    assert shared.dtype == small.facts.layout.dtype
    half = replace(small.facts, layout=Layout.of(small.module.float()))
    assert FedCM().share({"momentum": w}, replace(exchange, facts=half))["momentum"].dtype == np.float32
