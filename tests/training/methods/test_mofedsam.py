"""MoFedSAM against a loop in plain torch, and as FedCM where ρ goes to 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from local_loops import followed_uphill

from fedscope.training.methods.base import Exchange
from fedscope.training.methods.clients.fedcm import FedCM
from fedscope.training.methods.clients.fedsam import FedSAM
from fedscope.training.methods.clients.mofedsam import MoFedSAM


@pytest.mark.parametrize("decay", ["apart", "within"])
@pytest.mark.parametrize(("momentum", "weight_decay", "clip"), [(0.0, 0.0, 0.0), (0.9, 0.05, 0.0), (0.9, 0.05, 0.3)])
def test_steps_follow_the_mix_of_sams_gradient_and_momentum(
    small: Any, momentum: float, weight_decay: float, clip: float, decay: str, close: Any
) -> None:
    settings: dict[str, Any] = {"batch": 4, "momentum": momentum, "weight_decay": weight_decay, "clip": clip}
    method = MoFedSAM(alpha=0.6, sam_rho=0.5, sam_decay=decay, **settings)
    task = small.task(sent={"momentum": np.random.default_rng(5).normal(size=53) / 5})
    trained = method.train(task).weights.parameters
    expected = followed_uphill(
        task,
        method,
        lambda _, g: 0.5 * g / np.linalg.norm(g),
        lambda g: 0.6 * g + 0.4 * task.sent["momentum"],
    )
    close(trained, expected, 1e-11)
    for other in (FedCM(alpha=0.6, **settings), FedSAM(sam_rho=0.5, **settings)):
        assert np.abs(trained - other.train(task).weights.parameters).max() > 1e-3


def test_as_rho_goes_to_0_it_is_fedcm_and_it_shares_the_same(small: Any, close: Any) -> None:
    task = small.task(sent={"momentum": np.ones(53) / 10})
    tiny, mixed = (method.train(task).weights.parameters for method in (MoFedSAM(sam_rho=1e-10), FedCM()))
    close(tiny, mixed, 1e-9)
    exchange = Exchange(small.start, small.clients(), small.start, small.cohort(), small.facts)
    shared = [method.share(task.sent, exchange)["momentum"] for method in (MoFedSAM(), FedCM())]
    assert shared[0].tobytes() == shared[1].tobytes()
