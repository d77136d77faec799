"""DARE: Yu, Yu, Yu, Huang and Li, "Language Models are Super Mario: Absorbing Abilities from Homologous Models as a
Free Lunch", ICML 2024."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ....checkpoints import Weights
from ...settings.settings import setting
from ..base import Cohort, MethodInfo, Served, ServerMethod, State
from ..shared.server_steps import updates


@dataclass(frozen=True)
class DARE(ServerMethod):
    """Entries of the task vectors are dropped at random, and those that stay are scaled up.

    With τ_i = θ_i − w [P], w being ``start``, and m_i [P] of independent zeros (with the share q) and ones::

        w⁺ = w + λ Σ p_i m_i τ_i / (1 − q)

    m_i depends on the seed, the round and the client's id alone, so that it is the same again, in whatever order the
    clients come. Its mean over seeds is task arithmetic's model; q = 0 with λ = 1 is FMA. The paper names no one q;
    0.5 is chosen.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "DARE",
        "Yu et al., Language Models are Super Mario, ICML 2024",
        "w⁺ = w + λ Σ p_i m_i τ_i / (1 − q), m_i random zeros with the share q",
    )
    reads: ClassVar[Literal["columns", "layers", "rows"]] = "rows"
    limits: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fma": {"drop": 0.0}}

    drop: float = setting(0.5, "q: share of entries that is dropped", least=0, below=1)
    scale: float = setting(1.0, "λ: how much of the mean task vector is added", above=0)
    seed: int = setting(0, "seed of what is dropped", least=0)

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        total = np.zeros(start.layout.size)
        for p, client, update in zip(cohort.p, cohort.client_ids, updates(start, clients), strict=True):
            if p == 0:  # has no part, even where it diverged
                continue
            update[self.dropped(cohort.round, int(client), update.size) & ~np.isnan(update)] = 0
            update *= p / (1 - self.drop)
            total += update
        return Served((start.parameters + self.scale * total).astype(start.layout.dtype))

    def dropped(self, round: int, client: int, size: int) -> np.ndarray:
        """Return which entries of a client's task vector are dropped, bool [P]."""
        draw = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, round, client])))
        return np.asarray(draw.random(size, dtype=np.float32) < self.drop)


PROVIDES = DARE
