"""TIES: Yadav, Tam, Choshen, Raffel and Bansal, "TIES-Merging: Resolving Interference When Merging Models", NeurIPS
2023."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ....checkpoints import Weights
from ...settings.settings import setting
from ..base import Cohort, MethodInfo, Served, ServerMethod, State
from ..shared.server_steps import updates


@dataclass(frozen=True)
class TIES(ServerMethod):
    """Task vectors are trimmed, a sign is elected, and only those with that sign are averaged.

    With τ_i = θ_i − w [P], w being ``start``::

        trim:   τ_i is 0 but for its k = ⌊density P⌋ entries of the greatest size (at least one)
        elect:  γ = sign Σ p_i τ_i, elementwise
        mean:   τ = Σ p_i τ_i / Σ p_i, over those i with sign τ_i = γ
        w⁺ = w + λ τ

    Chosen: entries as large as the k-th stay, too; where Σ p_i τ_i is 0 no sign is elected and w stays. ``over`` =
    ``tensor`` trims each parameter tensor by itself, as mergekit does, not the whole vector as in the paper.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "TIES",
        "Yadav et al., TIES-Merging, NeurIPS 2023",
        "w⁺ = w + λ Σ p_i τ_i / Σ p_i over the trimmed τ_i whose sign is that of Σ p_i τ_i",
    )
    reads: ClassVar[Literal["columns", "layers", "rows"]] = "rows"

    density: float = setting(0.2, "share of a task vector's entries that stays", above=0, most=1)
    scale: float = setting(1.0, "λ: how much of the merged task vector is added", above=0)
    over: Literal["model", "tensor"] = setting("model", "what the largest entries are those of")

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        whole = slice(0, start.layout.size)
        parts = [whole] if self.over == "model" else list(start.layout.slices.values())
        # of each sign: Σ p_i τ_i and Σ p_i
        total, weight = np.zeros((2, 2, start.layout.size))
        for p, update in zip(cohort.p, self._trimmed(start, clients, parts), strict=True):
            if p == 0:  # has no part, even where it diverged
                continue
            for sign, own in enumerate((update > 0, update < 0)):
                total[sign][own] += p * update[own]
                weight[sign][own] += p
            total[:, np.isnan(update)] = np.nan  # has no sign, and is not to be lost
        summed = total.sum(axis=0)
        elected = (summed < 0).astype(np.intp)[None]
        chosen, of = (np.take_along_axis(values, elected, axis=0)[0] for values in (total, weight))
        mean = np.divide(chosen, of, out=np.zeros_like(chosen), where=(summed != 0) & (of > 0))
        mean[np.isnan(summed)] = np.nan
        return Served((start.parameters + self.scale * mean).astype(start.layout.dtype))

    def _trimmed(self, start: Weights, clients: Weights, parts: list[slice]) -> Iterator[np.ndarray]:
        for update in updates(start, clients):
            for where in parts:
                trim(update[where], self.density)
            yield update


def trim(update: np.ndarray, density: float) -> None:
    """Set all but the largest entries of a vector to 0, in place.

    >>> update = np.array([0.5, -3.0, 1.0, -0.1])
    >>> trim(update, 0.5)
    >>> update.tolist()
    [0.0, -3.0, 1.0, 0.0]
    """
    kept = max(1, int(density * update.size + 1e-9))  # a third of 0.3 · 100 is not to be 29
    if kept >= update.size:
        return
    size = np.abs(update)
    size.partition(update.size - kept)
    update[np.abs(update) < size[update.size - kept]] = 0


PROVIDES = TIES
