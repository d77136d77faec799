"""MIME: Sai Praneeth Karimireddy, Martin Jaggi, Satyen Kale, Mehryar Mohri, Sashank J. Reddi, Sebastian U. Stich,
Ananda Theertha Suresh, "Mime: Mimicking Centralized Stochastic Algorithms in Federated Learning", arXiv:2008.03606,
2020."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from torch import Tensor

from ....checkpoints import FedscopeError, Weights
from ...local.local_training import LocalTask, LocalUpdate, full_gradient, length, local_sgd
from ...local.worker_model import TrainableModel
from ...settings.settings import setting
from ..base import ClientMethod, Exchange, MethodInfo, State

if TYPE_CHECKING:
    from ...config.config import Config
    from ...models.model_info import ModelInfo


@dataclass(frozen=True)
class Mimicry(ClientMethod):
    """What MIME and MIMELite share: local steps θ ← θ − η U(g; s) with s as it was sent, and a state that takes in the
    cohort's full gradient c at w; the formulas are those of :class:`MIME`.

    U is linear in g: v is not updated with the batch's gradient. While v is 0, Adam's denominators are 1, because
    dividing by τ alone would multiply the rate by 1/τ. The default rate stays that of all methods.
    """

    optimiser: Literal["momentum", "adam"] = setting("momentum", "the server optimiser that the clients mimic")
    beta: float = setting(0.9, "β: decay of the mean gradient m per round", least=0, below=1)
    beta2: float = setting(
        0.99,
        "β₂: decay of the mean squared gradient v per round; adam only",
        least=0,
        below=1,
        only_with=("optimiser", "adam"),
    )
    tau: float = setting(1e-3, "τ: added to √v; adam only", above=0, only_with=("optimiser", "adam"))
    momentum: float = setting(0.0, "must stay 0: the server has the momentum, see beta", least=0, below=1)

    def __post_init__(self) -> None:
        if self.optimiser not in ("momentum", "adam"):
            raise FedscopeError(
                f"clients of {self.about.name} step as the server's optimiser, which they mimic; client.optimiser = "
                f"{self.optimiser!r} is not a choice: it takes one of momentum, adam"
            )
        super().__post_init__()

    @property
    def local_optimiser(self) -> str:
        """SGD: its steps go along U."""
        return "sgd"

    def resolve(self, config: Config) -> Self:
        """Refuse a momentum of the local steps' own.

        Raises:
            FedscopeError: ``momentum`` is not 0.
        """
        if self.momentum:
            raise FedscopeError(
                f"client.momentum = {self.momentum:g} does not go with {self.about.name}, whose local steps follow the "
                "server's momentum, frozen for the round; leave client.momentum at 0 and set client.beta"
            )
        return self

    def begin(self, w: Weights, facts: ModelInfo) -> State:
        """m = 0, and v = 0 for Adam, [P]."""
        names = ("momentum", "variance") if self.optimiser == "adam" else ("momentum",)
        return {name: facts.zeros() for name in names}

    def stepper(self, sent: State, bench: TrainableModel) -> Callable[[Tensor], Tensor]:
        """g -> U(g; s), in place."""
        m = bench.tensor(sent["momentum"])
        # a branch whose history followed momentum has no v yet
        v, scale = sent.get("variance"), None
        if self.optimiser == "adam" and v is not None and v.any():
            scale = bench.tensor(v).sqrt().add_(self.tau)

        def step(g: Tensor) -> Tensor:
            g.mul_(1 - self.beta).add_(m, alpha=self.beta)
            return g if scale is None else g.div_(scale)

        return step

    def take_in(self, sent: State, c: np.ndarray) -> State:
        """The state after a round whose cohort's full gradient at w was c, [P]."""
        m = sent["momentum"]
        taken = {"momentum": (self.beta * m.astype(np.float64) + (1 - self.beta) * c).astype(m.dtype)}
        if self.optimiser == "adam":
            v = sent.get("variance", np.zeros_like(m))
            taken["variance"] = (self.beta2 * v.astype(np.float64) + (1 - self.beta2) * c**2).astype(v.dtype)
        return taken


@dataclass(frozen=True)
class MIME(Mimicry):
    """Clients step like the server's optimiser with its state frozen, along gradients corrected to the cohort's.

    θ ← θ − η U(g(θ) − g(w) + c; s), with g(θ) and g(w) of the same mini-batch and c [P] the cohort's full gradient at
    w, weight decay included in all three. The cohort is surveyed before anybody trains: c = Σ p_i ∇F_i(w) (**chosen**:
    the weights of FMA). Afterwards the state s takes in c.

    ========== ====================================== ==========================================
    momentum   U = (1 − β) g + β m                    m⁺ = β m + (1 − β) c
    adam       U = ((1 − β) g + β m)/(√v + τ)         m⁺ as above, v⁺ = β₂ v + (1 − β₂) c²
    ========== ====================================== ==========================================

    m = v = 0 at first, no bias correction; while v is 0, in the first round, Adam's denominators are 1 (**chosen**). β₂
    and τ are FedAdam's (**chosen**). ``clip`` applies to g(θ) and to g(w) before the correction, so that at θ = w the
    corrected gradient is c (**chosen**). Both gradients meet the same dropout masks; batch statistics are those of θ.

    The form is the Mime paper's, with (1 − β) before g: at the same rate its steps are 1 − β times as long as those of
    heavy-ball momentum v ← βv + g, which the other methods' ``momentum`` is. Compare at lr/(1 − β).

    Karimireddy et al., 2020. The server averages, as FMA does. Adam keeps v [P] beside m and sends it, too; a branch
    from ``momentum`` to ``adam`` goes on with m, and with v = 0.

    Raises:
        FedscopeError: ``momentum`` is not 0, when settled with the configuration.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "MIME",
        "Karimireddy et al., Mime, arXiv 2020",
        "θ ← θ − η U(g(θ) − g(w) + c; s), s frozen in the round",
        keeps="s: m, and v with Adam",
        down="2P",
        up="P",
    )
    vectorised: ClassVar[bool] = True
    surveys: ClassVar[bool] = True

    def survey(self, task: LocalTask) -> State:
        """∇F_i(w) over all of the client's samples, [P]."""
        return {"gradient": full_gradient(task, self).cpu().numpy()}

    def train(self, task: LocalTask) -> LocalUpdate:
        """E epochs along U(g(θ) − g(w) + c; s)."""
        bench = task.place
        sent = bench.tensor(task.start.parameters)
        c = bench.tensor(task.surveyed["gradient"]).to(bench.w.dtype)
        step = self.stepper(task.sent, bench)
        there = bench.w.new_zeros(bench.w.shape)

        def gradient(x: Tensor, y: Tensor) -> Any:
            there.copy_(bench.gradient_at(task.objective, sent, x, y, self.weight_decay))
            if self.clip:
                there.mul_((self.clip / (length(there) + 1e-12)).clamp(max=1.0))
            return bench.decayed(task.objective, x, y, self.weight_decay)

        return local_sgd(task, self, gradient=gradient, correct=lambda w, g: step(g.sub_(there).add_(c)))

    def share(self, sent: State, exchange: Exchange) -> State:
        """The state has taken in c."""
        return self.take_in(sent, exchange.surveyed["gradient"])


PROVIDES = MIME
