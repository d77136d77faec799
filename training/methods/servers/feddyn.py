"""FedDyn, the server's half: Acar, Zhao, Matas Navarro, Mattina, Whatmough and Saligrama, "Federated Learning Based on
Dynamic Regularization", ICLR 2021, Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from ....checkpoints import Weights
from ...settings.settings import setting
from ..base import Cohort, MethodInfo, Served, ServerMethod, State
from ..shared.one_setting import two_values
from ..shared.server_steps import mean_update

if TYPE_CHECKING:
    from ...config.config import Config

#: where neither the client nor the user says
_ALPHA = 0.01


@dataclass(frozen=True)
class FedDyn(ServerMethod):
    """The server corrects the clients' mean by the mean of what all clients' regularisers have accumulated.

    With Δ_i = θ_i − w [P], a cohort S of C clients and N clients in all::

        h⁺ = h − (α/N) Σ_S Δ_i
        w⁺ = (1/C) Σ_S θ_i − h⁺/α

    h_0 = 0, and α is the client's, so that h stays the mean of all N clients' h_i. Means over S are unweighted,
    whatever ``weighting`` says, as in Algorithm 1; ``weighting`` serves buffers and what else the round averages.

    Source: Acar et al., ICLR 2021, Algorithm 1. A FedscopeError refuses an α that is not the client's.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedDyn",
        "Acar et al., Dynamic Regularization, ICLR 2021",
        "w⁺ = mean θ_i − h⁺/α, h⁺ = h − (α/N) Σ Δ_i",
        keeps="h",
    )
    counts_clients: ClassVar[bool] = True
    unweighted: ClassVar[bool] = True

    alpha: float | None = setting(
        None, "α of the regulariser; default: that of the client method feddyn, else 0.01", above=0, off="--server fma"
    )

    def resolve(self, config: Config) -> Self:
        """Take the client's α."""
        client = config.tables()["client"]
        theirs: float | None = client.get("alpha") if client["method"] == "feddyn" else None
        if self.alpha is not None and theirs is not None and self.alpha != theirs:
            raise two_values("FedDyn", "alpha", server=self.alpha, client=theirs)
        return replace(self, alpha=self.alpha or theirs or _ALPHA)

    def init(self, w: np.ndarray) -> State:
        """h_0 = 0, [P]."""
        return {"h": np.zeros_like(w)}

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        alpha = self.alpha or _ALPHA
        update = mean_update(start, clients)
        h = state["h"] - alpha * len(clients) / cohort.clients * update
        dtype = start.layout.dtype
        return Served((start.parameters + update - h / alpha).astype(dtype), {"h": h.astype(dtype)})


PROVIDES = FedDyn
