"""FedProx: Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated Optimization in Heterogeneous Networks", MLSys
2020, Algorithm 2."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...local.local_training import LocalTask, LocalUpdate, local_sgd
from ...settings.settings import setting
from ..base import ClientMethod, MethodInfo
from ..shared.pulls import pull_without_effect


@dataclass(frozen=True)
class FedProx(ClientMethod):
    """Local SGD on the loss + (μ/2)‖θ − w‖², which keeps each client near the model w that was sent.

    A step follows g + μ(θ − w), all [P]: the penalty's own gradient, added after clipping. The training loss that is
    recorded is without the penalty. Chosen: the paper solves each client's problem inexactly, by any solver; here it is
    E epochs of mini-batch SGD, the same E for all clients.

    μ is in {0.1, 0.01, 0.001} in the papers that compare with it (FedSA's tables: 0.001). As μ goes to 0 it is SGD.

    Raises:
        FedscopeError: mu is not greater than 0.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedProx", "Li et al., Heterogeneous networks, MLSys 2020", "loss + (μ/2)‖θ − w‖², so g ← g + μ(θ − w)"
    )
    vectorised: ClassVar[bool] = True
    any_optimiser: ClassVar[bool] = True
    proximal: ClassVar[bool] = True
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sgd": {"mu": 1e-12}}

    mu: float = setting(0.01, "μ: strength of the pull towards the model that was sent", above=0, off="--client sgd")

    def doubts(self, outputs: int, samples: Sequence[int]) -> Iterator[str]:
        """Yield that nothing is pulled, where it is so."""
        yield from pull_without_effect(self, samples)

    def train(self, task: LocalTask) -> LocalUpdate:
        start = task.place.tensor(task.start.parameters)
        return local_sgd(task, self, correct=lambda w, g: g.add_(w - start, alpha=self.mu))


PROVIDES = FedProx
