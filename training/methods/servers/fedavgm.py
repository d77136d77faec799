"""FedAvgM: Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", arXiv:1909.06335, 2019."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....checkpoints import Weights
from ...settings.settings import setting
from ..base import Cohort, MethodInfo, Served, ServerMethod, State
from ..shared.server_steps import weighted_update


@dataclass(frozen=True)
class FedAvgM(ServerMethod):
    """The server steps along the clients' mean update, with momentum.

    With Δ̄ = Σ p_i (θ_i − w) [P]::

        m⁺ = β m + Δ̄
        w⁺ = w + η_s m⁺

    m_0 = 0, so the first step is FMA's where η_s = 1.

    Source: Hsu et al. 2019. β = 0 is refused: with η_s = 1 that is FMA.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedAvgM",
        "Hsu et al., Non-Identical Data Distribution, arXiv 2019",
        "w⁺ = w + η_s m⁺, m⁺ = βm + Δ̄",
        keeps="m",
    )
    optimiser: ClassVar[bool] = True
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fma": {"lr": 1.0, "momentum": 1e-12}}

    lr: float = setting(1.0, "η_s: the server's step", above=0)
    momentum: float = setting(0.9, "β: share of the last m that is kept", above=0, below=1, off="--server fma")

    def init(self, w: np.ndarray) -> State:
        """m_0 = 0, [P]."""
        return {"m": np.zeros_like(w)}

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        m = self.momentum * state["m"].astype(np.float64) + weighted_update(start, clients, cohort.p)
        dtype = start.layout.dtype
        return Served((start.parameters + self.lr * m).astype(dtype), {"m": m.astype(dtype)})


PROVIDES = FedAvgM
