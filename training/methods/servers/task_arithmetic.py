"""Task arithmetic: Ilharco, Ribeiro, Wortsman, Gururangan, Schmidt, Hajishirzi and Farhadi, "Editing Models with Task
Arithmetic", ICLR 2023."""

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
class TaskArithmetic(ServerMethod):
    """A multiple of the models' mean task vector is added to their base.

    With the task vectors τ_i = θ_i − w [P], w being ``start``::

        w⁺ = w + λ Σ p_i τ_i

    The paper adds λ' Σ τ_i. With equal weights that is λ = C λ' (chosen, so that λ does not grow with the cohort). A
    negative λ takes what was learnt away from the base; λ = 1 is FMA, λ = 0 the base itself. Running statistics are
    the clients' mean, with p, whatever λ.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "Task arithmetic", "Ilharco et al., Editing Models with Task Arithmetic, ICLR 2023", "w⁺ = w + λ Σ p_i τ_i"
    )
    optimiser: ClassVar[bool] = True
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fma": {"scale": 1.0}}

    scale: float = setting(1.0, "λ: how much of the mean task vector is added", least=-1000, most=1000)

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        moved = start.parameters + self.scale * weighted_update(start, clients, cohort.p)
        return Served(np.asarray(moved).astype(start.layout.dtype))


PROVIDES = TaskArithmetic
