"""FedCM: Xu, Wang, Wang and Yao, "FedCM: Federated Learning with Client-level Momentum", arXiv:2106.10874, 2021."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from ....checkpoints import Weights
from ...local.local_training import LocalTask, LocalUpdate, local_sgd
from ...settings.settings import setting
from ..base import ClientMethod, Exchange, MethodInfo, State
from ..shared.server_steps import weighted_update

if TYPE_CHECKING:
    from ...models.model_info import ModelInfo


@dataclass(frozen=True)
class FedCM(ClientMethod):
    """Local SGD along a·g + (1 − a)·c; c is the last cohort's mean step, so each step has momentum over rounds.

    All [P]; g is clipped before it is mixed. c⁺ = −Σ p_i Δ_i/reach_i, in float64, row by row, with Δ_i = θ_i − w.

    Chosen: c = 0 in the first round, as the paper's Δ_0 = 0, so that its steps are a times SGD's. Where the paper
    divides by Kη it is by reach_i: Σ_k η_k without the clients' own momentum, and Σ_k η_k (1 − β^k)/(1 − β) with it, so
    that c is in both cases a mean of the directions a g + (1 − a) c that were followed. Clients weigh p_i (the paper's
    are equal: ``--set server.weighting=uniform``).

    Raises:
        FedscopeError: alpha is not between 0 (nobody would look at data) and 1 (which is SGD).
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedCM",
        "Xu et al., FedCM, arXiv 2021",
        "g ← a g + (1 − a) c; c⁺ = −Σ p_i Δ_i/Σ_k η_k",
        keeps="c",
        down="P",
    )
    vectorised: ClassVar[bool] = True
    why_sgd: ClassVar[str] = "takes (w − θ_i)/Σ_k η_k for a mean of gradients"

    alpha: float = setting(0.1, "a: share of the client's own gradient; 1 would be plain SGD", above=0, below=1)

    def begin(self, w: Weights, facts: ModelInfo) -> State:
        """``momentum``: c = 0, [P]."""
        return {"momentum": facts.zeros()}

    def mix(self, task: LocalTask) -> Callable[[Tensor, Tensor], object]:
        """g ← a g + (1 − a) c, in place, given (θ, g)."""
        momentum = task.place.tensor(task.sent["momentum"])
        return lambda w, g: g.mul_(self.alpha).add_(momentum, alpha=1 - self.alpha)

    def train(self, task: LocalTask) -> LocalUpdate:
        return local_sgd(task, self, correct=self.mix(task))

    def share(self, sent: State, exchange: Exchange) -> State:
        """c⁺ from the models that came back."""
        weights = exchange.cohort.p / exchange.cohort.reach
        momentum = -weighted_update(exchange.start, exchange.clients, weights)
        return {"momentum": momentum.astype(exchange.facts.layout.dtype)}


PROVIDES = FedCM
