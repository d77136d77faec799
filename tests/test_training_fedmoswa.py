"""FedMoSWA's client half: against loops written by hand, and where it is FedSWA's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedscope.checkpoints import FedscopeError
from fedscope.training.clients.fedmoswa import FedMoSWA
from fedscope.training.clients.fedswa import FedSWA
from fedscope.training.local import batches
from fedscope.training.methods import Exchange

RATES = [0.1 * (1 - 0.9 * k / 6) for k in range(6)]


def vectors(small: Any) -> tuple[np.ndarray, np.ndarray]:
    """A client's c_i and a momentum m that are nothing like gradients."""
    draw = np.random.default_rng(5)
    size = small.facts.layout.size
    return 0.3 * draw.normal(size=size), 0.2 * draw.normal(size=size)


def run(small: Any, method: FedMoSWA, control: np.ndarray | None, m: np.ndarray, **changes: Any) -> Any:
    state = {} if control is None else {"control": control}
    return method.train(small.task(sent={"momentum": m}, state=state, **changes))


def gradient(module: Any, theta: np.ndarray, x: Any, y: Any, weight_decay: float, clip: float) -> np.ndarray:
    """g of a batch at θ: weight decay included, then clipped."""
    torch.nn.utils.vector_to_parameters(torch.from_numpy(theta.copy()), module.parameters())
    parts = torch.autograd.grad(functional.cross_entropy(module(x), y), list(module.parameters()))
    g = np.concatenate([part.numpy().ravel() for part in parts]) + weight_decay * theta
    norm = np.linalg.norm(g)
    return g * clip / norm if clip and norm > clip else g


def by_hand(small: Any, method: FedMoSWA, c: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """θ after six steps, and the six g."""
    theta, velocity, seen = small.start.parameters.copy(), 0.0, []
    for k, (x, y) in enumerate(batches(small.task(), method)):
        g = gradient(small.module, theta, x, y, method.weight_decay, method.clip)
        seen.append(g)
        velocity = method.momentum * velocity + g - c + m
        theta = theta - RATES[k] * velocity
    return theta, seen


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_steps_follow_g_less_own_plus_common_clipped_before(
    small: Any, momentum: float, clip: float, close: Any
) -> None:
    c, m = vectors(small)
    method = FedMoSWA(batch=4, momentum=momentum, clip=clip, weight_decay=0.02)
    expected, _ = by_hand(small, method, c, m)
    got = run(small, method, c, m).weights.parameters
    close(got, expected, 1e-11)
    plain = FedSWA(batch=4, momentum=momentum, clip=clip, weight_decay=0.02).train(small.task())
    assert np.abs(got - plain.weights.parameters).max() > 1e-2


@pytest.mark.parametrize("held", [{}, {"control": np.zeros(53)}])
def test_with_nothing_held_it_is_fedswa_bit_for_bit(small: Any, held: dict[str, np.ndarray]) -> None:
    method = FedMoSWA(batch=4, clip=0.4)
    sent = method.begin(small.start, small.facts)
    assert not sent["momentum"].any()
    got = method.train(small.task(sent=sent, state=held))
    expected = FedSWA(batch=4, clip=0.4).train(small.task())
    assert got.weights.parameters.tobytes() == expected.weights.parameters.tobytes()


def test_what_a_client_keeps_is_the_rate_weighted_mean_of_its_own_gradients(small: Any, close: Any) -> None:
    c, m = vectors(small)
    method = FedMoSWA(batch=4, momentum=0, weight_decay=0.02)
    update = run(small, method, c, m)
    _, seen = by_hand(small, method, c, m)
    mean = np.average(seen, axis=0, weights=RATES)
    close(update.state["control"], mean, 1e-11)
    close(update.message["control"], mean - m, 1e-11)


def test_with_momentum_it_stays_a_weighted_mean(small: Any, close: Any) -> None:
    c, m = vectors(small)
    method = FedMoSWA(batch=4, momentum=0.9)
    update = run(small, method, c, m)
    _, seen = by_hand(small, method, c, m)
    # how far g_j has carried the client: it is in the velocity of every later step
    weights = [sum(RATES[k] * 0.9 ** (k - j) for k in range(j, 6)) for j in range(6)]
    close(update.state["control"], np.average(seen, axis=0, weights=weights), 1e-11)


def test_the_momentum_moves_gamma_of_the_way_to_the_unweighted_mean(small: Any, close: Any) -> None:
    _, m = vectors(small)
    method = FedMoSWA(batch=4, gamma=0.3)
    updates = [run(small, method, None, m, client=k, indices=np.arange(4 * k, 4 * k + 3 + k)) for k in range(3)]
    message = np.mean([update.message["control"] for update in updates], axis=0)
    exchange = Exchange(
        small.start, small.clients(), small.start, small.cohort(), small.facts, message={"control": message}
    )
    shared = method.share({"momentum": m}, exchange)["momentum"]
    kept = np.mean([update.state["control"] for update in updates], axis=0)
    close(shared, 0.7 * m + 0.3 * kept, 1e-12)
    assert FedMoSWA.message_weighting == "uniform"


def test_the_first_round_is_not_dropped(small: Any, close: Any) -> None:
    method = FedMoSWA(batch=4)
    sent = method.begin(small.start, small.facts)
    update = method.train(small.task(sent=sent))
    exchange = Exchange(
        small.start, small.clients(1), small.start, small.cohort((9,)), small.facts, message=dict(update.message)
    )
    first = method.share(sent, exchange)["momentum"]
    close(first, 0.2 * update.state["control"], 1e-14)
    assert np.abs(first).max() > 1e-3


def test_vectors_travel_and_rest_in_the_models_precision(small: Any) -> None:
    from fedscope.checkpoints import Layout
    from fedscope.training.bench import Workbench
    from fedscope.training.building import initial_model

    module = small.module.float()
    layout = Layout.of(module)
    facts = replace(small.facts, layout=layout)
    method = FedMoSWA(batch=4)
    sent = method.begin(initial_model(module), facts)
    task = small.task(x=small.x.float(), start=initial_model(module), facts=facts, bench=Workbench(module), sent=sent)
    update = method.train(task)
    assert sent["momentum"].dtype == update.state["control"].dtype == np.float32
    again = method.train(replace(task, state=update.state))
    assert np.isfinite(again.weights.parameters).all()


def test_one_sample_trains(small: Any) -> None:
    c, m = vectors(small)
    update = run(small, FedMoSWA(), c, m, indices=np.array([3]))
    assert np.isfinite(update.weights.parameters).all()


def test_a_momentum_that_never_moves_is_refused() -> None:
    with pytest.raises(FedscopeError, match=r"client.gamma = 0 would switch the method off; .* --client fedswa"):
        FedMoSWA(gamma=0)
    with pytest.raises(FedscopeError, match=r"client.gamma = 1.5 is out of range"):
        FedMoSWA(gamma=1.5)
    with pytest.raises(FedscopeError, match=r"client.lr_floor = 0 is out of range"):
        FedMoSWA(lr_floor=0)
