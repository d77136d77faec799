"""FedACG, the server's half: Kim, Kim and Han, "Communication-Efficient Federated Learning with Accelerated Client
Gradient", CVPR 2024."""

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
class FedACG(ServerMethod):
    """Clients start where the server's momentum would move the last global model.

    With w_{t−1} the last ``global`` and Δ̄ = Σ p_i (θ_i − start) [P]::

        start = w_{t−1} + λ m
        m⁺    = λ m + Δ̄
        w⁺    = Σ p_i θ_i = w_{t−1} + m⁺

    m_0 = 0, so the first round's start is the first model itself. Chosen: Δ̄ is measured from the model that was sent,
    which makes m⁺ the global model's whole move. Clients see the sum alone: nothing is sent beside the model.

    Source: Kim et al., CVPR 2024. λ = 0 is refused: that is FMA.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedACG",
        "Kim et al., Accelerated Client Gradient, CVPR 2024",
        "start = w + λm; m⁺ = λm + Δ̄; w⁺ = Σ p_i θ_i",
        keeps="m",
    )
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fma": {"momentum": 1e-12}}

    momentum: float = setting(
        0.85, "λ: share of the last move that is added ahead", above=0, below=1, off="--server fma"
    )

    def init(self, w: np.ndarray) -> State:
        """m_0 = 0, [P]."""
        return {"m": np.zeros_like(w)}

    def look_ahead(self, state: State, w: np.ndarray) -> np.ndarray:
        """w + λ m, [P]."""
        moved: np.ndarray = w + self.momentum * state["m"].astype(np.float64)
        return moved.astype(w.dtype)

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        update = weighted_update(start, clients, cohort.p)
        m = self.momentum * state["m"].astype(np.float64) + update
        dtype = start.layout.dtype
        return Served((start.parameters + update).astype(dtype), {"m": m.astype(dtype)})


PROVIDES = FedACG
