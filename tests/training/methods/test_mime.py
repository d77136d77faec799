"""MIME against loops written by hand in numpy, and where its correction is known in closed form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from local_loops import gradient

from fedscope.checkpoints import FedscopeError
from fedscope.evaluation.standard_tasks import CLASSIFICATION
from fedscope.training.build import initial_model
from fedscope.training.config.config import Config
from fedscope.training.local.local_training import batches
from fedscope.training.local.worker_model import TrainableModel, mean_loss
from fedscope.training.methods.base import Exchange, LocalSchedule
from fedscope.training.methods.clients.mime import MIME
from fedscope.training.methods.clients.mimelite import MIMELite
from fedscope.training.methods.clients.sgd import SGD

cross_entropy = mean_loss(CLASSIFICATION)


def vectors(small: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """c, m and v that are nothing like this client's."""
    draw = np.random.default_rng(5)
    size = small.facts.layout.size
    return 0.3 * draw.normal(size=size), 0.2 * draw.normal(size=size), draw.uniform(0.01, 0.5, size)


def by_hand(small: Any, method: Any, c: np.ndarray, m: np.ndarray, scale: Any, pace: float = 0.1) -> np.ndarray:
    w = small.start.parameters
    theta = w.copy()
    for x, y in batches(small.task(), method):
        here = gradient(small.module, theta, x, y, method.weight_decay, method.clip)
        there = gradient(small.module, w, x, y, method.weight_decay, method.clip)
        theta = theta - pace * ((1 - method.beta) * (here - there + c) + method.beta * m) / scale
    return theta


@pytest.mark.parametrize("clip", [0.0, 0.3])
@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_steps_follow_the_frozen_momentum_and_the_corrected_gradient(
    small: Any, beta: float, clip: float, close: Any
) -> None:
    c, m, _ = vectors(small)
    method = MIME(batch=4, beta=beta, clip=clip, weight_decay=0.05)
    got = method.train(small.task(sent={"momentum": m}, surveyed={"gradient": c})).weights.parameters
    close(got, by_hand(small, method, c, m, 1.0), 1e-12)
    lite = MIMELite(batch=4, beta=beta, clip=clip, weight_decay=0.05)
    without = lite.train(small.task(sent={"momentum": m})).weights.parameters
    assert np.abs(got - without).max() > 1e-3


def test_adam_divides_by_the_frozen_root(small: Any, close: Any) -> None:
    c, m, v = vectors(small)
    method = MIME(batch=4, optimiser="adam", tau=0.02)
    got = method.train(small.task(sent={"momentum": m, "variance": v}, surveyed={"gradient": c}))
    expected = by_hand(small, method, c, m, np.sqrt(v) + 0.02)
    close(got.weights.parameters, expected, 1e-11)


def test_before_any_statistics_adam_divides_by_one(small: Any) -> None:
    c, _, _ = vectors(small)
    adam, momentum = MIME(batch=4, optimiser="adam"), MIME(batch=4)
    got, expected = (
        method.train(small.task(sent=method.begin(small.start, small.facts), surveyed={"gradient": c}))
        for method in (adam, momentum)
    )
    assert got.weights.parameters.tobytes() == expected.weights.parameters.tobytes()


@pytest.mark.parametrize("clip", [0.0, 0.1])
def test_the_first_step_is_along_c_whatever_the_batch(small: Any, clip: float, close: Any) -> None:
    c, m, _ = vectors(small)
    method = MIME(beta=0, batch=3, clip=clip)
    task = small.task(
        indices=np.array([7, 8, 30]), pace=LocalSchedule(0.1, 1), sent={"momentum": m}, surveyed={"gradient": c}
    )
    other = replace(task, indices=np.array([1, 2, 39]), bench=TrainableModel(small.module))
    got = method.train(task).weights.parameters
    close(got, small.start.parameters - 0.1 * c, 1e-14)
    assert got.tobytes() == method.train(other).weights.parameters.tobytes()


def test_alone_and_in_full_batches_the_correction_cancels(small: Any, close: Any) -> None:
    """g(θ) − g(w) + c is g(θ) where c = g(w): plain steps with a frozen momentum, MIMELite's."""
    _, m, _ = vectors(small)
    method = MIME(batch=11, weight_decay=0.05)
    task = small.task(sent={"momentum": m}, pace=LocalSchedule(0.1, 5))
    c = method.survey(task)["gradient"]
    got = method.train(replace(task, surveyed={"gradient": c})).weights.parameters
    theta = small.start.parameters.copy()
    for _ in range(5):
        g = gradient(small.module, theta, small.x[5:16], small.y[5:16], 0.05)
        theta = theta - 0.1 * (0.1 * g + 0.9 * m)
    close(got, theta, 1e-12)
    lite = MIMELite(batch=11, weight_decay=0.05).train(task).weights.parameters
    close(got, lite, 1e-12)


