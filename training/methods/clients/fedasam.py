"""FedASAM: Caldarola, Caputo and Ciccone, "Improving Generalization in Federated Learning by Seeking Flat Minima", ECCV
2022, after Kwon et al., "ASAM", ICML 2021."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...local.local_training import LocalTask, LocalUpdate
from ...settings.settings import setting
from ..base import MethodInfo
from ..shared.sharpness_aware import SharpnessAware, adaptive_ascent, weight_mask


@dataclass(frozen=True)
class FedASAM(SharpnessAware):
    """Local SGD with the gradient at θ + ε, ε = ρ T² g/‖T g‖, which moves large weights further; two passes per step.

    All [P]; T = abs θ + η on weights and 1 on biases. Chosen: a bias is a parameter with ``bias`` in the last part of
    its name, and all others are weights, a GroupNorm's scale among them, as in the authors' code. The rest is as in
    FedSAM: g is the gradient of the loss alone, weight decay at θ is added to the step after clipping, running
    statistics are from the pass at θ, and so is the loss.

    (ρ, η) is (0.7, 0.2) for the papers' CNN, and (0.2, 0.05) for other models: ``--set client.sam_rho=0.2 --set
    client.sam_eta=0.05``. As ρ goes to 0 it is SGD, where nothing is clipped.

    Raises:
        FedscopeError: sam_rho is not greater than 0, or sam_eta is negative.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedASAM",
        "Caldarola et al., Seeking flat minima, ECCV 2022",
        "g ← ∇L(θ + ε) + wd·θ, ε = ρ T² ∇L/‖T ∇L‖, T = abs θ + η on weights, 1 on biases",
    )
    vectorised: ClassVar[bool] = True
    any_optimiser: ClassVar[bool] = True
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sgd": {"sam_rho": 1e-9}}

    sam_rho: float = setting(0.7, "ρ: distance uphill at which the gradient is taken", above=0, off="--client sgd")
    sam_eta: float = setting(0.2, "η: added to the size of every weight, so that weights near 0 move too", least=0)

    def train(self, task: LocalTask) -> LocalUpdate:
        weights = task.place.tensor(weight_mask(task.facts.layout))
        return self.sharp_sgd(task, adaptive_ascent(self.sam_rho, self.sam_eta, weights))


PROVIDES = FedASAM
