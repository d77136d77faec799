"""DiLoCo's outer step against torch's SGD with Nesterov momentum."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from server_loops import step_as_torch

from fedscope.training.methods.servers.diloco import DiLoCo
from fedscope.training.methods.servers.fedavgm import FedAvgM
from fedscope.training.methods.servers.fma import FMA


@pytest.mark.parametrize("momentum", [0.9, 0.3])
@pytest.mark.parametrize("lr", [0.7, 0.2])
def test_it_is_torchs_nesterov_momentum_on_the_negative_mean_update(small: Any, momentum: float, lr: float) -> None:
    step_as_torch(
        small, DiLoCo(momentum=momentum, lr=lr), partial(torch.optim.SGD, lr=lr, momentum=momentum, nesterov=True)
    )


def test_the_first_step_looks_ahead_and_heavy_ball_momentum_does_not(small: Any) -> None:
    start, clients, cohort = small.start, small.clients(), small.cohort()
    state = DiLoCo().init(start.parameters)
    step = FMA().step({}, start, clients, cohort).parameters - start.parameters
    ahead = DiLoCo(lr=1.0).step(state, start, clients, cohort).parameters - start.parameters
    np.testing.assert_allclose(ahead, 1.9 * step, rtol=0, atol=1e-14)
    heavy = FedAvgM().step(state, start, clients, cohort).parameters - start.parameters
    np.testing.assert_allclose(heavy, step, rtol=0, atol=1e-14)
