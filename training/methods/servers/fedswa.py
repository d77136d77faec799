"""FedSWA, the server's half: J. Liu, Y. Liu, Shang, H. Liu, J. Liu and Feng, "Improving Generalization in Federated
Learning with Highly Heterogeneous Data via Momentum-Based Stochastic Controlled Weight Averaging", ICML 2025."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ....checkpoints import Weights
from ...settings.settings import setting
from ..base import Cohort, MethodInfo, Served, ServerMethod, State
from ..shared.server_steps import weighted_update


@dataclass(frozen=True)
class FedSWA(ServerMethod):
    """The server goes α times as far as to the clients' mean.

    w⁺ = w + α (Σ p_i θ_i − w), [P], with w the model that was sent. α = 1 is FMA to rounding; α > 1, the paper's
    choice, extrapolates, and α < 1 is an exponential mean over rounds. The rate that falls inside a round is the
    client's half, ``--client fedswa``.

    Source: Liu et al., ICML 2025.
    """

    about: ClassVar[MethodInfo] = MethodInfo("FedSWA", "Liu et al., FedSWA, ICML 2025", "w⁺ = w + α (Σ p_i θ_i − w)")
    optimiser: ClassVar[bool] = True
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fma": {"alpha": 1.0}}

    alpha: float = setting(1.5, "α: how far to go towards the clients' mean; above 1, beyond it", above=0)

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        update = weighted_update(start, clients, cohort.p)
        return Served((start.parameters + self.alpha * update).astype(start.layout.dtype))


PROVIDES = FedSWA
