"""FedALA: the mixture that a client starts from, against a loop written by hand."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from local_loops import SUPERVISED, learning

from fedscope.checkpoints import FedscopeError, Layout, Weights
from fedscope.training.build import initial_model
from fedscope.training.methods.clients.fedala import FedALA
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.rng import generator

TOP = slice(35, 53)


def state(small: Any, a: Any = 1.0, learnt: int = 1, size: int = 18) -> dict[str, Any]:
    return {"local": small.model(8), "weights": np.zeros(size) + a, "learnt": np.array(learnt)}


def by_hand(
    small: Any, method: Any, a: np.ndarray, epochs: int, top: slice = TOP, supervised: str = "plain"
) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """A, the mixture and the epochs' losses after learning A on 9 of the 11 samples, in batches of 4."""
    criterion = SUPERVISED[supervised]
    counts = torch.ones(3) if criterion.weight is None else criterion.weight
    module = deepcopy(small.module)
    w, old = small.start.parameters, small.model(8).parameters
    drawn = 5 + generator(0, "personal", round=3, client=2).permutation(11)[:9]
    a, mixture, losses = a.copy(), w.copy(), []
    mixture[top] = old[top] + (w[top] - old[top]) * a
    for _ in range(epochs):
        total = 0.0
        for block in (drawn[:4], drawn[4:8], drawn[8:]):
            torch.nn.utils.vector_to_parameters(torch.from_numpy(mixture.copy()), module.parameters())
            loss = criterion(module(small.x[block]), small.y[block])
            found = torch.autograd.grad(loss, list(module.parameters()))
            g = np.concatenate([part.numpy().ravel() for part in found])[top]
            a = np.clip(a - method.mixing_lr * g * (w[top] - old[top]), 0, 1)
            mixture[top] = old[top] + (w[top] - old[top]) * a
            total += float(counts[small.y[block]].sum()) * loss.item()
        losses.append(total / float(counts[small.y[drawn]].sum()))
    return a, mixture, losses


def after(small: Any, method: Any, mixture: np.ndarray, **changes: Any) -> np.ndarray:
    """Plain SGD from the mixture."""
    settings = {name: getattr(method, name) for name in ("batch", "momentum", "weight_decay", "clip")}
    start = Weights(small.facts.layout, mixture, {})
    found: np.ndarray = SGD(**settings).train(small.task(start=start, **changes)).weights.parameters
    return found


@pytest.mark.parametrize("a", [1.0, 0.4])
def test_a_client_starts_from_a_learnt_mixture(small: Any, a: float, close: Any) -> None:
    """Neither weight decay nor clipping nor momentum has a part in A."""
    method = FedALA(batch=4, weight_decay=0.05, clip=0.3, mixing_lr=1.0)
    update = method.train(small.task(state=state(small, a)))
    weights, mixture, _ = by_hand(small, method, np.full(18, a), epochs=1)
    close(update.state["weights"], weights, 1e-12)
    close(update.weights.parameters, after(small, method, mixture), 1e-11)
    assert np.abs(weights - a).max() > 1e-2
    plain = SGD(batch=4, weight_decay=0.05, clip=0.3).train(small.task()).weights.parameters
    assert np.abs(update.weights.parameters - plain).max() > 1e-2


def test_a_learns_at_the_rate_of_the_paper_s_experiments_by_default() -> None:
    assert FedALA().mixing_lr == 0.01


def test_lower_layers_start_as_sent(small: Any) -> None:
    method = FedALA(batch=4)
    _, mixture = method.learn(small.task(), small.model(8), np.full(18, 0.5), first=False)
    assert mixture.parameters[:35].tobytes() == small.start.parameters[:35].tobytes()
    assert not np.isclose(mixture.parameters[TOP], small.start.parameters[TOP]).all()


def test_two_layers_are_the_whole_model_here(small: Any, close: Any) -> None:
    method = FedALA(batch=4, layers=2)
    update = method.train(small.task(state=state(small, 0.5, size=53)))
    weights, mixture, _ = by_hand(small, method, np.full(53, 0.5), 1, slice(0, 53))
    close(update.state["weights"], weights, 1e-12)
    close(update.weights.parameters, after(small, method, mixture), 1e-11)


def test_a_first_participation_is_sgd_bit_for_bit(small: Any) -> None:
    update = FedALA(batch=4).train(small.task())
    plain = SGD(batch=4).train(small.task())
    assert update.weights.parameters.tobytes() == plain.weights.parameters.tobytes()
    assert update.state["local"].parameters.tobytes() == plain.weights.parameters.tobytes()
    assert (update.state["weights"] == 1).all()
    assert update.state["learnt"] == 0


def test_with_a_at_one_it_is_the_global_model_bit_for_bit(small: Any) -> None:
    update = FedALA(batch=4, mixing_lr=1e-300).train(small.task(state=state(small, 1.0)))
    plain = SGD(batch=4).train(small.task())
    assert update.weights.parameters.tobytes() == plain.weights.parameters.tobytes()


def test_with_a_at_zero_the_top_is_the_clients_own_bit_for_bit(small: Any) -> None:
    _, mixture = FedALA(mixing_lr=1e-300).learn(small.task(), small.model(8), np.zeros(18), first=False)
    assert mixture.parameters[TOP].tobytes() == small.model(8).parameters[TOP].tobytes()


