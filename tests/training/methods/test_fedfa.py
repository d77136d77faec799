"""FedFA against its formula written out sample by sample, and its anchors against an update by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from local_loops import SUPERVISED, learning

from fedscope.checkpoints import Layout
from fedscope.checkpoints.models.weights import TensorEntry
from fedscope.training.methods.base import Exchange, LocalSchedule
from fedscope.training.methods.clients.fedfa import FedFA
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.models.model_info import ModelInfo

PLAIN = {"batch": 4, "momentum": 0.0, "weight_decay": 0.0}
ANCHORS = np.random.default_rng(5).normal(size=(3, 5))


def taking_part(small: Any, **changes: Any) -> Any:
    return small.task(**{"sent": {"anchors": ANCHORS.copy()}, **changes})


def sgd(task: Any, **settings: Any) -> np.ndarray:
    parameters: np.ndarray = SGD(**{**PLAIN, **settings}).train(task).weights.parameters
    return parameters


@pytest.mark.parametrize("supervised", list(SUPERVISED))
@pytest.mark.parametrize("weight", [0.1, 4.0])
@pytest.mark.parametrize("calibrate_from", [3, 4, None])
def test_fedfa_follows_its_formula(
    small: Any, by_hand: Callable[..., Any], weight: float, calibrate_from: int | None, close: Any, supervised: str
) -> None:
    method = FedFA(**PLAIN, anchor_weight=weight, anchor_momentum=0.6, calibrate_from=calibrate_from)
    task = taking_part(small, facts=learning(small, supervised))
    anchors, seen = torch.from_numpy(ANCHORS), []

    def step(module: Any, x: Any, y: Any) -> Any:
        features = torch.tanh(module[0](x))
        seen.extend((int(label), row.detach().numpy().copy()) for label, row in zip(y, features, strict=True))
        loss = SUPERVISED[supervised](module(x), y)
        for c in range(3):
            rows = [features[i] for i in range(len(y)) if y[i] == c]
            if rows:
                loss = loss + weight / 3 * sum((row - anchors[c]).pow(2).sum() for row in rows) / len(rows)
        if calibrate_from == 3:
            answers = [module[2](anchors[c]) for c in range(3)]
            loss = loss + sum(torch.logsumexp(answers[c], 0) - answers[c][c] for c in range(3)) / 3
        return loss

    expected = by_hand(task, method, step)
    update = method.train(task)
    close(update.weights.parameters, expected, 1e-12)
    moved = ANCHORS.copy()
    for epoch in (seen[:11], seen[11:]):
        for c in range(3):
            moved[c] = 0.6 * moved[c] + 0.4 * np.mean([row for label, row in epoch if label == c], axis=0)
    close(update.message["anchors"], moved, 1e-12)
    assert np.abs(update.weights.parameters - sgd(small.task())).max() > 1e-3
    assert task.sent["anchors"].tobytes() == ANCHORS.tobytes()


def test_distances_reach_the_features_and_anchors_the_head(small: Any) -> None:
    settings, head = {**PLAIN, "batch": 20}, small.facts.head_mask()
    once = {"pace": LocalSchedule(0.1, 1)}
    plain = sgd(small.task(**once), batch=20)
    aligned = FedFA(**settings, anchor_weight=5.0, calibrate_from=4).train(taking_part(small, **once))
    calibrated = FedFA(**settings, anchor_weight=5.0, calibrate_from=3).train(taking_part(small, **once))
    np.testing.assert_array_equal(aligned.weights.parameters[head], plain[head])
    assert np.abs(aligned.weights.parameters - plain)[~head].max() > 1e-3
    np.testing.assert_array_equal(aligned.weights.parameters[~head], calibrated.weights.parameters[~head])
    assert np.abs(aligned.weights.parameters - calibrated.weights.parameters)[head].max() > 1e-3


def test_a_vanishing_weight_gives_sgd(small: Any, close: Any) -> None:
    trained = FedFA(**PLAIN, anchor_weight=1e-12).train(taking_part(small)).weights.parameters
    close(trained, sgd(small.task()), 1e-11)


def test_only_the_classes_that_a_client_has_move_its_anchors(small: Any) -> None:
    own = np.flatnonzero(small.y.numpy() == 1)[:6]
    message = FedFA().train(taking_part(small, indices=own)).message["anchors"]
    assert message[[0, 2]].tobytes() == ANCHORS[[0, 2]].tobytes()
    assert np.abs(message[1] - ANCHORS[1]).max() > 1e-3


def test_a_momentum_of_one_never_moves_an_anchor_and_of_zero_forgets_it(small: Any, close: Any) -> None:
    task = taking_part(small, pace=LocalSchedule(0.1, 1))
    kept = FedFA(**PLAIN, anchor_momentum=1.0).train(task).message["anchors"]
    close(kept, ANCHORS, 1e-14)
    # One batch: every feature is that of the model that was sent.
    forgot = FedFA(**{**PLAIN, "batch": 20}, anchor_momentum=0.0).train(task).message["anchors"]
    with torch.no_grad():
        features = small.module[:2](small.x[5:16]).numpy()
    means = [features[small.y[5:16].numpy() == c].mean(0) for c in range(3)]
    close(forgot, means, 1e-14)


def test_the_server_averages_anchors_by_samples(small: Any, close: Any) -> None:
    method, cohort = FedFA(**PLAIN), small.cohort((8, 24))
    # The second client lacks class 0: what it was sent counts with its full weight.
    lacking = np.flatnonzero(small.y.numpy() != 0)[:24]
    updates = [method.train(taking_part(small, indices=rows)) for rows in (np.arange(8), lacking)]
    messages = [update.message["anchors"] for update in updates]
    average = cohort.p[0] * messages[0] + cohort.p[1] * messages[1]
    exchange = Exchange(small.start, small.clients(2), small.start, cohort, small.facts, {"anchors": average})
    shared = method.share({"anchors": ANCHORS}, exchange)
    close(shared["anchors"], 0.25 * messages[0] + 0.75 * messages[1], 1e-14)
    close(shared["anchors"][0], 0.25 * messages[0][0] + 0.75 * ANCHORS[0], 1e-14)
    assert method.message_weighting == "p"
    single = replace(exchange, facts=replace(small.facts, layout=layout(3, 5)))
    assert method.share({}, single)["anchors"].dtype == np.float32


def layout(classes: int, width: int) -> Layout:
    return Layout((TensorEntry("head.weight", (classes, width), "float32", "parameter"),))


def test_anchors_begin_as_unit_vectors_of_the_feature_space(small: Any) -> None:
    anchors = FedFA().begin(small.start, small.facts)["anchors"]
    np.testing.assert_array_equal(anchors, np.eye(5)[:3])
    assert anchors.dtype == np.float64


def test_more_classes_than_features_begin_in_drawn_directions(small: Any) -> None:
    def begun(seed: int) -> np.ndarray:
        facts = ModelInfo(layout(9, 4), classes=9, seed=seed, head="head")
        anchors: np.ndarray = FedFA().begin(small.start, facts)["anchors"]
        return anchors

    anchors = begun(0)
    assert anchors.shape == (9, 4)
    assert anchors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(anchors, axis=1), 1, rtol=1e-6)
    assert len(np.unique(anchors.round(3), axis=0)) == 9
    assert anchors.tobytes() == begun(0).tobytes() != begun(1).tobytes()


@pytest.mark.parametrize(("rounds", "first"), [(1, 1), (4, 1), (5, 2), (60, 15), (61, 16)])
def test_calibration_begins_after_a_quarter_of_the_rounds(rounds: int, first: int) -> None:
    config: Any = SimpleNamespace(run=SimpleNamespace(rounds=rounds))
    assert FedFA().resolve(config).calibrate_from == first
    assert FedFA(calibrate_from=99).resolve(config).calibrate_from == 99