def test_the_survey_is_the_full_gradient_with_weight_decay(small: Any, close: Any) -> None:
    surveyed = MIME(batch=4, weight_decay=0.05, clip=1e-6).survey(small.task())["gradient"]
    expected = gradient(small.module, small.start.parameters, small.x[5:16], small.y[5:16], 0.05)
    close(surveyed, expected, 1e-14)


def exchange(small: Any, c: np.ndarray) -> Exchange:
    return Exchange(small.start, small.clients(), small.start, small.cohort(), small.facts, surveyed={"gradient": c})


def test_the_state_takes_in_c_after_the_round(small: Any, close: Any) -> None:
    c, m, v = vectors(small)
    shared = MIME(beta=0.8).share({"momentum": m}, exchange(small, c))
    assert list(shared) == ["momentum"]
    close(shared["momentum"], 0.8 * m + 0.2 * c, 1e-14)
    adam = MIME(optimiser="adam", beta=0.8, beta2=0.7).share({"momentum": m, "variance": v}, exchange(small, c))
    close(adam["momentum"], 0.8 * m + 0.2 * c, 1e-14)
    close(adam["variance"], 0.7 * v + 0.3 * c**2, 1e-14)


def test_the_first_round_counts(small: Any, close: Any) -> None:
    c, _, _ = vectors(small)
    for method in (MIME(), MIME(optimiser="adam")):
        shared = method.share(method.begin(small.start, small.facts), exchange(small, c))
        close(shared["momentum"], 0.1 * c, 1e-14)
        if "variance" in shared:
            close(shared["variance"], 0.01 * c**2, 1e-14)


def test_a_branch_may_go_on_with_adam_from_a_history_of_momentum(small: Any, close: Any) -> None:
    c, m, _ = vectors(small)
    method = MIME(batch=4, optimiser="adam")
    got = method.train(small.task(sent={"momentum": m}, surveyed={"gradient": c})).weights.parameters
    close(got, by_hand(small, method, c, m, 1.0), 1e-12)
    shared = method.share({"momentum": m}, exchange(small, c))
    close(shared["variance"], 0.01 * c**2, 1e-14)


def noisy(small: Any) -> tuple[Any, Any]:
    """A module whose passes leave traces: running statistics, and dropout masks that are drawn."""
    layers = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3)
    module = torch.nn.Sequential(*layers).double()
    bench = TrainableModel(module)
    bench.begin(small.task(start=initial_model(module), bench=bench))
    return module, bench


def test_a_gradient_elsewhere_leaves_the_bench_as_it_was(small: Any) -> None:
    module, bench = noisy(small)
    _, untouched = noisy(small)
    untouched.load(initial_model(module).parameters, initial_model(module).buffers)
    x, y = small.x[:10], small.y[:10]
    before = bench.read()
    elsewhere = bench.gradient_at(cross_entropy, bench.w + 0.3, x, y, 0.05)
    after = bench.read()
    assert before.parameters.tobytes() == after.parameters.tobytes()
    assert all(before.buffers[name].tobytes() == after.buffers[name].tobytes() for name in before.buffers)
    # the pass that follows meets the masks that it would have met
    bench.decayed(cross_entropy, x, y, 0.05)
    untouched.decayed(cross_entropy, x, y, 0.05)
    assert torch.equal(bench.g, untouched.g)
    assert not torch.allclose(elsewhere, bench.g)


def test_at_the_same_model_both_gradients_are_the_same_under_dropout(small: Any) -> None:
    _, bench = noisy(small)
    there = bench.gradient_at(cross_entropy, bench.w.clone(), small.x[:10], small.y[:10], 0.05)
    bench.decayed(cross_entropy, small.x[:10], small.y[:10], 0.05)
    assert torch.equal(there, bench.g)


def test_a_momentum_of_the_steps_own_is_refused() -> None:
    config = Config.read({})
    assert MIME().momentum == 0
    assert SGD().momentum != 0
    assert MIME().resolve(config) == MIME()
    with pytest.raises(FedscopeError, match=r"client.momentum = 0.9 does not go with MIME, .*set client.beta"):
        MIME(momentum=0.9).resolve(config)
    assert MIME.surveys
