"""Draws of a whole cohort: what the expectation over client models is estimated from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError, Weights

# p is compared with 1 because every identity of the decomposition needs sum_k p_k = 1: y - WENS = sum_k p_k (y - f_k).
P_TOLERANCE = 1e-9


@dataclass(frozen=True)
class CohortDraws:
    """R draws of the K client models of one round, `(w_1^r .. w_K^r)` for r = 1..R; draw 1 is the recorded one.

    Fields: `round`; `client_ids` [K]; `p` [K] float64, the aggregation weights, sum 1; `draws`, R matrices `Weights`
    [K, P] in the order of `client_ids`; `client_samples` [K]; `source`, where the draws come from as it was asked for
    (`"local:4"`, `"rounds:5"`, `"runs"`), written into every result and figure; `independent`, whether the R draws are
    independent of each other: only then do unbiased estimates and standard errors over draws exist; `trained` [K], the
    round in which each model was trained, where that is not `round` for all: an average over rounds has the clients of
    several, and then a client may occur more than once.

    Raises FedscopeError for R = 1 (no variance and no covariance: refused, never reported as 0), for rows that do not
    fit the clients, for layouts that differ between draws, and for p that is negative or does not sum to 1.
    """

    round: int
    client_ids: npt.NDArray[np.int64]
    p: npt.NDArray[np.float64]
    draws: Sequence[Weights]
    client_samples: npt.NDArray[np.int64]
    source: str
    independent: bool
    trained: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.count < 2:
            raise FedscopeError(
                f"R = {self.count} gives no variance and no covariance (round {self.round}, draws {self.source}): take "
                "two draws of the cohort or more, for example --draws local:4"
            )
        cohort = len(self.client_ids)
        for name, values in (("p", self.p), ("client_samples", self.client_samples), ("trained", self.trained)):
            if values is not None and len(values) != cohort:
                raise FedscopeError(
                    f"round {self.round} has {cohort} client_ids, but {name} has {len(values)} values: "
                    "give each client one"
                )
        if cohort == 0 or not np.all(self.p >= 0) or abs(float(np.sum(self.p)) - 1.0) > P_TOLERANCE:
            raise FedscopeError(
                f"the weights p of round {self.round} sum to {float(np.sum(self.p))!r} over {cohort} clients: they "
                "must be non-negative and sum to 1"
            )
        for number, draw in enumerate(self.draws, start=1):
            if draw.parameters.ndim != 2 or draw.parameters.shape[0] != cohort:
                raise FedscopeError(
                    f"draw {number} of round {self.round} has shape {list(draw.parameters.shape)}, but there are "
                    f"{cohort} clients: a draw is the matrix [K, P] of all of them"
                )
            difference = self.draws[0].layout.difference(draw.layout)
            if difference is not None:
                raise FedscopeError(f"draw {number} of round {self.round} has another layout than draw 1: {difference}")

    @property
    def count(self) -> int:
        """R, the number of draws."""
        return len(self.draws)
