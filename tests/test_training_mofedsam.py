"""MoFedSAM against a loop in plain torch, and as FedCM where ρ goes to 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedscope.checkpoints import FedscopeError
from fedscope.training.clients.fedcm import FedCM
from fedscope.training.clients.fedsam import FedSAM
from fedscope.training.clients.mofedsam import MoFedSAM
from fedscope.training.local import LocalTask, batches
from fedscope.training.methods import Exchange


def by_vector(task: LocalTask, method: MoFedSAM) -> np.ndarray:
    """On one flat vector: uphill, clip, mix, momentum."""
    theta, c = torch.from_numpy(task.start.parameters.copy()), torch.from_numpy(task.sent["momentum"])
    velocity = torch.zeros_like(theta)

    def gradient(at: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        at = at.detach().requires_grad_()
        a, b, c, d = torch.split(at, [30, 5, 15, 3])
        logits = torch.tanh(x @ a.view(5, 6).T + b) @ c.view(3, 5).T + d
        inside = method.weight_decay if method.sam_decay == "within" else 0.0
        loss = functional.cross_entropy(logits, y) + inside / 2 * at.square().sum()
        return torch.autograd.grad(loss, at)[0]

    for x, y in batches(task, method):
        g = gradient(theta, x, y)
        g = gradient(theta + method.sam_rho * g / g.norm(), x, y)
        if method.clip:
            assert g.norm() > method.clip
            g = g * method.clip / g.norm()
        if method.sam_decay == "apart":
            g = g + method.weight_decay * theta
        velocity = method.momentum * velocity + method.alpha * g + (1 - method.alpha) * c
        theta = theta - task.pace.lr * velocity
    return theta.numpy()


@pytest.mark.parametrize("decay", ["apart", "within"])
@pytest.mark.parametrize(("momentum", "weight_decay", "clip"), [(0.0, 0.0, 0.0), (0.9, 0.05, 0.0), (0.9, 0.05, 0.3)])
def test_steps_follow_the_mix_of_sams_gradient_and_momentum(
    small: Any, momentum: float, weight_decay: float, clip: float, decay: str, close: Any
) -> None:
    settings: dict[str, Any] = {"batch": 4, "momentum": momentum, "weight_decay": weight_decay, "clip": clip}
    method = MoFedSAM(alpha=0.6, sam_rho=0.5, sam_decay=decay, **settings)
    task = small.task(sent={"momentum": np.random.default_rng(5).normal(size=53) / 5})
    trained = method.train(task).weights.parameters
    close(trained, by_vector(task, method), 1e-11)
    for other in (FedCM(alpha=0.6, **settings), FedSAM(sam_rho=0.5, **settings)):
        assert np.abs(trained - other.train(task).weights.parameters).max() > 1e-3


def test_as_rho_goes_to_0_it_is_fedcm_and_it_shares_the_same(small: Any, close: Any) -> None:
    task = small.task(sent={"momentum": np.ones(53) / 10})
    tiny, mixed = (method.train(task).weights.parameters for method in (MoFedSAM(sam_rho=1e-10), FedCM()))
    close(tiny, mixed, 1e-9)
    exchange = Exchange(small.start, small.clients(), small.start, small.cohort(), small.facts)
    shared = [method.share(task.sent, exchange)["momentum"] for method in (MoFedSAM(), FedCM())]
    assert shared[0].tobytes() == shared[1].tobytes()


@pytest.mark.parametrize("indices", [[7], [7, 8, 9]])
def test_small_clients_train(small: Any, indices: list[int]) -> None:
    sent = MoFedSAM().begin(small.start, small.facts)
    update = MoFedSAM().train(small.task(indices=np.array(indices), sent=sent))
    assert update.steps == 2
    assert np.isfinite(update.weights.parameters).all()


def test_settings_that_switch_a_half_off_are_refused() -> None:
    with pytest.raises(FedscopeError, match=r"client\.sam_rho = 0 would switch the method off.*--client fedcm"):
        MoFedSAM(sam_rho=0.0)
    with pytest.raises(FedscopeError, match=r"client\.alpha = 1 is out of range: it must be less than 1"):
        MoFedSAM(alpha=1.0)
