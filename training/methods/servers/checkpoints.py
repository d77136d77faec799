"""Weights over checkpoints of one training, the newest counting most: uniform ones as in Izmailov, Podoprikhin,
Garipov, Vetrov and Wilson, "Averaging Weights Leads to Wider Optima and Better Generalization", UAI 2018; the falling
shapes are those of learning rates, 1 − √ as in Hägele et al., "Scaling Laws and Compute-Optimal Training Beyond Fixed
Training Durations", NeurIPS 2024."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ....checkpoints import Weights, weighted_mean
from ...settings.settings import setting
from ..base import Cohort, MethodInfo, Served, ServerMethod, State
from ..shared.checkpoint_weights import checkpoint_weights

if TYPE_CHECKING:
    from ...config.config import Config

#: of the clients of a federation
NO_CHECKPOINTS = (
    "--server checkpoints takes clients for checkpoints of one training, the one with the greatest id for the newest, "
    "and weighs those of a federation by their numbers"
)
INSTEAD = "give --server fma, or --set server.shape=uniform without server.last"


@dataclass(frozen=True)
class Checkpoints(ServerMethod):
    """The mean of the last checkpoints, weighted by their age.

    Clients are checkpoints, the one with the greatest id the newest, as ``import`` numbers the files of a folder. Of
    the last n of those with p_k > 0, with the weights g_k of their age
    (:func:`~fedscope.training.methods.shared.checkpoint_weights.checkpoint_weights`)::

        w⁺ = Σ g_k p_k θ_k / Σ g_k p_k

    Buffers are averaged alike. ``shape = "uniform"`` is FMA. ``start`` is not used.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "Weighted checkpoints",
        "Izmailov et al., SWA, UAI 2018; Hägele et al., 1 − √ decay, NeurIPS 2024",
        "w⁺ = Σ g_k p_k θ_k / Σ g_k p_k, g falling with the age of a checkpoint",
    )
    forgets_start: ClassVar[bool] = True
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fma": {"shape": "uniform"}}

    shape: Literal["uniform", "linear", "cosine", "minus_sqrt", "ema"] = setting(
        "linear", "how weights fall with the age of a checkpoint"
    )
    last: int | None = setting(None, "how many of the newest are averaged; default: all", least=1)
    beta: float = setting(
        0.9, "β of ema: how much an older one counts less than the next", above=0, below=1, only_with=("shape", "ema")
    )

    def doubts(self, config: Config) -> Iterator[str]:
        """Yield that the clients of a federation are no checkpoints."""
        if is_in_time(self):
            yield f"{NO_CHECKPOINTS}; {INSTEAD}"

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        there = np.flatnonzero(cohort.p)
        newest = there[np.argsort(cohort.client_ids[there])][-(self.last or len(there)) :]
        p = np.zeros(len(clients))
        p[newest] = checkpoint_weights(self.shape, len(newest), self.beta) * cohort.p[newest]
        p /= p.sum()
        return Served(weighted_mean(clients, p).parameters, p=p)


def is_in_time(server: object) -> bool:
    """Check whether a server takes the order of clients as time.

    >>> is_in_time(Checkpoints()), is_in_time(Checkpoints(shape="uniform")), is_in_time(Checkpoints("uniform", last=3))
    (True, False, True)
    """
    return isinstance(server, Checkpoints) and (server.shape != "uniform" or server.last is not None)


PROVIDES = Checkpoints
