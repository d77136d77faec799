"""AdaBest, the clients' half: Varno, Saghayi, Rafiee Sevyeri, Gupta, Matwin and Havaei, "AdaBest: Minimizing Client
Drift in Federated Learning via Adaptive Bias Estimation", ECCV 2022."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ....checkpoints import Weights
from ...local.local_training import LocalTask, LocalUpdate, local_sgd
from ...settings.settings import setting
from ..base import ClientMethod, Exchange, MethodInfo, State

if TYPE_CHECKING:
    from ...models.model_info import ModelInfo


@dataclass(frozen=True)
class AdaBest(ClientMethod):
    """Local SGD along g − μ_i h_i; h_i estimates client i's drift and fades with the rounds since its last one.

    All [P]; the correction comes after clipping. Afterwards h_i⁺ = h_i/(t − t_last) + (w − θ_i), kept by client id;
    h_i = 0 before the client's first participation, which is therefore SGD's.

    μ_i = μ E m̄/n_i, with E the round's local epochs. Chosen, as the first author's library computes it: m̄ is the
    running mean of the samples in a step, E n_i/K_i, over all participations before this round, each counted once; it
    is sent with the model, and each client sends its own back. With batches of b samples throughout, m̄ = b.

    h_i is a movement of the model, not a gradient, as in the paper. Clients' momentum β makes it up to 1/(1 − β) times
    as long, for which a smaller μ makes up. The other half is ``--server adabest``. The default μ = 0.02 is from the
    grid of WIMA's comparison (Caldarola et al., ICCV Workshops 2023).

    Raises:
        FedscopeError: mu is not greater than 0.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "AdaBest",
        "Varno et al., AdaBest, ECCV 2022",
        "g ← g − μ_i h_i, μ_i = μ E m̄/n_i; h_i⁺ = h_i/(t − t_last) + (w − θ_i)",
        keeps="h_i by client, m̄",
        down="m̄ and its count (2 numbers)",
        up="samples a step (1 number)",
    )
    vectorised: ClassVar[bool] = True
    why_sgd: ClassVar[str] = "takes a client's way for its drift, in gradients at SGD's rate"
    vectors_kept: ClassVar[int] = 1
    message_weighting: ClassVar[Literal["p", "uniform"]] = "uniform"
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sgd": {"mu": 1e-12}}

    mu: float = setting(0.02, "μ: strength of the drift correction", above=0, off="--client sgd")

    def begin(self, w: Weights, facts: ModelInfo) -> State:
        """``samples_a_step``, m̄, and ``participations``, how many it is the mean of; both 0, [1]."""
        return {"samples_a_step": np.zeros(1), "participations": np.zeros(1)}

    def train(self, task: LocalTask) -> LocalUpdate:
        """E epochs over the client's samples; the client keeps ``drift``, h_i⁺ [P], and sends its samples a step."""
        h, samples, epochs = task.kept("drift"), task.samples, task.pace.epochs
        mu = self.mu * epochs * float(task.sent["samples_a_step"][0]) / samples
        pull = task.place.tensor((mu * h).astype(h.dtype))
        update = local_sgd(task, self, correct=lambda w, g: g.sub_(pull))
        moved = np.subtract(task.start.parameters, update.weights.parameters, dtype=np.float64)
        faded = (h / task.away + moved).astype(task.facts.layout.dtype)
        message = {"samples_a_step": np.atleast_1d(epochs * samples / update.steps)}
        return replace(update, state={"drift": faded}, message=message)

    def share(self, sent: State, exchange: Exchange) -> State:
        """m̄⁺ over the participations so far, this cohort's included."""
        before, cohort = sent["participations"], len(exchange.cohort.client_ids)
        total = sent["samples_a_step"] * before + exchange.message["samples_a_step"] * cohort
        return {"samples_a_step": total / (before + cohort), "participations": before + cohort}


PROVIDES = AdaBest
