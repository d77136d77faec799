"""MOON against its formula written out sample by sample; what its term may reach; what a client keeps."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from local_loops import SUPERVISED, learning

from fedscope.checkpoints import Layout, Weights
from fedscope.training.build import initial_model
from fedscope.training.local.worker_model import TrainableModel
from fedscope.training.methods.base import LocalSchedule
from fedscope.training.methods.clients.moon import MOON
from fedscope.training.methods.clients.sgd import SGD

PLAIN = {"batch": 4, "momentum": 0.0, "weight_decay": 0.0}


def as_module(small: Any, model: Weights) -> Any:
    module = deepcopy(small.module)
    module.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in model.arrays().items()})
    return module


def returning(small: Any, **changes: Any) -> Any:
    """The task of a client that took part before."""
    return small.task(**{"state": {"previous": small.model(9)}, "last": 1, **changes})


@pytest.mark.parametrize("supervised", list(SUPERVISED))
@pytest.mark.parametrize(("mu", "tau"), [(1.0, 1.0), (5.0, 0.5)])
def test_moon_follows_its_formula(
    small: Any, by_hand: Callable[..., Any], mu: float, tau: float, close: Any, supervised: str
) -> None:
    method, task = MOON(**PLAIN, mu=mu, temperature=tau), returning(small, facts=learning(small, supervised))
    sent, previous = as_module(small, task.start), as_module(small, task.state["previous"])

    def cosine(a: Any, b: Any) -> Any:
        return sum(a[j] * b[j] for j in range(5)) / (a.norm() * b.norm())

    def step(module: Any, x: Any, y: Any) -> Any:
        total = torch.zeros((), dtype=torch.float64)
        for i in range(len(y)):
            own, towards, away = (torch.tanh(net[0](x[i])) for net in (module, sent, previous))
            good, bad = (torch.exp(cosine(own, other.detach()) / tau) for other in (towards, away))
            total = total - torch.log(good / (good + bad))
        return SUPERVISED[supervised](module(x), y) + mu * total / len(y)

    trained = method.train(task).weights.parameters
    close(trained, by_hand(task, method, step), 1e-12)
    assert np.abs(trained - SGD(**PLAIN).train(small.task()).weights.parameters).max() > 1e-3


@pytest.mark.parametrize("settings", [PLAIN, {"batch": 4}, {"batch": 4, "clip": 0.3}])
def test_at_its_first_participation_a_client_steps_as_sgd_bit_for_bit(small: Any, settings: dict[str, Any]) -> None:
    update = MOON(**settings, mu=7.0).train(small.task())
    plain = SGD(**settings).train(small.task())
    assert update.weights.parameters.tobytes() == plain.weights.parameters.tobytes()
    assert update.loss == plain.loss  # without the term, which is 7 log 2


def test_a_client_keeps_its_own_model_and_is_pushed_away_from_it(small: Any) -> None:
    method = MOON(**PLAIN)
    first = method.train(small.task())
    assert first.state["previous"] is first.weights
    assert not first.message
    second = method.train(small.task(round=5, start=small.model(1), state=first.state, last=3))
    plain = SGD(**PLAIN).train(small.task(round=5, start=small.model(1)))
    assert np.abs(second.weights.parameters - plain.weights.parameters).max() > 1e-3


def test_the_features_turn_towards_the_global_models_and_away_from_the_previous(small: Any) -> None:
    def preference(update: Any) -> float:
        x = small.x[5:16]
        with torch.no_grad():
            own, sent, previous = (
                as_module(small, model)[:2](x) for model in (update.weights, small.start, small.model(9))
            )
        return float((torch.cosine_similarity(own, sent) - torch.cosine_similarity(own, previous)).mean())

    contrasted = preference(MOON(**PLAIN, mu=3.0).train(returning(small)))
    assert contrasted > preference(SGD(**PLAIN).train(small.task())) + 1e-2


def test_the_term_reaches_the_features_and_not_the_head(small: Any) -> None:
    once = {"pace": LocalSchedule(0.1, 1)}
    settings = {**PLAIN, "batch": 20}
    trained = MOON(**settings, mu=5.0).train(returning(small, **once)).weights.parameters
    plain = SGD(**settings).train(small.task(**once)).weights.parameters
    head = small.facts.head_mask()
    np.testing.assert_array_equal(trained[head], plain[head])
    assert np.abs(trained - plain)[~head].max() > 1e-3


def test_the_models_it_compares_with_stay_as_they_are(small: Any) -> None:
    task = returning(small)
    models = task.start, task.state["previous"]
    before = [model.parameters.copy() for model in models]
    MOON(**PLAIN, mu=5.0).train(task)
    for model, kept in zip(models, before, strict=True):
        assert model.parameters.tobytes() == kept.tobytes()


def test_a_worker_forgets_the_previous_model_of_another_client(small: Any) -> None:
    method, bench = MOON(**PLAIN), TrainableModel(small.module)
    method.train(returning(small, bench=bench, client=1))
    used = method.train(small.task(bench=bench)).weights.parameters
    assert used.tobytes() == method.train(small.task()).weights.parameters.tobytes()


def test_a_vanishing_weight_gives_sgd(small: Any, close: Any) -> None:
    trained = MOON(**PLAIN, mu=1e-12).train(returning(small)).weights.parameters
    plain = SGD(**PLAIN).train(small.task()).weights.parameters
    close(trained, plain, 1e-11)


@pytest.mark.parametrize("dead", [False, True])
def test_buffers_are_kept_and_dead_features_have_no_direction(small: Any, dead: bool) -> None:
    layers = torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU(), torch.nn.Linear(5, 3)
    module = torch.nn.Sequential(*layers).double()
    if dead:
        torch.nn.init.constant_(module[1].bias, -50.0)  # type: ignore[arg-type]
    facts = replace(small.facts, layout=Layout.of(module), head="3")
    task = small.task(start=initial_model(module), facts=facts, bench=TrainableModel(module))
    first = MOON(batch=4).train(task)
    kept = first.state["previous"]
    assert isinstance(kept, Weights)
    assert kept.buffers["1.num_batches_tracked"] == 6
    second = MOON(batch=4).train(replace(task, state=first.state, last=3, round=4))
    assert np.isfinite(second.weights.parameters).all()
