"""MIME: Sai Praneeth Karimireddy, Martin Jaggi, Satyen Kale, Mehryar Mohri, Sashank J. Reddi, Sebastian U. Stich,
Ananda Theertha Suresh, "Mime: Mimicking Centralized Stochastic Algorithms in Federated Learning", arXiv:2008.03606,
2020."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..methods import About, State
from ..shared.mimicry import Mimicry

if TYPE_CHECKING:
    from torch import Tensor

    from ..local import LocalTask, LocalUpdate
    from ..methods import Exchange


@dataclass(frozen=True)
class MIME(Mimicry):
    """Clients step as the server's optimiser would, its state frozen, along gradients corrected to the cohort's.

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

    Karimireddy et al., 2020. The server averages, as FMA does. Adam keeps v [P] beside m and sends it, too.

    Raises:
        FedscopeError: ``momentum`` is not 0, when settled with the configuration.
    """

    about: ClassVar[About] = About(
        "MIME",
        "Karimireddy et al., Mime, arXiv 2020",
        "θ ← θ − η U(g(θ) − g(w) + c; s), s frozen in the round",
        keeps="s: m, and v with Adam",
        down="2P",
        up="P",
    )
    surveys: ClassVar[bool] = True

    def survey(self, task: LocalTask) -> State:
        """∇F_i(w) over all of the client's samples, [P]."""
        from ..local import full_gradient

        return {"gradient": full_gradient(task, self).cpu().numpy()}

    def train(self, task: LocalTask) -> LocalUpdate:
        """E epochs along U(g(θ) − g(w) + c; s)."""
        from ..local import local_sgd
        from ..shared.gradient_at import gradient_at

        bench = task.place
        sent = bench.tensor(task.start.parameters)
        c = bench.tensor(task.surveyed["gradient"]).to(bench.w.dtype)
        step = self.stepper(task.sent, bench)
        there = bench.w.new_zeros(bench.w.shape)

        def gradient(x: Tensor, y: Tensor) -> float:
            there.copy_(gradient_at(bench, task.objective, sent, x, y, self.weight_decay))
            if self.clip:
                there.mul_((self.clip / (there.norm() + 1e-12)).clamp(max=1.0))
            return bench.decayed(task.objective, x, y, self.weight_decay)

        return local_sgd(task, self, gradient=gradient, correct=lambda w, g: step(g.sub_(there).add_(c)))

    def share(self, sent: State, exchange: Exchange) -> State:
        """The state has taken in c."""
        return self.take_in(sent, exchange.surveyed["gradient"])


PROVIDES = MIME
