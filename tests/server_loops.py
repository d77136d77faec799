"""Servers beside torch's optimisers, which step on the negative mean update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedscope.checkpoints import Weights


def step_as_torch(
    small: Any, method: Any, optimiser_of: Callable[[list[torch.Tensor]], torch.optim.Optimizer], rounds: int = 4
) -> Any:
    """Let a server and an optimiser step from the same clients, compare their models, and return the server's state."""
    w, state = small.start, method.init(small.start.parameters)
    reference = torch.tensor(small.start.parameters, requires_grad=True)
    optimiser = optimiser_of([reference])
    for t in range(rounds):
        clients = small.clients(3, seed=10 * t)
        reference.grad = torch.from_numpy(w.parameters - [0.1, 0.3, 0.6] @ clients.parameters)
        optimiser.step()
        served = method.step(state, w, clients, small.cohort())
        np.testing.assert_allclose(served.parameters, reference.detach().numpy(), rtol=0, atol=1e-12)
        w, state = Weights(w.layout, served.parameters, {}), served.state
    return state
