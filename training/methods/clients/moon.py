"""MOON, model-contrastive learning: Qinbin Li, Bingsheng He, Dawn Song, "Model-Contrastive Federated Learning",
CVPR 2021."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...local.local_training import LocalTask, LocalUpdate, local_sgd
from ...local.worker_model import features_and_logits
from ...settings.settings import setting
from ..base import ClientMethod, MethodInfo


@dataclass(frozen=True)
class MOON(ClientMethod):
    """Clients pull their features towards those of the global model and away from those of their own last model.

    loss = L + μ (1/n) Σ_x −log( e^{s_g/τ} / (e^{s_g/τ} + e^{s_p/τ}) ), where L is the task's mean loss (a
    criterion's weights of classes and smoothing are in it, and not in the term), and s_g and s_p are the cosines of the
    features [n, width] of a mini-batch x with the features of the same x in the model that was sent and in the client's
    model after its last participation. Both of those are constant and in evaluation mode; the head gets no gradient
    from the term. The training loss that is recorded is L.

    A client keeps its model (P numbers and the buffers). Chosen: at its first participation, where it has none, the
    model that was sent stands in; both cosines are equal then, the term is log 2 and its gradient exactly 0. The
    authors' code has no term at all in the first round (and takes freshly drawn nets for clients that come later).
    Chosen: the features are what the model's head sees; the projection layers that the authors put before their head
    belong to the architecture. The authors' code has τ = 0.5.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "MOON",
        "Li et al., model-contrastive learning, CVPR 2021",
        "loss − μ log(e^{s_g/τ} / (e^{s_g/τ} + e^{s_p/τ}))",
        keeps="θ_i of its last round, by client",
    )
    vectorised: ClassVar[bool] = True
    any_optimiser: ClassVar[bool] = True
    vectors_kept: ClassVar[int] = 1
    needs_head: ClassVar[bool] = True
    head_use: ClassVar[Literal["numbers", "inputs", "outputs", "both"]] = "inputs"
    needs_classes: ClassVar[bool] = True

    mu: float = setting(1.0, "μ: weight of the contrast", above=0, off="--client sgd")
    temperature: float = setting(1.0, "τ: divides the cosines", above=0)

    def train(self, task: LocalTask) -> LocalUpdate:
        """E epochs over the client's samples; the model that they end in is kept."""
        head, previous = task.facts.head, task.kept_model("previous")
        others = [task.place.companion(task.start, "global")]
        if previous is not None:
            others.append(task.place.companion(previous, "previous"))

        def objective(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            features, logits = features_and_logits(module, head, x)
            with torch.no_grad():
                seen = [features_and_logits(other, head, x)[0] for other in others]
            # One call for both, so that equal cosines send back gradients that cancel before they meet the loss's.
            towards, away = functional.cosine_similarity(features, torch.stack([seen[0], seen[-1]]), dim=2)
            contrast = functional.softplus((away - towards) / self.temperature).mean()
            loss = task.loss_of(logits, y)
            return loss + self.mu * contrast, loss

        update = local_sgd(task, self, objective=objective)
        return replace(update, state={"previous": update.weights})


PROVIDES = MOON
