"""MIMELite against loops written by hand in numpy, and where it is plain SGD."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from local_loops import followed, gradient

from fedscope.checkpoints import FedscopeError
from fedscope.training.config.config import Config
from fedscope.training.methods.base import Exchange
from fedscope.training.methods.clients.mimelite import MIMELite
from fedscope.training.methods.clients.sgd import SGD


def vectors(small: Any) -> tuple[np.ndarray, np.ndarray]:
    """m and v that are nothing like this client's."""
    draw = np.random.default_rng(6)
    size = small.facts.layout.size
    return 0.2 * draw.normal(size=size), draw.uniform(0.01, 0.5, size)


@pytest.mark.parametrize("clip", [0.0, 0.3])
@pytest.mark.parametrize("optimiser", ["momentum", "adam"])
def test_steps_follow_the_frozen_statistics(small: Any, optimiser: Any, clip: float, close: Any) -> None:
    m, v = vectors(small)
    method = MIMELite(batch=4, optimiser=optimiser, clip=clip, weight_decay=0.05, beta=0.7, tau=0.02)
    sent = {"momentum": m, "variance": v} if optimiser == "adam" else {"momentum": m}
    scale = np.sqrt(v) + 0.02 if optimiser == "adam" else 1.0
    task = small.task(sent=sent)
    theta, _ = followed(task, method, lambda _, g: (0.3 * g + 0.7 * m) / scale)
    got = method.train(task).weights.parameters
    close(got, theta, 1e-12)
    plain = SGD(batch=4, momentum=0, clip=clip, weight_decay=0.05).train(small.task())
    assert np.abs(got - plain.weights.parameters).max() > 1e-3


def test_the_message_is_the_full_gradient_at_the_model_sent(small: Any, close: Any) -> None:
    m, _ = vectors(small)
    method = MIMELite(batch=4, weight_decay=0.05, clip=1e-6)
    message = method.train(small.task(sent={"momentum": m})).message
    expected = gradient(small.module, small.start.parameters, small.x[5:16], small.y[5:16], 0.05)
    assert list(message) == ["gradient"]
    close(message["gradient"], expected, 1e-14)


def test_the_state_takes_in_the_clients_mean_gradient(small: Any, close: Any) -> None:
    m, v = vectors(small)
    c = 0.3 * np.random.default_rng(7).normal(size=len(m))
    exchange = Exchange(small.start, small.clients(), small.start, small.cohort(), small.facts, message={"gradient": c})
    shared = MIMELite(beta=0.8).share({"momentum": m}, exchange)
    assert list(shared) == ["momentum"]
    close(shared["momentum"], 0.8 * m + 0.2 * c, 1e-14)
    adam = MIMELite(optimiser="adam", beta=0.8, beta2=0.7).share({"momentum": m, "variance": v}, exchange)
    close(adam["variance"], 0.7 * v + 0.3 * c**2, 1e-14)
    first = MIMELite().begin(small.start, small.facts)
    close(MIMELite().share(first, exchange)["momentum"], 0.1 * c, 1e-14)
    assert MIMELite.message_weighting == "p"
    assert not MIMELite.surveys


def test_as_beta_goes_to_nothing_it_is_sgd_without_momentum(small: Any, close: Any) -> None:
    m, _ = vectors(small)
    got = MIMELite(batch=4, beta=1e-12).train(small.task(sent={"momentum": m})).weights.parameters
    expected = SGD(batch=4, momentum=0).train(small.task()).weights.parameters
    close(got, expected, 1e-11)


def test_what_would_be_sgd_or_step_twice_along_a_momentum_is_refused() -> None:
    config = Config.read({})
    assert MIMELite().resolve(config) == MIMELite()
    # Adam without a mean gradient is RMSProp, which is no SGD
    assert MIMELite(optimiser="adam", beta=0).resolve(config).beta == 0
    with pytest.raises(FedscopeError, match=r"client.beta = 0 would switch the method off; .* --client sgd"):
        MIMELite(beta=0).resolve(config)
    with pytest.raises(FedscopeError, match=r"client.momentum = 0.5 does not go with MIMELite"):
        MIMELite(momentum=0.5).resolve(config)
