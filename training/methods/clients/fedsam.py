"""FedSAM: Caldarola, Caputo and Ciccone, "Improving Generalization in Federated Learning by Seeking Flat Minima", ECCV
2022; Qu, Li, Duan, Liu, Tang and Lu, "Generalized Federated Learning via Sharpness Aware Minimization", ICML 2022."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...local.local_training import LocalTask, LocalUpdate
from ...settings.settings import setting
from ..base import MethodInfo
from ..shared.sharpness_aware import SharpnessAware, ascent


@dataclass(frozen=True)
class FedSAM(SharpnessAware):
    """Local SGD with the gradient at θ + ε, ε = ρ g/‖g‖, the steepest point at distance ρ; two passes per step.

    All [P]; g = ∇L(θ) is the gradient of the loss alone, without weight decay λ. A step follows clip(∇L(θ + ε)) + λ θ,
    as in the authors' code: the gradient at θ + ε is clipped where ``clip`` asks for it, then weight decay at θ is
    added. ε does not depend on clipping; where g = 0, ε = 0. The training loss is the one at θ. ``sam_decay =
    "within"`` perturbs loss and weight decay together, see
    :class:`fedscope.training.methods.shared.sharpness_aware.SharpnessAware`.

    Chosen: BatchNorm's running statistics take in the pass at θ only, see
    :func:`fedscope.training.methods.shared.sharpness_aware.sharp_gradient`. As ρ goes to 0 it is SGD, where nothing is
    clipped.

    Raises:
        FedscopeError: sam_rho is not greater than 0.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedSAM",
        "Caldarola et al., Seeking flat minima, ECCV 2022",
        "g ← ∇L(θ + ε) + wd·θ, ε = ρ ∇L/‖∇L‖",
    )
    vectorised: ClassVar[bool] = True
    any_optimiser: ClassVar[bool] = True
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sgd": {"sam_rho": 1e-9}}

    sam_rho: float = setting(0.05, "ρ: distance uphill at which the gradient is taken", above=0, off="--client sgd")

    def train(self, task: LocalTask) -> LocalUpdate:
        return self.sharp_sgd(task, ascent(self.sam_rho))


PROVIDES = FedSAM
