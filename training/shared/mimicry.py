"""What MIME and MIMELite share: local steps of a server optimiser whose statistics stay as they were sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from ...checkpoints import FedscopeError
from ..methods import ClientMethod, State
from ..settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from ...checkpoints import Weights
    from ..anatomy import Facts
    from ..bench import Workbench
    from ..config import Config


@dataclass(frozen=True)
class Mimicry(ClientMethod):
    """Local steps θ ← θ − η U(g; s) with s as it was sent, and a state that takes in the cohort's full gradient c at w.

    ========== ====================================== ==========================================
    momentum   U = (1 − β) g + β m                    m⁺ = β m + (1 − β) c
    adam       U = ((1 − β) g + β m)/(√v + τ)         m⁺ as above, v⁺ = β₂ v + (1 − β₂) c²
    ========== ====================================== ==========================================

    All of them [P], m = v = 0 at first. U is linear in g: v is not updated with the batch's gradient, and there is no
    bias correction. While v is 0 everywhere, in the first round, Adam's denominators are 1 (**chosen**: dividing by τ
    alone would multiply the rate by 1/τ). β₂ and τ are FedAdam's (**chosen**).

    With (1 − β) g, the Mime paper's form, steps are 1 − β times as long as heavy-ball's at the same rate. The default
    rate stays that of all methods; tables compare at lr/(1 − β).
    """

    optimiser: Literal["momentum", "adam"] = setting("momentum", "the server optimiser that the clients mimic")
    beta: float = setting(0.9, "β: decay of the mean gradient m a round", least=0, below=1)
    beta2: float = setting(0.99, "β₂: decay of the mean squared gradient v a round; adam only", least=0, below=1)
    tau: float = setting(1e-3, "τ: added to √v; adam only", above=0)
    momentum: float = setting(0.0, "must stay 0: the momentum is the server's, see beta", least=0, below=1)

    def settle(self, config: Config) -> Self:
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

    def begin(self, w: Weights, facts: Facts) -> State:
        """m = 0, and v = 0 for Adam, [P]."""
        names = ("momentum", "variance") if self.optimiser == "adam" else ("momentum",)
        return {name: np.zeros(facts.layout.size, facts.layout.dtype) for name in names}

    def stepper(self, sent: State, bench: Workbench) -> Callable[[Tensor], Tensor]:
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