@pytest.mark.parametrize(("supervised", "threshold"), [("plain", 0.004), ("weighted", 0.0005)])
def test_the_first_learning_goes_on_until_the_loss_has_settled(
    small: Any, close: Any, supervised: str, threshold: float
) -> None:
    method, facts = FedALA(batch=4, window=3, threshold=threshold, mixing_lr=1.0), learning(small, supervised)
    _, _, losses = by_hand(small, method, np.ones(18), epochs=40, supervised=supervised)
    settled = next(n for n in range(4, 41) if np.std(losses[n - 3 : n]) < threshold)
    assert 4 < settled < 40
    weights, mixture, _ = by_hand(small, method, np.ones(18), epochs=settled, supervised=supervised)
    update = method.train(small.task(state=state(small, learnt=0), facts=facts))
    close(update.state["weights"], weights, 1e-11)
    close(update.weights.parameters, after(small, method, mixture, facts=facts), 1e-10)
    assert update.state["learnt"] == 1


@pytest.mark.parametrize(("threshold", "epochs"), [(1e9, 4), (1e-30, 7)])
def test_it_takes_more_epochs_than_the_window_and_no_more_than_the_most(
    small: Any, threshold: float, epochs: int, close: Any
) -> None:
    method = FedALA(batch=4, window=3, threshold=threshold, most_epochs=7, mixing_lr=0.1)
    update = method.train(small.task(state=state(small, learnt=0)))
    weights, _, _ = by_hand(small, method, np.ones(18), epochs)
    close(update.state["weights"], weights, 1e-12)


def test_what_it_keeps_is_what_it_goes_on_with(small: Any) -> None:
    """The same names and shapes at every participation, so that a cohort's states lie in one file."""
    method, shapes = FedALA(batch=4, window=2), []
    kept: dict[str, Any] = {}
    for round in (3, 4, 5):
        update = method.train(small.task(round=round, start=small.model(round), state=kept))
        kept = dict(update.state)
        shapes.append({name: np.shape(getattr(value, "parameters", value)) for name, value in kept.items()})
    assert shapes == [{"local": (53,), "weights": (18,), "learnt": ()}] * 3


@settings(max_examples=30)
@given(lr=st.floats(0.01, 1e4), a=st.floats(0, 1), seed=st.integers(0, 100))
def test_a_never_leaves_its_interval(lr: float, a: float, seed: int) -> None:
    weights, mixture, low, high = random_mixture(lr, a, seed)
    assert weights.min() >= 0
    assert weights.max() <= 1
    assert (mixture >= low - 1e-12).all()
    assert (mixture <= high + 1e-12).all()


def random_mixture(lr: float, a: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    from fedscope.training.local.local_training import LocalTask
    from fedscope.training.local.worker_model import TrainableModel
    from fedscope.training.methods.base import LocalSchedule
    from fedscope.training.models.model_info import ModelInfo

    draw = np.random.default_rng(seed)
    module = torch.nn.Sequential(torch.nn.Linear(2, 2)).double()
    layout = Layout.of(module)
    sent, own = (Weights(layout, draw.normal(size=6), {}) for _ in range(2))
    x, y = torch.from_numpy(draw.normal(size=(7, 2))), torch.from_numpy(draw.integers(0, 2, 7))
    task = LocalTask(
        1, 0, x, y, np.arange(7), sent, LocalSchedule(0.1, 1), seed, ModelInfo(layout), bench=TrainableModel(module)
    )
    weights, mixture = FedALA(batch=3, mixing_lr=lr, window=2, most_epochs=4).learn(
        task, own, np.full(6, a), first=True
    )
    both = np.stack([sent.parameters, own.parameters])
    return weights, mixture.parameters, both.min(0), both.max(0)


def test_a_branch_that_mixes_other_layers_starts_a_anew(small: Any) -> None:
    method = FedALA(batch=4, layers=2, window=3)
    got = method.train(small.task(state=state(small, 0.3)))
    expected = method.train(small.task(state=state(small, 1.0, learnt=0, size=53)))
    assert got.weights.parameters.tobytes() == expected.weights.parameters.tobytes()


def test_replays_draw_other_samples(small: Any) -> None:
    method = FedALA(batch=4)
    once, again, other = (
        method.learn(small.task(draw=draw), small.model(8), np.full(18, 0.5), first=False)[0] for draw in (1, 1, 2)
    )
    assert once.tobytes() == again.tobytes()
    assert once.tobytes() != other.tobytes()


def test_running_statistics_start_as_sent(small: Any) -> None:
    from fedscope.training.local.worker_model import TrainableModel

    module = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3)).double()
    start = initial_model(module)
    task = small.task(start=start, facts=replace(small.facts, layout=start.layout), bench=TrainableModel(module))
    own = Weights(start.layout, start.parameters + 0.1, start.buffers)
    _, mixture = FedALA(batch=4).learn(task, own, np.full(15, 0.5), first=False)
    for name, values in start.buffers.items():
        np.testing.assert_array_equal(mixture.buffers[name], values)


def test_a_client_uses_what_it_has_trained(small: Any) -> None:
    own = small.model(8)
    assert FedALA().personalise(small.task(), {"local": own}) is own
    task = small.task()
    assert FedALA().personalise(task, {}) is task.start
    assert FedALA.personal


def test_one_sample_trains(small: Any) -> None:
    for kept in ({}, state(small), state(small, learnt=0)):
        update = FedALA().train(small.task(indices=np.array([3]), state=kept))
        assert np.isfinite(update.weights.parameters).all()


def test_more_layers_than_there_are_are_refused(small: Any) -> None:
    assert FedALA(layers=2).begin(small.start, small.facts) == {}
    with pytest.raises(FedscopeError, match=r"client.layers = 3, but the model has 2 layers .* client.layers=2"):
        FedALA(layers=3).begin(small.start, small.facts)
