"""FedAvgM against torch's SGD with momentum."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from server_loops import step_as_torch

from fedscope.checkpoints import Weights
from fedscope.training.methods.servers.fedavgm import FedAvgM
from fedscope.training.methods.servers.fma import FMA


@pytest.mark.parametrize("momentum", [0.9, 0.3])
@pytest.mark.parametrize("lr", [1.0, 0.2])
def test_it_is_torchs_momentum_on_the_negative_mean_update(small: Any, momentum: float, lr: float) -> None:
    step_as_torch(small, FedAvgM(momentum=momentum, lr=lr), partial(torch.optim.SGD, lr=lr, momentum=momentum))


def test_the_first_rounds_update_counts_now_and_later(small: Any) -> None:
    method, clients = FedAvgM(), small.clients()
    first = method.step(method.init(small.start.parameters), small.start, clients, small.cohort())
    fma = FMA().step({}, small.start, clients, small.cohort()).parameters
    np.testing.assert_allclose(first.parameters, fma, rtol=0, atol=1e-14)
    # Nobody moves in the second round: 0.9 of the first update is left.
    w = Weights(clients.layout, first.parameters, {})
    still = Weights(clients.layout, np.stack([first.parameters] * 3), {})
    second = method.step(first.state, w, still, small.cohort())
    expected = first.parameters + 0.9 * (fma - small.start.parameters)
    np.testing.assert_allclose(second.parameters, expected, rtol=0, atol=1e-14)
