"""FedMoSWA, the server's half: J. Liu, Y. Liu, Shang, H. Liu, J. Liu and Feng, "Improving Generalization in Federated
Learning with Highly Heterogeneous Data via Momentum-Based Stochastic Controlled Weight Averaging", ICML 2025."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from ....checkpoints import FedscopeError
from ...settings.registry import method_name
from ...settings.settings import setting
from ..base import MethodInfo
from .fedswa import FedSWA

if TYPE_CHECKING:
    from ...config.config import Config


@dataclass(frozen=True)
class FedMoSWA(FedSWA):
    """FedSWA's server step, and the γ of the momentum that is sent with the model.

    w⁺ = w + α (Σ p_i θ_i − w), [P]. The control variates c_i and the momentum m⁺ = m + γ·mean_S(c_i⁺ − m) are those of
    ``--client fedmoswa``, which composes with any server, takes this γ where the server is this one and has its own
    elsewhere.

    Source: Liu et al., ICML 2025.

    Raises:
        FedscopeError: a γ that is not the client's, or with a client that has no such momentum.
    """

    about: ClassVar[MethodInfo] = MethodInfo("FedMoSWA", "Liu et al., FedSWA, ICML 2025", "w⁺ = w + α (Σ p_i θ_i − w)")

    gamma: float | None = setting(
        None, "γ of the clients' momentum; default 0.2", above=0, most=1, off="--method fedswa"
    )

    def resolve(self, config: Config) -> Self:
        """Take the client's γ, which by then is this one or 0.2."""
        if method_name(config.client) == "fedmoswa":
            return replace(self, gamma=config.tables()["client"]["gamma"])
        if self.gamma is not None:
            raise FedscopeError(
                f"server.gamma = {self.gamma:g} moves the momentum that --client fedmoswa follows, but the client "
                f"method is {method_name(config.client)}; leave it out, or give --client fedmoswa"
            )
        return self


PROVIDES = FedMoSWA
