"""FedDyn, the clients' half: Acar, Zhao, Matas Navarro, Mattina, Whatmough and Saligrama, "Federated Learning Based on
Dynamic Regularization", ICLR 2021, Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from ...local.local_training import LocalTask, LocalUpdate, local_sgd
from ...settings.settings import setting
from ..base import ClientMethod, MethodInfo


@dataclass(frozen=True)
class FedDyn(ClientMethod):
    """Local SGD on the loss − ⟨h_i, θ⟩ + (α/2)‖θ − w‖²; h_i is client i's gradient at the end of its last round.

    A step follows g − h_i + α(θ − w), all [P], added after clipping; afterwards h_i⁺ = h_i − α(θ_i − w), kept by client
    id, with h_i = 0 before the client's first participation. Where local training ends at a stationary point,
    ∇(loss + weight decay)(θ_i) = h_i⁺ exactly. The training loss that is recorded is without the two terms.

    Chosen: α is the same for all clients, as the paper writes it (its code takes α n̄/n_i, n̄ the mean of all n_i). The
    other half is ``--server feddyn``, which keeps h and takes this α. Papers that compare with it take 0.01 or 0.001.

    Raises:
        FedscopeError: alpha is not greater than 0.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedDyn",
        "Acar et al., Dynamic regularization, ICLR 2021",
        "loss − ⟨h_i, θ⟩ + (α/2)‖θ − w‖²; h_i⁺ = h_i − α(θ_i − w)",
        keeps="h_i by client",
    )
    vectorised: ClassVar[bool] = True
    any_optimiser: ClassVar[bool] = True
    vectors_kept: ClassVar[int] = 1
    proximal: ClassVar[bool] = True

    alpha: float = setting(0.01, "α: strength of the dynamic regulariser", above=0, off="--client sgd")

    def train(self, task: LocalTask) -> LocalUpdate:
        """E epochs over the client's samples; the client keeps ``gradient``, h_i⁺ [P]."""
        h = task.kept("gradient")
        start, held = task.place.tensor(task.start.parameters), task.place.tensor(h)

        def correct(w: Tensor, g: Tensor) -> None:
            g.sub_(held).add_(w - start, alpha=self.alpha)

        update = local_sgd(task, self, correct=correct)
        moved = np.subtract(update.weights.parameters, task.start.parameters, dtype=np.float64)
        return replace(update, state={"gradient": (h - self.alpha * moved).astype(task.facts.layout.dtype)})


PROVIDES = FedDyn
