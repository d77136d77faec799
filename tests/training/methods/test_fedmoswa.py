"""FedMoSWA: its clients against loops written by hand, and where both halves are FedSWA's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from local_loops import followed

from fedscope.checkpoints import FedscopeError
from fedscope.training import Config
from fedscope.training.methods.base import Exchange
from fedscope.training.methods.clients.fedmoswa import FedMoSWA
from fedscope.training.methods.clients.fedswa import FedSWA
from fedscope.training.methods.servers.fedmoswa import FedMoSWA as FedMoSWAServer
from fedscope.training.methods.servers.fedswa import FedSWA as FedSWAServer

RATES = [0.1 * (1 - 0.9 * k / 6) for k in range(6)]


def vectors(small: Any) -> tuple[np.ndarray, np.ndarray]:
    """A client's c_i and a momentum m that are nothing like gradients."""
    draw = np.random.default_rng(5)
    size = small.facts.layout.size
    return 0.3 * draw.normal(size=size), 0.2 * draw.normal(size=size)


def run(small: Any, method: FedMoSWA, control: np.ndarray | None, m: np.ndarray, **changes: Any) -> Any:
    state = {} if control is None else {"control": control}
    return method.train(small.task(sent={"momentum": m}, state=state, **changes))


def by_hand(small: Any, method: FedMoSWA, c: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """θ after six steps, and the six g."""
    return followed(small.task(), method, lambda _, g: g - c + m, RATES)


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


# --- the server ---


@pytest.mark.parametrize("alpha", [1.5, 1.0, 0.5])
def test_it_steps_as_fedswa_does_bit_for_bit(small: Any, alpha: float) -> None:
    clients, cohort = small.clients(), small.cohort()
    served = FedMoSWAServer(alpha=alpha).step({}, small.start, clients, cohort)
    assert (
        served.parameters.tobytes()
        == FedSWAServer(alpha=alpha).step({}, small.start, clients, cohort).parameters.tobytes()
    )
    expected = small.start.parameters + alpha * ([0.1, 0.3, 0.6] @ clients.parameters - small.start.parameters)
    np.testing.assert_allclose(served.parameters, expected, rtol=0, atol=1e-13)


def test_of_one_client_it_returns_that_client(small: Any) -> None:
    one = small.clients(1)
    served = FedMoSWAServer(alpha=1.0).step({}, small.start, one, small.cohort((10,)))
    np.testing.assert_allclose(served.parameters, one.parameters[0], rtol=0, atol=1e-14)


def test_gamma_is_one_for_both_halves_and_the_clients_own_beside_another_server() -> None:
    def settled(client: dict[str, Any], server: dict[str, Any]) -> Config:
        return Config.read({"client": client, "server": server})

    for client, server, gamma in (({}, {}, 0.2), ({}, {"gamma": 0.3}, 0.3), ({"gamma": 0.4}, {}, 0.4)):
        found = settled({"method": "fedmoswa", **client}, {"method": "fedmoswa", **server}).tables()
        assert found["client"]["gamma"] == found["server"]["gamma"] == gamma
        assert Config.read(found).tables() == found
    beside = settled({"method": "fedmoswa", "gamma": 0.4}, {"method": "fedadam"}).tables()
    assert beside["client"]["gamma"] == 0.4
    words = (
        r"^client\.gamma = 0\.4 and server\.gamma = 0\.3 differ, but FedMoSWA has one gamma; give --set "
        r"client\.gamma=0\.4 --set server\.gamma=0\.4, or --set client\.gamma=0\.3 --set server\.gamma=0\.3$"
    )
    with pytest.raises(FedscopeError, match=words):
        settled({"method": "fedmoswa", "gamma": 0.4}, {"method": "fedmoswa", "gamma": 0.3})
    with pytest.raises(
        FedscopeError, match=r"server\.gamma = 0\.3 moves .* but the client method is sgd; leave it out"
    ):
        settled({"method": "sgd"}, {"method": "fedmoswa", "gamma": 0.3})
    assert "gamma" not in settled({"method": "sgd"}, {"method": "fedmoswa"}).tables()["server"]
