"""What FedSAM, FedASAM and MoFedSAM share: where weight decay enters a sharpness-aware step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..methods import ClientMethod
from ..settings import setting

if TYPE_CHECKING:
    from torch import Tensor

    from ..local import LocalTask, LocalUpdate
    from .sharpness import Ascent


@dataclass(frozen=True)
class SharpnessAware(ClientMethod):
    """Local SGD along the gradient at θ + ε(θ, g).

    ========== ========================= =====================================
    sam_decay  g, which gives ε          a step follows
    ========== ========================= =====================================
    apart      ∇L(θ)                     clip(∇L(θ + ε)) + λ θ
    within     ∇L(θ) + λ θ               clip(∇L(θ + ε) + λ (θ + ε))
    ========== ========================= =====================================

    All [P]; L is the batch's loss alone, λ the weight decay, clip bounds the norm where ``clip`` is not 0. ``apart`` is
    what the authors' code does. ``within`` is SAM on L + (λ/2)‖θ‖², which is what runs did that were recorded before
    the setting existed: they are read, resumed and replayed with it.
    """

    sam_decay: Literal["apart", "within"] = setting(
        "apart",
        "weight decay is added at θ, apart from SAM (the authors' code), or perturbed with the loss",
        before="within",
    )

    def sharp_sgd(
        self, task: LocalTask, epsilon: Ascent, then: Callable[[Tensor, Tensor], Any] | None = None
    ) -> LocalUpdate:
        """E epochs over the client's samples, see the class.

        Args:
            then: changes what a step follows, in place, given (θ, it).
        """
        from ..local import local_sgd
        from .sharpness import sharp_gradient

        within = self.weight_decay if self.sam_decay == "within" else 0.0
        apart = self.weight_decay - within

        def correct(w: Tensor, g: Tensor) -> None:
            if apart:
                g.add_(w, alpha=apart)
            if then is not None:
                then(w, g)

        return local_sgd(
            task, self, gradient=sharp_gradient(task.place, task.objective, within, epsilon), correct=correct
        )
