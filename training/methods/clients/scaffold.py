"""SCAFFOLD: Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning", ICML 2020, Algorithm 1, option II."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from ....checkpoints import Weights
from ...local.local_training import LocalTask, LocalUpdate, local_sgd
from ..base import ClientMethod, Exchange, MethodInfo, State

if TYPE_CHECKING:
    from ...models.model_info import ModelInfo


@dataclass(frozen=True)
class SCAFFOLD(ClientMethod):
    """Local SGD along g − c_i + c: the client's mean gradient c_i is replaced by the mean over all clients, c.

    All [P]; the correction comes after clipping. Afterwards c_i⁺ = c_i − c + (w − θ_i)/reach_i, kept by client id, and
    c⁺ = c + (1/N) Σ_S (c_i⁺ − c_i), so that c = (1/N) Σ_i c_i over all N clients at all times. c and all c_i start at
    0, so that a federation's first round is SGD's.

    Chosen: where the paper divides by Kη it is by reach_i, which is Σ_k η_k without momentum and with momentum β
    Σ_k η_k (1 − β^k)/(1 − β), so that c_i⁺ is in both cases a mean of client i's own g, with weights that add up to 1.
    The paper's server step of size η_g is the server method's: ``fma`` is η_g = 1, weighted with p.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "SCAFFOLD",
        "Karimireddy et al., SCAFFOLD, ICML 2020",
        "g ← g − c_i + c; c_i⁺ = c_i − c + (w − θ_i)/Σ_k η_k; c⁺ = c + (1/N) Σ_S (c_i⁺ − c_i)",
        keeps="c_i by client, c",
        down="P",
        up="P",
    )
    vectorised: ClassVar[bool] = True
    why_sgd: ClassVar[str] = "takes (w − θ_i)/Σ_k η_k for a mean of gradients"
    vectors_kept: ClassVar[int] = 1
    # The formula's Σ_S is unweighted.
    message_weighting: ClassVar[Literal["p", "uniform"]] = "uniform"

    def begin(self, w: Weights, facts: ModelInfo) -> State:
        """``control``: c = 0, [P]."""
        return {"control": facts.zeros()}

    def train(self, task: LocalTask) -> LocalUpdate:
        """E epochs over the client's samples; the client keeps ``control``, c_i⁺, and sends c_i⁺ − c_i, both [P]."""
        c, own, dtype = task.sent["control"], task.kept("control"), task.facts.layout.dtype
        correction = np.subtract(c, own, dtype=np.float64)
        added = task.place.tensor(correction.astype(dtype))
        update = local_sgd(task, self, correct=lambda w, g: g.add_(added))
        moved = np.subtract(task.start.parameters, update.weights.parameters, dtype=np.float64)
        control = (moved / update.reach - correction).astype(dtype)
        return replace(update, state={"control": control}, message={"control": control - own})

    def share(self, sent: State, exchange: Exchange) -> State:
        """c⁺ = c + (C/N) · the cohort's mean of c_i⁺ − c_i."""
        share = len(exchange.cohort.client_ids) / exchange.facts.clients
        return {"control": (sent["control"] + share * exchange.message["control"]).astype(exchange.facts.layout.dtype)}


PROVIDES = SCAFFOLD
