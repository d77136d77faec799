"""DiLoCo's outer step against torch's SGD with Nesterov momentum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedscope.checkpoints import Weights
from fedscope.training.methods.servers.diloco import DiLoCo
from fedscope.training.methods.servers.fedavgm import FedAvgM
from fedscope.training.methods.servers.fma import FMA


@pytest.mark.parametrize("momentum", [0.9, 0.3])
@pytest.mark.parametrize("lr", [0.7, 0.2])
def test_it_is_torchs_nesterov_momentum_on_the_negative_mean_update(small: Any, momentum: float, lr: float) -> None:
    method = DiLoCo(momentum=momentum, lr=lr)
    w, state = small.start, method.init(small.start.parameters)
    reference = torch.tensor(small.start.parameters, requires_grad=True)
    optimiser = torch.optim.SGD([reference], lr=lr, momentum=momentum, nesterov=True)
    for t in range(4):
        clients = small.clients(3, seed=10 * t)
        reference.grad = torch.from_numpy(w.parameters - [0.1, 0.3, 0.6] @ clients.parameters)
        optimiser.step()
        served = method.step(state, w, clients, small.cohort())
        np.testing.assert_allclose(served.parameters, reference.detach().numpy(), rtol=0, atol=1e-12)
        w, state = Weights(w.layout, served.parameters, {}), served.state


def test_the_first_step_looks_ahead_and_heavy_ball_momentum_does_not(small: Any) -> None:
    start, clients, cohort = small.start, small.clients(), small.cohort()
    state = DiLoCo().init(start.parameters)
    step = FMA().step({}, start, clients, cohort).parameters - start.parameters
    ahead = DiLoCo(lr=1.0).step(state, start, clients, cohort).parameters - start.parameters
    np.testing.assert_allclose(ahead, 1.9 * step, rtol=0, atol=1e-14)
    heavy = FedAvgM().step(state, start, clients, cohort).parameters - start.parameters
    np.testing.assert_allclose(heavy, step, rtol=0, atol=1e-14)
