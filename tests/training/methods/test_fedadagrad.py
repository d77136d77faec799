"""FedAdagrad against torch's Adagrad."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedscope.checkpoints import FedscopeError, Weights
from fedscope.training.methods.servers.fedadagrad import FedAdagrad


@pytest.mark.parametrize("v0", ["zero", "tau2"])
@pytest.mark.parametrize("tau", [1e-9, 0.3])
def test_it_is_torchs_adagrad_on_the_negative_mean_update(small: Any, v0: Any, tau: float) -> None:
    method = FedAdagrad(tau=tau, v0=v0)
    w, state = small.start, method.init(small.start.parameters)
    reference = torch.tensor(small.start.parameters, requires_grad=True)
    optimiser = torch.optim.Adagrad(
        [reference], lr=0.1, eps=tau, initial_accumulator_value=tau**2 if v0 == "tau2" else 0
    )
    for t in range(5):
        clients = small.clients(3, seed=10 * t)
        reference.grad = torch.from_numpy(w.parameters - [0.1, 0.3, 0.6] @ clients.parameters)
        optimiser.step()
        served = method.step(state, w, clients, small.cohort())
        np.testing.assert_allclose(served.parameters, reference.detach().numpy(), rtol=0, atol=1e-12)
        w, state = Weights(w.layout, served.parameters, {}), served.state
    assert sorted(state) == ["v"]


def test_a_parameter_that_nobody_has_moved_stays(small: Any) -> None:
    clients = small.clients(3)
    clients.parameters[:, 4] = small.start.parameters[4]
    method = FedAdagrad()
    served = method.step(method.init(small.start.parameters), small.start, clients, small.cohort())
    assert served.parameters[4] == small.start.parameters[4]
    assert served.state["v"][4] == 0


def test_the_moments_of_adam_are_none_of_its_settings() -> None:
    with pytest.raises(FedscopeError, match=r"server\.beta1 is not a setting of FedAdagrad"):
        FedAdagrad.read({"beta1": 0.9})
