"""FedAvgM against torch's SGD with momentum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedscope.checkpoints import Weights
from fedscope.training.methods.servers.fedavgm import FedAvgM
from fedscope.training.methods.servers.fma import FMA


@pytest.mark.parametrize("momentum", [0.9, 0.3])
@pytest.mark.parametrize("lr", [1.0, 0.2])
def test_it_is_torchs_momentum_on_the_negative_mean_update(small: Any, momentum: float, lr: float) -> None:
    method = FedAvgM(momentum=momentum, lr=lr)
    w, state = small.start, method.init(small.start.parameters)
    reference = torch.tensor(small.start.parameters, requires_grad=True)
    optimiser = torch.optim.SGD([reference], lr=lr, momentum=momentum)
    for t in range(4):
        clients = small.clients(3, seed=10 * t)
        reference.grad = torch.from_numpy(w.parameters - [0.1, 0.3, 0.6] @ clients.parameters)
        optimiser.step()
        served = method.step(state, w, clients, small.cohort())
        np.testing.assert_allclose(served.parameters, reference.detach().numpy(), rtol=0, atol=1e-12)
        w, state = Weights(w.layout, served.parameters, {}), served.state


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
