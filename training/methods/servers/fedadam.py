"""FedAdam: Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan, "Adaptive Federated Optimization",
ICLR 2021, Algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..base import MethodInfo
from ..shared.server_steps import AdaptiveMomentum


@dataclass(frozen=True)
class FedAdam(AdaptiveMomentum):
    """Adam on the server: its gradient is the clients' mean update with the opposite sign.

    With Δ̄ = Σ p_i (θ_i − w) [P], all elementwise::

        m⁺ = β1 m + (1 − β1) Δ̄
        v⁺ = β2 v + (1 − β2) Δ̄²
        w⁺ = w + η_s m⁺ / (√v⁺ + τ)

    m_0 = 0. Chosen: v_0 = 0, where the paper asks for at least τ² (``v0 = "tau2"``). The paper corrects no bias; with
    ``bias_correction`` it is Adam as Kingma and Ba (ICLR 2015) and torch have it. An average over rounds is taken of
    the ``global`` models, after this step, unless it says ``before_server``.

    Source: Reddi et al., ICLR 2021, Algorithm 2. Raises a FedscopeError where ``bias_correction`` meets another v_0
    than 0.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedAdam",
        "Reddi et al., Adaptive Federated Optimization, ICLR 2021",
        "w⁺ = w + η_s m⁺/(√v⁺ + τ), m⁺ = β1 m + (1−β1)Δ̄, v⁺ = β2 v + (1−β2)Δ̄²",
        keeps="m, v",
    )

    def second(self, v: np.ndarray, squared: np.ndarray) -> np.ndarray:
        """β2 v + (1 − β2) Δ̄²."""
        return self.beta2 * v + (1 - self.beta2) * squared


PROVIDES = FedAdam
