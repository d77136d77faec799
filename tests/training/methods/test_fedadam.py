"""FedAdam against a loop by hand and, with its bias corrected, against torch's Adam."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch

from fedscope.checkpoints import FedscopeError, Weights
from fedscope.training import Config
from fedscope.training.methods.base import Served
from fedscope.training.methods.servers.fedadam import FedAdam

P = [0.1, 0.3, 0.6]


def rounds(small: Any, method: FedAdam, count: int = 5) -> tuple[list[Served], list[np.ndarray]]:
    """Some server steps, the clients each time about ``start``, and the mean update of each."""
    w, state = small.start, method.init(small.start.parameters)
    served, updates = [], []
    for t in range(count):
        clients = small.clients(3, seed=10 * t)
        updates.append(P @ clients.parameters - w.parameters)
        served.append(method.step(state, w, clients, small.cohort(round=t + 1)))
        w, state = Weights(w.layout, served[-1].parameters, {}), served[-1].state
    return served, updates


@pytest.mark.parametrize("v0", ["zero", "tau2"])
def test_five_rounds_by_hand(small: Any, v0: Any) -> None:
    served, updates = rounds(small, FedAdam(v0=v0))
    for j in (0, 7, 40):  # one parameter after the other, in plain numbers
        w, m, v = small.start.parameters[j], 0.0, 1e-6 if v0 == "tau2" else 0.0
        for step, update in zip(served, updates, strict=True):
            m = 0.9 * m + 0.1 * update[j]
            v = 0.99 * v + 0.01 * update[j] ** 2
            w = w + 0.01 * m / (sqrt(v) + 1e-3)
            assert step.parameters[j] == pytest.approx(w, abs=1e-13)
            assert step.state["m"][j] == pytest.approx(m, abs=1e-13)
            assert step.state["v"][j] == pytest.approx(v, abs=1e-13)
    assert sorted(served[0].state) == ["m", "steps", "v"]


@pytest.mark.parametrize(("beta1", "beta2"), [(0.9, 0.99), (0.0, 0.5), (0.5, 0.0)])
def test_with_its_bias_corrected_it_is_torchs_adam_on_the_negative_mean_update(
    small: Any, beta1: float, beta2: float
) -> None:
    method = FedAdam(lr=0.3, beta1=beta1, beta2=beta2, tau=0.02, bias_correction=True)
    served, updates = rounds(small, method, 6)
    w = torch.tensor(small.start.parameters, requires_grad=True)
    optimiser = torch.optim.Adam([w], lr=0.3, betas=(beta1, beta2), eps=0.02)
    for step, update in zip(served, updates, strict=True):
        w.grad = -torch.from_numpy(update)
        optimiser.step()
        np.testing.assert_allclose(step.parameters, w.detach().numpy(), rtol=0, atol=1e-12)
    assert int(served[-1].state["steps"]) == 6
    plain = rounds(small, FedAdam(lr=0.3, beta1=beta1, beta2=beta2, tau=0.02), 6)[0]
    assert np.abs(served[0].parameters - plain[0].parameters).max() > 1e-2


def test_its_first_step_is_of_equal_length_wherever_the_clients_moved(small: Any) -> None:
    # 0.1 |update| / (0.1 |update| + tau), as (1 - beta1) = sqrt(1 - beta2) = 0.1
    served, updates = rounds(small, FedAdam(tau=1e-12), 1)
    np.testing.assert_allclose(
        served[0].parameters - small.start.parameters, 0.01 * np.sign(updates[0]), rtol=0, atol=1e-10
    )


def test_a_correction_of_what_did_not_begin_at_zero_is_refused() -> None:
    with pytest.raises(FedscopeError, match=r'corrects a v that began at 0, but server.v0 = "tau2"; leave one'):
        Config.read({"server": {"method": "fedadam", "bias_correction": True, "v0": "tau2"}})
    settled = Config.read({"server": {"method": "fedadam", "bias_correction": True}}).server
    assert settled == FedAdam(bias_correction=True)
