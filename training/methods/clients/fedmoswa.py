"""FedMoSWA, the client's half: Junkang Liu, Yuanyuan Liu, Fanhua Shang, Hongying Liu, Jin Liu, Wei Feng, "Improving
Generalization in Federated Learning with Highly Heterogeneous Data via Momentum-Based Stochastic Controlled Weight
Averaging", ICML 2025."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from ....checkpoints import Weights
from ...local.local_training import LocalTask, LocalUpdate, local_sgd
from ...settings.settings import setting
from ..base import Exchange, MethodInfo, State
from ..shared.one_setting import two_values
from .fedswa import FedSWA

if TYPE_CHECKING:
    from ...config.config import Config
    from ...models.model_info import ModelInfo

_GAMMA = 0.2


@dataclass(frozen=True)
class FedMoSWA(FedSWA):
    """FedSWA along the gradient minus the client's own mean gradient, plus a momentum of all clients.

    θ ← θ − η_k (g − c_i + m), with c_i and m [P], and η_k FedSWA's. Afterwards c_i⁺ = c_i − m + (w − θ_i)/Σ_k η_k,
    which is the η-weighted mean of the client's own g, and m⁺ = m + γ·mean_S(c_i⁺ − m), an unweighted mean.

    c_i is kept by the client, 0 before its first participation; m is sent to every client, 0 in the first round. With
    c_i = m = 0 a client steps as FedSWA's. Where ``momentum`` is not 0, Σ_k η_k is the update's ``reach``, which takes
    it in, so that c_i⁺ stays an exact weighted mean of g (**chosen**: the paper has no momentum).

    The released code differs: it divides by K·(first + last rate)/2 in place of Σ_k η_k, its first m is the mean of the
    first c_i⁺ (here m moves there by γ), and it weights clients uniformly where the server here uses p. Kept as the
    formulas are: only with Σ_k η_k is c_i⁺ an exact mean of g.

    Liu et al., ICML 2025; the server's half is the server method of the same name.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedMoSWA",
        "Liu et al., FedSWA, ICML 2025",
        "θ ← θ − η_k (g − c_i + m), m⁺ = m + γ mean(c_i⁺ − m)",
        keeps="c_i by client, m",
        down="P",
        up="P",
    )
    vectorised: ClassVar[bool] = True
    why_sgd: ClassVar[str] = "takes (w − θ_i)/Σ_k η_k for a mean of gradients"
    message_weighting: ClassVar[Literal["p", "uniform"]] = "uniform"
    vectors_kept: ClassVar[int] = 1

    gamma: float | None = setting(
        None,
        "γ: how far m moves towards the clients' mean gradient per round; default server.gamma, else 0.2",
        above=0,
        most=1,
        off="--client fedswa",
    )

    def resolve(self, config: Config) -> Self:
        """Take the server's γ where it has one.

        Raises:
            FedscopeError: two different ones.
        """
        server = config.tables()["server"]
        theirs: float | None = server.get("gamma") if server["method"] == "fedmoswa" else None
        if self.gamma is not None and theirs is not None and self.gamma != theirs:
            raise two_values("FedMoSWA", "gamma", client=self.gamma, server=theirs)
        return replace(self, gamma=self.gamma or theirs or _GAMMA)

    def begin(self, w: Weights, facts: ModelInfo) -> State:
        """m = 0, [P]."""
        return {"momentum": facts.zeros()}

    def train(self, task: LocalTask) -> LocalUpdate:
        """E epochs along g − c_i + m; the message is c_i⁺ − m, the state c_i⁺."""
        bench, layout = task.place, task.start.layout
        m = task.sent["momentum"]
        own = task.kept("control")
        shift = bench.tensor(m - own)
        update = local_sgd(task, self, rate=self.rate(task.pace.lr), correct=lambda w, g: g.add_(shift))
        # in float64: w − θ_i is a small difference of large numbers
        moved = task.start.parameters.astype(np.float64) - update.weights.parameters
        control = own - np.asarray(m, np.float64) + moved / update.reach
        return replace(update, state={"control": control.astype(layout.dtype)}, message={"control": control - m})

    def share(self, sent: State, exchange: Exchange) -> State:
        """m⁺ = m + γ·mean_S(c_i⁺ − m)."""
        m = sent["momentum"]
        return {"momentum": (m + (self.gamma or _GAMMA) * exchange.message["control"]).astype(m.dtype)}


PROVIDES = FedMoSWA
