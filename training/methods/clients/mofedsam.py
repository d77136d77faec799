"""MoFedSAM: Qu, Li, Duan, Liu, Tang and Lu, "Generalized Federated Learning via Sharpness Aware Minimization", ICML
2022."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...local.local_training import LocalTask, LocalUpdate
from ...settings.settings import setting
from ..base import MethodInfo
from ..shared.sharpness_aware import SharpnessAware, ascent
from .fedcm import FedCM


@dataclass(frozen=True)
class MoFedSAM(FedCM, SharpnessAware):
    """FedCM with SAM's gradient: local SGD along a·G + (1 − a)·c, G = clip(∇L(θ + ε)) + λ θ; two passes per step.

    All [P]; ε = ρ ∇L/‖∇L‖, λ is the weight decay, and G is what FedSAM follows. Chosen: weight decay is mixed with the
    rest of G, as FedCM mixes it here. c and the first round are as in FedCM, running statistics as in FedSAM. As ρ goes
    to 0 it is FedCM, where nothing is clipped.

    Raises:
        FedscopeError: alpha is not between 0 and 1, or sam_rho is not greater than 0.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "MoFedSAM",
        "Qu et al., Generalized FL via SAM, ICML 2022",
        "g ← a (∇L(θ + ε) + wd·θ) + (1 − a) c, ε = ρ ∇L/‖∇L‖; c⁺ = −Σ p_i Δ_i/Σ_k η_k",
        keeps="c",
        down="P",
    )
    vectorised: ClassVar[bool] = True
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fedcm": {"sam_rho": 1e-9}}

    sam_rho: float = setting(0.1, "ρ: distance uphill at which the gradient is taken", above=0, off="--client fedcm")

    def train(self, task: LocalTask) -> LocalUpdate:
        return self.sharp_sgd(task, ascent(self.sam_rho), then=self.mix(task))


PROVIDES = MoFedSAM
