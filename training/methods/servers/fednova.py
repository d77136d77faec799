"""FedNova: Wang, Liu, Liang, Joshi and Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization", NeurIPS 2020."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from ....checkpoints import FedscopeError, Weights
from ...settings.registry import method_name
from ..base import Cohort, MethodInfo, Served, ServerMethod, State
from ..shared.server_steps import weighted_update

if TYPE_CHECKING:
    from ...config.config import Config


@dataclass(frozen=True)
class FedNova(ServerMethod):
    """Updates are averaged per step, so that clients with more steps do not count more.

    With Δ_i = θ_i − w [P], K_i local steps and client momentum β::

        a_i = [K_i − β (1 − β^{K_i})/(1 − β)]/(1 − β)        (K_i where β = 0)
        w⁺  = w + (Σ p_i a_i) Σ p_i Δ_i/a_i

    η a_i is the client's ``reach``, how far a constant unit gradient would have carried it, and η cancels, so the step
    is computed from that. Where all clients take as many steps it is FMA.

    Source: Wang et al., NeurIPS 2020. The formula of a_i assumes a constant η in the round and plain or momentum SGD; a
    FedscopeError refuses client methods with a proximal term, a rate that changes inside a round, or a start of their
    own, and other local optimisers than SGD.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedNova",
        "Wang et al., FedNova, NeurIPS 2020",
        "w⁺ = w + (Σ p_i a_i) Σ p_i Δ_i/a_i, a_i = K_i without momentum",
    )
    counts_steps: ClassVar[bool] = True

    def resolve(self, config: Config) -> Self:
        """Refuse clients whose steps are not those that a_i counts."""
        reason = None
        if config.client.proximal:
            reason = "adds a term that pulls towards another model"
        elif config.client.changing_rate:
            reason = "changes the learning rate inside a round"
        elif config.client.own_start:
            reason = "starts clients from other models than the one sent"
        if config.client.local_optimiser != "sgd":
            raise FedscopeError(
                "--server fednova counts steps of plain or momentum SGD, but client.optimiser = "
                f"{config.client.optimiser!r}; take --set client.optimiser=sgd or --server fma"
            )
        if reason:
            raise FedscopeError(
                f"--server fednova counts steps of plain or momentum SGD at a constant rate, but --client "
                f"{method_name(config.client)} {reason}; take --client sgd or --server fma"
            )
        return self

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        mean_reach = float(cohort.p @ cohort.reach)
        # of weight 0 is 0, also of a client that took no step
        weights = np.divide(cohort.p * mean_reach, cohort.reach, out=np.zeros_like(cohort.p), where=cohort.p != 0)
        update = weighted_update(start, clients, weights)
        return Served((start.parameters + update).astype(start.layout.dtype))


PROVIDES = FedNova
