"""AdaBest, the server's half: Varno, Saghayi, Rafiee Sevyeri, Gupta, Matwin and Havaei, "AdaBest: Minimizing Client
Drift in Federated Learning via Adaptive Bias Estimation", ECCV 2022."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....checkpoints import Weights
from ...settings.settings import setting
from ..base import Cohort, MethodInfo, Served, ServerMethod, State
from ..shared.server_steps import mean_update


@dataclass(frozen=True)
class AdaBest(ServerMethod):
    """The server moves on from the clients' mean in the direction in which the mean moved since the last round.

    With θ̄_t = mean_S θ_i [P], unweighted whatever ``weighting`` says::

        h  = β (θ̄_{t−1} − θ̄_t)
        w⁺ = θ̄_t − h

    Chosen: θ̄_0, before the first round, is the model that is sent in it, as in the authors' library (fedsim); so the
    first step is w + (1 + β) mean_S Δ_i. ``weighting`` serves buffers and what else the round averages.

    Source: Varno et al., ECCV 2022; the default β = 0.9 is from the grid of WIMA's comparison (Caldarola et al., ICCV
    Workshops 2023). β = 0 is refused: that is FMA with uniform weights.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "AdaBest",
        "Varno et al., AdaBest, ECCV 2022",
        "w⁺ = θ̄_t − β (θ̄_{t−1} − θ̄_t), θ̄ = mean θ_i",
        keeps="θ̄",
    )
    unweighted: ClassVar[bool] = True
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fma": {"beta": 1e-12, "weighting": "uniform"}}

    beta: float = setting(0.9, "β: share of the mean's last move that is added", above=0, most=1, off="--server fma")

    def init(self, w: np.ndarray) -> State:
        """θ̄_0 = w, [P]."""
        return {"mean": w.copy()}

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        mean = start.parameters + mean_update(start, clients)
        h = self.beta * (state["mean"] - mean)
        dtype = start.layout.dtype
        return Served((mean - h).astype(dtype), {"mean": mean.astype(dtype)})


PROVIDES = AdaBest
