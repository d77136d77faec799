"""Sharpness-aware gradients, which FedSAM, FedASAM and MoFedSAM follow: a batch's gradient taken a short way uphill, at
θ + ε instead of θ.

Foret, Kleiner, Mobahi and Neyshabur, "Sharpness-Aware Minimization for Efficiently Improving Generalization", ICLR
2021; the adaptive ε: Kwon, Kim, Park and Choi, "ASAM: Adaptive Sharpness-Aware Minimization for Scale-Invariant
Learning of Deep Neural Networks", ICML 2021."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

from ....checkpoints import FedscopeError, Layout
from ...local.local_training import LocalTask, LocalUpdate, length, local_sgd
from ...local.worker_model import Objective, TrainableModel
from ...settings.settings import setting
from ..base import ClientMethod

if TYPE_CHECKING:
    from ...config.config import Config

#: ε [P] from (θ, g), both [P]
Ascent = Callable[[Tensor, Tensor], Tensor]

# Below this a norm counts as 0, and ε goes to 0 with g instead of to 0/0.
_SMALLEST_NORM = 1e-12


def ascent(rho: float) -> Ascent:
    """ε = ρ g/‖g‖, of norm ρ; 0 where g is 0."""

    def epsilon(w: Tensor, g: Tensor) -> Tensor:
        norm = length(g).clamp(min=_SMALLEST_NORM)
        return g * (rho / norm)

    return epsilon


def adaptive_ascent(rho: float, eta: float, weights: Tensor) -> Ascent:
    """ε = ρ T² g/‖T g‖ with T = |θ| + η on weights and 1 on biases, so that ‖ε/T‖ = ρ; 0 where g is 0.

    Args:
        weights: [P] bool, see :func:`weight_mask`.
    """

    def epsilon(w: Tensor, g: Tensor) -> Tensor:
        scale = torch.where(weights, w.abs() + eta, 1.0)
        scaled = scale * g
        norm = length(scaled).clamp(min=_SMALLEST_NORM)
        return scaled.mul_(scale).mul_(rho / norm)

    return epsilon


def weight_mask(layout: Layout) -> np.ndarray:
    """Mark which of the P parameters are weights, [P] bool: all but those with ``bias`` in the last part of their name.

    >>> from fedscope.checkpoints import TensorEntry
    >>> parts = ("rnn.weight_hh_l0", (2,)), ("rnn.bias_hh_l0", (1,)), ("norm.weight", (1,)), ("norm.bias", (1,))
    >>> weight_mask(Layout(tuple(TensorEntry(name, shape, "float32", "parameter") for name, shape in parts))).tolist()
    [True, True, False, True, False]
    """
    mask = np.ones(layout.size, dtype=bool)
    for name, where in layout.slices.items():
        mask[where] = "bias" not in name.rpartition(".")[2]
    return mask


def sharp_gradient(
    bench: TrainableModel, objective: Objective, weight_decay: float, epsilon: Ascent
) -> Callable[[Tensor, Tensor], Any]:
    """Compute the gradient of objective + (weight_decay/2)‖θ‖² at θ + ε(θ, g), for ``local_training.local_sgd``.

    g is the gradient of the same at θ. θ comes back bit for bit (from a copy: (θ + ε) − ε is not θ in floating point),
    and the loss returned is the one at θ.

    Chosen: running statistics take in the pass at θ only, whose model is the one that stays. The SAM paper's code does
    so; FedSAM's takes in both passes. Dropout draws new masks for the second pass.
    """
    kept = torch.empty_like(bench.w)

    def gradient(x: Tensor, y: Tensor) -> Any:
        loss = bench.decayed(objective, x, y, weight_decay)
        kept.copy_(bench.w)
        statistics = [buffer.clone() for buffer in bench.module.buffers()]
        bench.w.add_(epsilon(bench.w, bench.g))
        bench.decayed(objective, x, y, weight_decay)
        bench.w.copy_(kept)
        for buffer, values in zip(bench.module.buffers(), statistics, strict=True):
            buffer.copy_(values)
        return loss

    return gradient


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
    the setting existed: they are read, resumed and replayed with it. Where the optimiser shrinks the weights itself
    (AdamW, Muon), λ is in no gradient and there is no ``within``.

    Raises:
        FedscopeError: ``within`` with such an optimiser, when settled with the configuration.
    """

    sam_decay: Literal["apart", "within"] = setting(
        "apart",
        "apart: weight decay is added at θ, outside SAM (as in the authors' code); within: it is perturbed with the "
        "loss",
        before="within",
    )

    def resolve(self, config: Config) -> Self:
        if self.sam_decay == "within" and self.gradient_decay != self.weight_decay:
            raise FedscopeError(
                f"client.sam_decay = 'within' perturbs the weight decay with the loss, but client.optimiser = "
                f"{self.optimiser!r} keeps it out of the gradient; give --set client.sam_decay=apart"
            )
        return super().resolve(config)

    def sharp_sgd(
        self, task: LocalTask, epsilon: Ascent, then: Callable[[Tensor, Tensor], Any] | None = None
    ) -> LocalUpdate:
        """E epochs over the client's samples, see the class.

        Args:
            then: changes what a step follows, in place, given (θ, it).
        """
        within = self.gradient_decay if self.sam_decay == "within" else 0.0
        apart = self.gradient_decay - within

        def correct(w: Tensor, g: Tensor) -> None:
            if apart:
                g.add_(w, alpha=apart)
            if then is not None:
                then(w, g)

        return local_sgd(
            task, self, gradient=sharp_gradient(task.place, task.objective, within, epsilon), correct=correct
        )
