"""Models that are combinations of a few."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...checkpoints import Weights
from .normalization import Normalization
from .replica import Replica


@dataclass(frozen=True, eq=False)
class Points:
    """Point i is Σ_j c_j(i) w_j: of a line two models, of a plane three, or one and two directions.

    Attributes:
        bases: w_j, [P] each; directions are float64 and have no buffers.
        coefficients: c(i), one number a base.
        normalization: where the statistics of a combination come from.
    """

    bases: Sequence[Weights]
    coefficients: Callable[[int], Sequence[float]]
    normalization: Normalization

    def form(self, i: int, replica: Replica) -> None:
        """Write point i into a worker's replica."""
        replica.combine(self.bases, self.coefficients(i), buffers=self.normalization.policy == "interpolate")
        self._re_estimate(replica)

    def load(self, model: Weights, replica: Replica) -> None:
        """Write a model itself, with statistics of the same policy: what the surface has where the model lies on it."""
        replica.load(model.parameters, (model if self.normalization.leaves_own else self.bases[0]).buffers)
        self._re_estimate(replica)

    def _re_estimate(self, replica: Replica) -> None:
        if self.normalization.policy == "re-estimate" and self.normalization.x is not None:
            replica.re_estimate(self.normalization.x)
