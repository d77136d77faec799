"""MIMELite: Sai Praneeth Karimireddy, Martin Jaggi, Satyen Kale, Mehryar Mohri, Sashank J. Reddi, Sebastian U. Stich,
Ananda Theertha Suresh, "Mime: Mimicking Centralized Stochastic Algorithms in Federated Learning", arXiv:2008.03606,
2020."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from ....checkpoints import FedscopeError
from ...local.local_training import LocalTask, LocalUpdate, full_gradient, local_sgd
from ..base import Exchange, MethodInfo, State
from .mime import Mimicry

if TYPE_CHECKING:
    from ...config.config import Config


@dataclass(frozen=True)
class MIMELite(Mimicry):
    """Clients step like the server's optimiser with its state frozen, along their own gradients: MIME, uncorrected.

    θ ← θ − η U(g; s), with g clipped where asked. Each client also sends its full gradient at w, ∇F_i(w) [P], weight
    decay included; the state s takes in their mean c = Σ p_i ∇F_i(w) (**chosen**: the weights of FMA).

    ========== ====================================== ==========================================
    momentum   U = (1 − β) g + β m                    m⁺ = β m + (1 − β) c
    adam       U = ((1 − β) g + β m)/(√v + τ)         m⁺ as above, v⁺ = β₂ v + (1 − β₂) c²
    ========== ====================================== ==========================================

    m = v = 0 at first, no bias correction; while v is 0, in the first round, Adam's denominators are 1 (**chosen**). β₂
    and τ are FedAdam's (**chosen**). With momentum and β = 0 it would be SGD, which is refused.

    The form is the Mime paper's, with (1 − β) before g: at the same rate its steps are 1 − β times as long as those of
    heavy-ball momentum v ← βv + g, which the other methods' ``momentum`` is. Compare at lr/(1 − β).

    Karimireddy et al., 2020. The server averages, as FMA does. Adam keeps v [P] beside m and sends it, too.

    Raises:
        FedscopeError: ``momentum`` is not 0, or ``beta`` is 0 with ``optimiser = "momentum"``, when settled with the
            configuration.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "MIMELite",
        "Karimireddy et al., Mime, arXiv 2020",
        "θ ← θ − η U(g; s), s frozen in the round",
        keeps="s: m, and v with Adam",
        down="P",
        up="P",
    )
    vectorised: ClassVar[bool] = True

    def resolve(self, config: Config) -> Self:
        if self.optimiser == "momentum" and self.beta == 0:
            raise FedscopeError(
                "client.beta = 0 would switch the method off; give a number greater than 0, or --client sgd"
            )
        return super().resolve(config)

    def train(self, task: LocalTask) -> LocalUpdate:
        """E epochs along U(g; s); the message is the client's full gradient at w."""
        gradient = full_gradient(task, self).cpu().numpy()
        step = self.stepper(task.sent, task.place)
        update = local_sgd(task, self, correct=lambda w, g: step(g))
        return replace(update, message={"gradient": gradient})

    def share(self, sent: State, exchange: Exchange) -> State:
        """The state has taken in c."""
        return self.take_in(sent, exchange.message["gradient"])


PROVIDES = MIMELite
