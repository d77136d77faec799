"""FedBABU: Jaehoon Oh, SangMook Kim, Se-Young Yun, "FedBABU: Toward Enhanced Representation for Federated Image
Classification", ICLR 2022."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from ....checkpoints import FedscopeError, Weights
from ...local.local_training import LocalTask, LocalUpdate, local_sgd
from ...settings.settings import setting
from ..base import ClientMethod, ClientState, MethodInfo, State

if TYPE_CHECKING:
    from ...models.model_info import ModelInfo


@dataclass(frozen=True)
class FedBABU(ClientMethod):
    """The body is federated and the head keeps its initial values; each client fine-tunes its own model.

    θ ← θ − η g with g = 0 on the head, after weight decay and clipping (the norm that ``clip`` bounds is the whole
    gradient's, **chosen**), so the head never moves and only P − H parameters travel, H those of the head.

    A client's own model: ``fine_tune_epochs`` of SGD over its training samples from the round's global model, at the
    round's rate, with the same momentum, weight decay and clip; of the head (the default, as in the paper's abstract),
    the body or the whole model (the default of a widely used library). Its mini-batch orders are its own: those of
    draw + 10⁹, which no replay reaches.

    Oh et al., ICLR 2022.

    Raises:
        FedscopeError: a model that is nothing but its head, which would not train at all.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "FedBABU", "Oh et al., FedBABU, ICLR 2022", "g = 0 on the head, which clients fine-tune"
    )
    vectorised: ClassVar[bool] = True
    why_sgd: ClassVar[str] = "keeps its head at rest by a gradient of 0, and other optimisers move it all the same"
    needs_head: ClassVar[bool] = True
    personal: ClassVar[bool] = True
    freezes_head: ClassVar[bool] = True
    check_with: ClassVar[Mapping[str, Any]] = {"fine_tune_epochs": 1}

    fine_tune_epochs: int = setting(10, "epochs of fine-tuning of a client's own model", least=1)
    fine_tune: Literal["all", "head", "body"] = setting("head", "part that a client fine-tunes for its own model")

    def begin(self, w: Weights, facts: ModelInfo) -> State:
        """Nothing is sent beside the model."""
        if self.model_size(facts) == 0:
            raise FedscopeError(
                f"FedBABU freezes the head, but the model is nothing else than its head {facts.head!r}; choose a model "
                "with more layers, as in --model mlp, or --client sgd"
            )
        return {}

    def model_size(self, facts: ModelInfo) -> int:
        """P − H: the head is the same everywhere."""
        return facts.layout.size - int(facts.head_mask().sum())

    def train(self, task: LocalTask) -> LocalUpdate:
        """E epochs over the client's samples; the head is frozen."""
        return _masked_sgd(self, task, task.facts.head_mask())

    def personalise(self, task: LocalTask, kept: ClientState) -> Weights:
        """Fine-tuned from the round's global model."""
        own = task.beside(task.start, self.fine_tune_epochs)
        head = task.facts.head_mask()
        frozen = {"all": None, "head": ~head, "body": head}[self.fine_tune]
        return _masked_sgd(self, own, frozen).weights


def _masked_sgd(method: ClientMethod, task: LocalTask, frozen: np.ndarray | None) -> LocalUpdate:
    if frozen is None:
        return local_sgd(task, method)
    mask = task.place.tensor(frozen)

    def freeze(w: Tensor, g: Tensor) -> Any:
        return g.masked_fill_(mask, 0)

    return local_sgd(task, method, correct=freeze)


PROVIDES = FedBABU
