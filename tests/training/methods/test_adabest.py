"""AdaBest: its clients against a loop by hand, m̄ as the mean over all participations, and its server by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_loops import followed

from fedscope.checkpoints import Layout, TensorEntry, Weights
from fedscope.training.methods.base import Cohort, Exchange, LocalSchedule
from fedscope.training.methods.clients.adabest import AdaBest
from fedscope.training.methods.clients.sgd import SGD
from fedscope.training.methods.servers.adabest import AdaBest as AdaBestServer
from fedscope.training.models.model_info import ModelInfo


@pytest.mark.parametrize(("momentum", "weight_decay", "clip"), [(0.0, 0.0, 0.0), (0.9, 0.05, 0.0), (0.9, 0.05, 0.3)])
def test_steps_leave_the_drift_out_and_the_drift_fades(
    small: Any, momentum: float, weight_decay: float, clip: float, close: Any
) -> None:
    method = AdaBest(mu=0.3, batch=4, momentum=momentum, weight_decay=weight_decay, clip=clip)
    h = np.random.default_rng(4).normal(size=53)
    sent = {"samples_a_step": np.array([5.5]), "participations": np.array([7.0])}
    # Last seen in round 3, back in round 8, for 2 epochs over 11 samples.
    settings = {"round": 8, "last": 3, "state": {"drift": h}, "sent": sent, "pace": LocalSchedule(0.1, 2)}
    update = method.train(small.task(**settings))
    expected, _ = followed(small.task(**settings), method, lambda _, g: g - 0.3 * 2 * 5.5 / 11 * h)
    close(update.weights.parameters, expected, 1e-11)
    close(update.state["drift"], h / 5 + (small.start.parameters - expected), 1e-11)
    # 2 epochs over 11 samples in 6 steps.
    assert update.message["samples_a_step"].tolist() == [22 / 6]
    plain = SGD(batch=4, momentum=momentum, weight_decay=weight_decay, clip=clip).train(small.task(**settings))
    assert np.abs(plain.weights.parameters - expected).max() > 1e-2


def test_the_first_participation_is_sgd_and_keeps_the_whole_movement(small: Any) -> None:
    sent = {"samples_a_step": np.array([5.5]), "participations": np.array([7.0])}
    first = AdaBest().train(small.task(round=9, sent=sent))
    plain = SGD().train(small.task(round=9)).weights.parameters
    assert first.weights.parameters.tobytes() == plain.tobytes()
    assert first.state["drift"].tobytes() == (small.start.parameters - plain).tobytes()
    again = AdaBest(mu=0.2).train(small.task(round=10, sent=sent, state=first.state, last=9))
    other = SGD().train(small.task(round=10)).weights.parameters
    assert np.abs(again.weights.parameters - other).max() > 1e-3


def test_a_client_with_more_samples_is_corrected_less(small: Any, close: Any) -> None:
    # One full batch and one step each, so that the correction is all that differs from SGD: η μ E m̄/n_i h.
    sent = {"samples_a_step": np.array([4.0]), "participations": np.array([1.0])}
    for n in (1, 2, 10):
        settings = {"indices": np.arange(n), "pace": LocalSchedule(0.1, 1)}
        ours = AdaBest(mu=0.5).train(small.task(**settings, sent=sent, state={"drift": np.ones(53)}, last=1))
        plain = SGD().train(small.task(**settings))
        difference = ours.weights.parameters - plain.weights.parameters
        close(difference, 0.1 * 0.5 * 4 / n, 1e-14)


@given(st.lists(st.lists(st.floats(0.5, 500), min_size=1, max_size=4), min_size=1, max_size=4))
def test_what_is_sent_is_the_mean_over_all_participations_so_far(rounds: list[list[float]]) -> None:
    layout = Layout((TensorEntry("w", (2,), "float32", "parameter"),))
    w, facts, method = Weights(layout, np.zeros(2, np.float32), {}), ModelInfo(layout, clients=5), AdaBest()
    sent = method.begin(w, facts)
    assert method.message_weighting == "uniform"
    for t, steps in enumerate(rounds, start=1):
        n = np.ones(len(steps))
        cohort = Cohort(t, np.arange(len(steps)), n, n, n / n.sum(), 5)
        message = {"samples_a_step": np.array([np.mean(steps)])}
        sent = method.share(sent, Exchange(w, w, w, cohort, facts, message))
    everyone = [one for steps in rounds for one in steps]
    assert sent["samples_a_step"] == pytest.approx([np.mean(everyone)], rel=1e-12)
    assert sent["participations"].tolist() == [len(everyone)]


# --- the server ---


@pytest.mark.parametrize("beta", [0.9, 0.2, 1.0])
def test_four_rounds_by_hand(small: Any, beta: float) -> None:
    server = AdaBestServer(beta=beta)
    w, state = small.start, server.init(small.start.parameters)
    before = small.start.parameters  # the mean before the first round is the first model
    for t in range(4):
        clients = small.clients(3, seed=10 * t)
        mean = sum(clients.parameters) / 3
        expected = mean + beta * (mean - before)
        served = server.step(state, w, clients, small.cohort())
        np.testing.assert_allclose(served.parameters, expected, rtol=0, atol=1e-13)
        np.testing.assert_allclose(served.state["mean"], mean, rtol=0, atol=1e-13)
        assert np.abs(served.parameters - mean).max() > 1e-2
        w, state, before = Weights(w.layout, served.parameters, {}), served.state, mean


def test_what_it_extrapolates_is_the_clients_mean_and_not_the_global_model(small: Any) -> None:
    server = AdaBestServer()
    first = server.step(server.init(small.start.parameters), small.start, small.clients(), small.cohort())
    w = Weights(small.start.layout, first.parameters, {})
    still = Weights(w.layout, np.stack([w.parameters] * 3), {})
    second = server.step(first.state, w, still, small.cohort())
    mean = small.clients().parameters.mean(0)
    np.testing.assert_allclose(second.parameters, w.parameters + 0.9 * (w.parameters - mean), rtol=0, atol=1e-13)


def test_a_small_beta_is_the_unweighted_mean(small: Any) -> None:
    clients, server = small.clients(), AdaBestServer(beta=1e-12)
    served = server.step(server.init(small.start.parameters), small.start, clients, small.cohort())
    np.testing.assert_allclose(served.parameters, clients.parameters.mean(0), rtol=0, atol=1e-11)
