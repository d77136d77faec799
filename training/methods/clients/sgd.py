"""Plain local SGD, the client of FedAvg: McMahan et al., AISTATS 2017, Algorithm 1, ClientUpdate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...local.local_training import LocalTask, LocalUpdate, local_sgd
from ..base import ClientMethod, MethodInfo


@dataclass(frozen=True)
class SGD(ClientMethod):
    """theta <- theta - eta_t (grad of the batch's cross-entropy + weight_decay theta), with momentum if set."""

    about: ClassVar[MethodInfo] = MethodInfo("SGD", "McMahan et al., FedAvg, AISTATS 2017", "θ ← θ − η g")
    vectorised: ClassVar[bool] = True
    any_optimiser: ClassVar[bool] = True

    def train(self, task: LocalTask) -> LocalUpdate:
        return local_sgd(task, self)


PROVIDES = SGD
