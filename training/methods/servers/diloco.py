"""DiLoCo's outer step: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models",
arXiv:2311.08105."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....checkpoints import Weights
from ...settings.settings import setting
from ..base import Cohort, MethodInfo, Served, State
from ..shared.server_steps import weighted_update
from .fedavgm import FedAvgM


@dataclass(frozen=True)
class DiLoCo(FedAvgM):
    """FedAvgM with Nesterov momentum.

    With Δ̄ = Σ p_i (θ_i − w) [P], as torch's ``SGD(nesterov=True)`` steps along the gradient −Δ̄::

        m⁺ = β m + Δ̄
        w⁺ = w + η_s (Δ̄ + β m⁺)

    m_0 = 0, so the first step is η_s (1 + β) times FMA's. FedAvgM steps along m⁺ alone. The workers' half is
    AdamW over hundreds of steps: ``--set client.optimiser=adamw --lr 0.001``. Any client method goes with it.

    Source: Douillard et al., DiLoCo: η_s = 0.7, β = 0.9. β = 0 is refused: with η_s = 1 that is FMA.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "DiLoCo",
        "Douillard et al., DiLoCo, arXiv 2023",
        "w⁺ = w + η_s (Δ̄ + βm⁺), m⁺ = βm + Δ̄",
        keeps="m",
    )
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fma": {"lr": 1.0, "momentum": 1e-12}}

    lr: float = setting(0.7, "η_s: the outer step", above=0)

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        update = weighted_update(start, clients, cohort.p)
        m = self.momentum * state["m"].astype(np.float64) + update
        dtype = start.layout.dtype
        moved = start.parameters + self.lr * (update + self.momentum * m)
        return Served(moved.astype(dtype), {"m": m.astype(dtype)})


PROVIDES = DiLoCo
