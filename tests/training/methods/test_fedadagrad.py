"""FedAdagrad against torch's Adagrad."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from server_loops import step_as_torch

from fedscope.checkpoints import FedscopeError
from fedscope.training.methods.servers.fedadagrad import FedAdagrad


@pytest.mark.parametrize("v0", ["zero", "tau2"])
@pytest.mark.parametrize("tau", [1e-9, 0.3])
def test_it_is_torchs_adagrad_on_the_negative_mean_update(small: Any, v0: Any, tau: float) -> None:
    begins_at = tau**2 if v0 == "tau2" else 0
    optimiser = partial(torch.optim.Adagrad, lr=0.1, eps=tau, initial_accumulator_value=begins_at)
    state = step_as_torch(small, FedAdagrad(tau=tau, v0=v0), optimiser, rounds=5)
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
