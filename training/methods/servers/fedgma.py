"""FedGMA: Tenison, Sreeramadas, Mugunthan, Oyallon, Rish and Belilovsky, "Gradient Masked Averaging for Federated
Learning", TMLR 2023."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ....checkpoints import Weights
from ...settings.settings import setting
from ..base import Cohort, MethodInfo, Served, ServerMethod, State
from ..shared.server_steps import updates


@dataclass(frozen=True)
class FedGMA(ServerMethod):
    """The mean update is scaled down where the clients disagree on its sign.

    With Δ_i = θ_i − w and Δ̄ = Σ p_i Δ_i [P], all elementwise::

        agree = |Σ p_i sign Δ_i|
        mask  = 1 where agree ≥ τ, else agree (``mask = "soft"``) or 0 (``mask = "hard"``)
        w⁺    = w + η_s mask Δ̄

    A parameter that a client has not moved counts with sign 0. Chosen: agree is weighted with p as Δ̄ is, and compared
    with τ up to 1e-9, because nine clients of ten against one are exactly 0.8, the default τ, and must not depend on
    the order in which tenths are added.

    The soft mask is that of Tenison et al., TMLR 2023. FedIMA's code has the hard one, with η_s = 1e-4, so Table 1 of
    Zhou et al. (IMA, IEEE TMC 2024) compares with another algorithm: ``--set server.mask=hard --set server.lr=1e-4``.
    τ = 0 is refused: it masks nothing.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedGMA",
        "Tenison et al., Gradient Masked Averaging, TMLR 2023",
        "w⁺ = w + η_s mask Δ̄, mask = 1 where agree ≥ τ, else agree (hard: 0); agree = abs Σ p_i sign Δ_i",
    )
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fma": {"lr": 1.0, "tau": 1e-12}}

    lr: float = setting(1.0, "η_s: the server's step", above=0)
    tau: float = setting(
        0.8, "τ: an update is taken in full from this agreement on", above=0, most=1, off="--server fma"
    )

    mask: Literal["soft", "hard"] = setting(
        "soft", "below τ an update is scaled by its agreement (soft) or left out (hard)"
    )

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        mean, agree = np.zeros((2, start.layout.size))
        for p, update in zip(cohort.p, updates(start, clients), strict=True):
            if p == 0:  # has no part, even where it diverged
                continue
            mean += p * update
            agree += p * np.sign(update)
        agree = np.abs(agree)
        mask = np.where(agree >= self.tau - 1e-9, 1, agree if self.mask == "soft" else 0)
        return Served((start.parameters + self.lr * mask * mean).astype(start.layout.dtype))


PROVIDES = FedGMA
