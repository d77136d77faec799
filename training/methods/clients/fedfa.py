"""FedFA, feature anchors: Tailin Zhou, Jun Zhang, Danny H. K. Tsang, "FedFA: Federated Learning with Feature Anchors to
Align Features and Classifiers for Heterogeneous Data", IEEE TMC 2023."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ....checkpoints import Weights
from ...local.local_training import LocalTask, LocalUpdate, local_sgd
from ...local.worker_model import as_float32, features_and_logits, head_layer
from ...rng import generator
from ...settings.settings import setting
from ..base import ClientMethod, Exchange, MethodInfo, State

if TYPE_CHECKING:
    from ...config.config import Config
    from ...models.model_info import ModelInfo


@dataclass(frozen=True)
class FedFA(ClientMethod):
    """Clients pull their features towards one shared anchor per class, and train their heads on the anchors.

    loss = L + (λ/C) Σ_i ‖f_i − a_{y_i}‖² / n_{y_i}, and from round ``calibrate_from`` on + (1/C) Σ_c CE(head(a_c), c):
    L the task's mean loss (a criterion's weights of classes and smoothing are in it, and in no other term), features f
    [n, width] of a mini-batch, C classes, n_y of the mini-batch's samples in class y, anchors a [C, width].
    The training loss that is recorded is L.
    After each local epoch a_c ← m a_c + (1 − m) mean feature of class c, for the classes that the client has; the
    server averages the clients' anchors with p (by n_i, as ``server.weighting`` says). Samples whose label a criterion
    ignores are in no class.

    Chosen, where the paper is silent or its code differs:

    - anchors begin as the first C unit vectors of the feature space; the authors draw which C, which is the same to a
      fresh network. With more classes than features they begin as drawn directions of length 1, as the authors' do.
    - the loss holds the anchors that were sent during the whole round; only the copy that is sent back moves, so that
      all clients of a round align with the same points (as in the authors' code).
    - the mean feature is over the samples that the epoch's steps saw, each at its step. The authors average mini-batch
      means and divide by the number of mini-batches, which shrinks a class that some of them lack.
    - the calibration is part of the loss; the authors' code takes a step of its own with Adam after each one.
    - an anchor whose class a client lacks comes back as it was sent, and is averaged with the client's full weight.

    Sources of the defaults: λ in {0.1, 0.01, 0.001} and m = 0.9 are from Table 5 of Zhou et al. (IMA, IEEE TMC 2024);
    R/4 as the first round of the calibration is in that paper's code only. FedFA's own code has m = 0.5 and calibrates
    from the first step on.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedFA",
        "Zhou et al., feature anchors, IEEE TMC 2023",
        "loss + (λ/C) Σ ‖f − a_y‖²/n_y + CE(head(a_c), c); a_c ← m a_c + (1−m) mean f",
        keeps="anchors a, server",
        down="anchors (classes × features)",
        up="anchors (classes × features)",
    )
    any_optimiser: ClassVar[bool] = True
    needs_head: ClassVar[bool] = True
    head_use: ClassVar[Literal["numbers", "inputs", "outputs", "both"]] = "both"
    needs_classes: ClassVar[bool] = True

    anchor_weight: float = setting(0.1, "λ: weight of the distance to the anchors", above=0, off="--client sgd")
    anchor_momentum: float = setting(
        0.9, "m: share of an anchor that an epoch keeps; with 1 it never moves", least=0, most=1
    )
    calibrate_from: int | None = setting(
        None, "first round in which heads learn the anchors; default ceil(0.25 R), after R: never", least=1
    )

    def resolve(self, config: Config) -> Self:
        """``calibrate_from`` = ceil(0.25 R) where none was given."""
        if self.calibrate_from is None:
            return replace(self, calibrate_from=ceil(0.25 * config.run.rounds))
        return self

    def begin(self, w: Weights, facts: ModelInfo) -> State:
        """Anchors [C, width] of length 1, see the class."""
        if facts.classes <= facts.width:
            anchors = np.eye(facts.classes, facts.width)
        else:
            anchors = generator(facts.seed, "generator").normal(size=(facts.classes, facts.width))
            anchors /= np.linalg.norm(anchors, axis=1, keepdims=True)
        return {"anchors": anchors.astype(facts.layout.dtype)}

    def train(self, task: LocalTask) -> LocalUpdate:
        """E epochs over the client's samples; its anchors are its message."""
        head = task.facts.head
        anchors = task.place.tensor(task.sent["anchors"])
        moved = anchors.clone()
        classes = torch.arange(len(anchors), device=anchors.device)
        calibrates = self.calibrate_from is not None and task.round >= self.calibrate_from
        seen: list[tuple[Tensor, Tensor]] = []

        def objective(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            features, logits = features_and_logits(module, head, x)
            alone = task.loss_of(logits, y)
            rows = task.labelled(y)
            features, y = features[rows], y[rows]
            seen.append((features.detach().to(anchors.dtype), y))
            of_class = (y[:, None] == classes).sum(0)
            distances = (features - anchors[y]).square().sum(1)
            loss = alone + self.anchor_weight / len(classes) * (distances / of_class[y]).sum()
            if calibrates:
                loss = loss + functional.cross_entropy(as_float32(head_layer(module, head)(anchors)), classes)
            return loss, alone

        def move(epoch: int) -> None:
            features, y = (torch.cat(parts) for parts in zip(*seen, strict=True))
            for c in set(y.tolist()):
                moved[c] = self.anchor_momentum * moved[c] + (1 - self.anchor_momentum) * features[y == c].mean(0)
            seen.clear()

        update = local_sgd(task, self, objective=objective, after_epoch=move)
        return replace(update, message={"anchors": moved.cpu().numpy()})

    def share(self, sent: State, exchange: Exchange) -> State:
        """The cohort's average of the clients' anchors."""
        return {"anchors": exchange.message["anchors"].astype(exchange.facts.layout.dtype)}


PROVIDES = FedFA
