"""FedACG, the clients' half: Kim, Kim and Han, "Communication-Efficient Federated Learning with Accelerated Client
Gradient", CVPR 2024."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...local.local_training import LocalTask, LocalUpdate, local_sgd
from ...settings.settings import setting
from ..base import ClientMethod, MethodInfo
from ..shared.pulls import pull_without_effect


@dataclass(frozen=True)
class FedACG(ClientMethod):
    """Local SGD on the loss + β‖θ − start‖²; start is the look-ahead model that was sent.

    A step follows g + 2β(θ − start), all [P]: the penalty's own gradient, added after clipping. The training loss that
    is recorded is without the penalty. The penalty has no ½, so these clients are FedProx's with μ = 2β.

    The other half is ``--server fedacg``, which sends start = global + λm; nothing is sent beside it, because the
    momentum is in the model. With another server the clients are held near whatever that server sends.

    Raises:
        FedscopeError: beta is not greater than 0.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedACG", "Kim et al., FedACG, CVPR 2024", "loss + β‖θ − start‖², so g ← g + 2β(θ − start)"
    )
    vectorised: ClassVar[bool] = True
    any_optimiser: ClassVar[bool] = True
    proximal: ClassVar[bool] = True
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sgd": {"beta": 1e-12}}

    beta: float = setting(0.01, "β: strength of the pull towards the model that was sent", above=0, off="--client sgd")

    def doubts(self, outputs: int, samples: Sequence[int]) -> Iterator[str]:
        """Yield that nothing is pulled, where it is so."""
        yield from pull_without_effect(self, samples)

    def train(self, task: LocalTask) -> LocalUpdate:
        start = task.place.tensor(task.start.parameters)
        return local_sgd(task, self, correct=lambda w, g: g.add_(w - start, alpha=2 * self.beta))


PROVIDES = FedACG
