"""How far the clients of a cohort lie from their average."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...checkpoints import Weights
from .draws import CohortDraws


def distances(cohort: CohortDraws, fma: Sequence[Weights]) -> npt.NDArray[np.float64]:
    """||w_k^r - w_FMA^r|| over the parameters [K, R]; a row at a time, so that float64 costs one model and not the
    cohort."""
    return np.stack([_to_mean(draw, mean) for draw, mean in zip(cohort.draws, fma, strict=True)], axis=1)


def _to_mean(clients: Weights, mean: Weights) -> npt.NDArray[np.float64]:
    centre = mean.parameters.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # of clients that diverged, whose distance is not finite
        return np.array([np.linalg.norm(row.astype(np.float64) - centre) for row in clients.parameters])
