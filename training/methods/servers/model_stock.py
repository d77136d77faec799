"""Model Stock: Jang, Yun and Han, "Model Stock: All We Need Is Just a Few Fine-Tuned Models", ECCV 2024."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ....checkpoints import Weights
from ..base import Cohort, MethodInfo, Served, ServerMethod, State
from ..shared.server_steps import updates


@dataclass(frozen=True)
class ModelStock(ServerMethod):
    """Each parameter tensor lies between the base and the mean, the nearer to the base the less the models agree.

    Of a tensor with τ_i = θ_i − w [M], w being ``start``, and cos the mean of the cosines of all pairs of τ_i::

        t  = C cos / (1 + (C − 1) cos)
        w⁺ = t (1/C) Σ θ_i + (1 − t) w

    Models count alike, whatever p. Chosen: t is 0 where cos is below 0, for the step would lead away from the models;
    a model that has not moved has the cosine 0 with all others; one model alone is taken as it is.
    """

    about: ClassVar[MethodInfo] = MethodInfo(
        "Model Stock",
        "Jang et al., Model Stock, ECCV 2024",
        "w⁺ = w + t mean τ_i by tensor, t = C cos / (1 + (C − 1) cos)",
    )
    reads: ClassVar[Literal["columns", "layers", "rows"]] = "rows"
    unweighted: ClassVar[bool] = True

    def step(self, state: State, start: Weights, clients: Weights, cohort: Cohort) -> Served:
        slices, count = list(start.layout.slices.values()), len(clients)
        mean, units = np.zeros((2, start.layout.size))
        moved = np.zeros(len(slices))
        for update in updates(start, clients):
            mean += update / count
            for k, where in enumerate(slices):
                length = np.linalg.norm(update[where])
                if length > 0 or np.isnan(length):
                    units[where] += update[where] / length
                    moved[k] += 1
        for where, those in zip(slices, moved, strict=True):
            mean[where] *= ratio(float(units[where] @ units[where]), those, count)
        return Served((start.parameters + mean).astype(start.layout.dtype))


def ratio(summed: float, moved: float, count: int) -> float:
    """Return t.

    Args:
        summed: ‖Σ u_i‖² of the unit task vectors u_i; moved: how many there are; count: C.

    >>> ratio(4.0, 2, 2), ratio(2.0, 2, 2)  # one direction, a right angle
    (1.0, 0.0)
    """
    if count == 1:
        return 1.0
    cosine = (summed - moved) / (count * (count - 1))
    if cosine <= 0:
        return 0.0
    return count * cosine / (1 + (count - 1) * cosine)


PROVIDES = ModelStock
