"""FedNTD, not-true distillation: Gihun Lee, Minchan Jeong, Yongjin Shin, Sangmin Bae, Se-Young Yun, "Preservation of
the Global Knowledge by Not-True Distillation in Federated Learning", NeurIPS 2022."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ....evaluation.taken_logits import logits_of
from ...guards.returned_arrays import is_own_method
from ...local.local_training import LocalTask, LocalUpdate, local_sgd
from ...settings.settings import setting
from ..base import ClientMethod, MethodInfo


@dataclass(frozen=True)
class FedNTD(ClientMethod):
    """Clients keep the global model's outputs on the classes that a sample does not have.

    loss = L + β τ² (1/n) Σ_x KL(softmax(g̃/τ) ‖ softmax(l̃/τ)), where L is the task's mean loss (a
    criterion's weights of classes and smoothing are in it, and not in the term), and g̃, l̃ [n, classes − 1] are the
    logits of the model that was sent and of the client's own on the same mini-batch x, y, without the true class y. The
    teacher is constant; τ² keeps the gradient's size as τ grows. The training loss that is recorded is L. Samples whose
    label a criterion ignores have no true class, and no part in the mean.

    Chosen: the teacher answers in evaluation mode (no dropout, running statistics). At the first local step of a model
    without either both answers are equal and the term has no gradient, so that step is SGD's. With two classes a single
    class is left, softmax of which is 1: the term is 0 and the method is SGD.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedNTD", "Lee et al., not-true distillation, NeurIPS 2022", "loss + β τ² KL(softmax(g̃/τ) ‖ softmax(l̃/τ))"
    )
    vectorised: ClassVar[bool] = True
    any_optimiser: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = True

    beta: float = setting(1.0, "β: weight of the distillation", above=0, off="--client sgd")
    temperature: float = setting(1.0, "τ: divides the logits", above=0)

    def doubts(self, outputs: int, samples: Sequence[int]) -> Iterator[str]:
        """Yield that nothing is distilled with two classes."""
        if outputs == 2 and not is_own_method(self):
            yield (
                "client.method = 'fedntd' does what sgd does here: of two classes a single one is left without that of "
                "the sample, and nothing is to be kept of it; give --client sgd"
            )

    def train(self, task: LocalTask) -> LocalUpdate:
        """E epochs over the client's samples, with the model that was sent as the teacher."""
        teacher = task.place.companion(task.start, "global")

        def objective(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            logits = logits_of(module(x))
            with torch.no_grad():
                taught = teacher(x)
            rows = task.labelled(y)
            n, classes = logits[rows].shape
            others = torch.arange(classes - 1, device=y.device).expand(n, classes - 1)
            others = others + (others >= y[rows][:, None])
            own, global_ = (
                functional.log_softmax(answer[rows].gather(1, others) / self.temperature, dim=1)
                for answer in (logits, taught)
            )
            distance: Tensor = (global_.exp() * (global_ - own)).sum() / max(n, 1)
            loss = task.loss_of(logits, y)
            return loss + self.beta * self.temperature**2 * distance, loss

        return local_sgd(task, self, objective=objective)


PROVIDES = FedNTD
