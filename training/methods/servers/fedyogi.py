"""FedYogi: Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan, "Adaptive Federated Optimization",
ICLR 2021, Algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..base import MethodInfo
from ..shared.server_steps import AdaptiveMomentum


@dataclass(frozen=True)
class FedYogi(AdaptiveMomentum):
    """Yogi on the server: Adam whose v changes by the size of Δ̄² only, however far v is from it.

    With Δ̄ = Σ p_i (θ_i − w) [P], all elementwise::

        m⁺ = β1 m + (1 − β1) Δ̄
        v⁺ = v − (1 − β2) Δ̄² sign(v − Δ̄²)
        w⁺ = w + η_s m⁺ / (√v⁺ + τ)

    m_0 = 0. v⁺ is never negative, because it falls only where v exceeds Δ̄². Chosen: v_0 = 0, where the paper asks for
    at least τ² (``v0 = "tau2"``). The paper corrects no bias; ``bias_correction`` does as Adam's.

    Source: Reddi et al., ICLR 2021, Algorithm 2. Raises a FedscopeError where ``bias_correction`` meets another v_0
    than 0.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedYogi",
        "Reddi et al., Adaptive Federated Optimization, ICLR 2021",
        "w⁺ = w + η_s m⁺/(√v⁺ + τ), m⁺ = β1 m + (1−β1)Δ̄, v⁺ = v − (1−β2)Δ̄² sign(v − Δ̄²)",
        keeps="m, v",
    )

    def second(self, v: np.ndarray, squared: np.ndarray) -> np.ndarray:
        """v − (1 − β2) Δ̄² sign(v − Δ̄²)."""
        moved: np.ndarray = v - (1 - self.beta2) * squared * np.sign(v - squared)
        return moved


PROVIDES = FedYogi
