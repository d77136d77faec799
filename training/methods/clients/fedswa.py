"""FedSWA, the client's half: Junkang Liu, Yuanyuan Liu, Fanhua Shang, Hongying Liu, Jin Liu, Wei Feng, "Improving
Generalization in Federated Learning with Highly Heterogeneous Data via Momentum-Based Stochastic Controlled Weight
Averaging", ICML 2025."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...local.local_training import LocalTask, LocalUpdate, local_sgd
from ...settings.settings import setting
from ..base import ClientMethod, MethodInfo


@dataclass(frozen=True)
class FedSWA(ClientMethod):
    """SGD whose learning rate falls linearly towards ρη in each round and restarts in the next.

    θ ← θ − η_k g with η_k = η(1 − k/K) + ρη k/K at local step k = 0, ..., K − 1, η the round's rate and ρ ``lr_floor``.
    ρη itself is not reached. Written as η(1 − (1 − ρ)k/K), so that ρ = 1 is plain SGD, bit for bit.

    Liu et al., ICML 2025; the server's half is the server method of the same name. The paper has no momentum; where
    ``momentum`` is not 0 the rate multiplies the velocity, as in torch's ``SGD`` (**chosen**).
    """

    about: ClassVar[MethodInfo] = MethodInfo("FedSWA", "Liu et al., FedSWA, ICML 2025", "η_k = η(1 − k/K) + ρη k/K")
    vectorised: ClassVar[bool] = True
    any_optimiser: ClassVar[bool] = True
    changing_rate: ClassVar[bool] = True
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sgd": {"lr_floor": 1.0}}

    lr_floor: float = setting(0.1, "ρ: the rate falls towards this share of itself within a round", above=0, most=1)

    def rate(self, lr: float) -> Callable[[int, int], float]:
        """η_k of local step k of K, as a function of (k, K), in a round of rate ``lr``."""
        return lambda k, steps: lr * (1 - (1 - self.lr_floor) * k / steps)

    def train(self, task: LocalTask) -> LocalUpdate:
        """E epochs over the client's samples at falling rates."""
        return local_sgd(task, self, rate=self.rate(task.pace.lr))


PROVIDES = FedSWA
