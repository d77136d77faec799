"""FMA, federated model averaging (FedAvg): McMahan et al., "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017, Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ....checkpoints import Weights, weighted_mean
from ..base import Cohort, MethodInfo, Served, ServerMethod, State


@dataclass(frozen=True)
class FMA(ServerMethod):
    """w+ = sum_i p_i theta_i, computed in float64, row by row in the order of the cohort, then rounded once.

    So anyone can recompute a recorded ``global`` from the file's ``clients`` and ``weights``, bit for bit.
    """

    about: ClassVar[MethodInfo] = MethodInfo("FMA (FedAvg)", "McMahan et al., FedAvg, AISTATS 2017", "w⁺ = Σ p_i θ_i")
    forgets_start: ClassVar[bool] = True

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        """See the class; ``start`` and ``state`` are not used."""
        return Served(weighted_mean(clients, cohort.p).parameters)


PROVIDES = FMA
