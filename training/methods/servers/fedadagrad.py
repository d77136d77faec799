"""FedAdagrad: Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan, "Adaptive Federated Optimization",
ICLR 2021, Algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...settings.settings import setting
from ..base import MethodInfo
from ..shared.server_steps import Adaptive


@dataclass(frozen=True)
class FedAdagrad(Adaptive):
    """Adagrad on the server: a parameter's steps shrink with the sum of its squared mean updates.

    With Δ̄ = Σ p_i (θ_i − w) [P], all elementwise::

        v⁺ = v + Δ̄²
        w⁺ = w + η_s Δ̄ / (√v⁺ + τ)

    It is Algorithm 2 with β1 = 0, as in the paper's experiments, so there is no m. Chosen: v_0 = 0, where the paper
    asks for at least τ² (``v0 = "tau2"``); the first step is then about η_s in every parameter that has moved.

    Source: Reddi et al., ICLR 2021, Algorithm 2.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedAdagrad",
        "Reddi et al., Adaptive Federated Optimization, ICLR 2021",
        "w⁺ = w + η_s Δ̄/(√v⁺ + τ), v⁺ = v + Δ̄²",
        keeps="v",
    )

    lr: float = setting(0.1, "η_s: the server's step", above=0)
    tau: float = setting(1e-9, "τ: added to the root of v; a larger value is less adaptive", above=0)

    def second(self, v: np.ndarray, squared: np.ndarray) -> np.ndarray:
        """v + Δ̄²."""
        total: np.ndarray = v + squared
        return total


PROVIDES = FedAdagrad
