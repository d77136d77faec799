"""Distances of a cohort's clients from their average, and clients that diverged: their models are not finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...checkpoints import Weights
from ...checkpoints.io.errors import list_few, spans

if TYPE_CHECKING:
    from .cohort_draws import CohortDraws


def distances(cohort: CohortDraws, fma: Sequence[Weights]) -> npt.NDArray[np.float64]:
    """||w_k^r - w_FMA^r|| over the parameters [K, R]; a row at a time, so that float64 costs one model and not the
    cohort."""

    def to_mean(clients: Weights, mean: Weights) -> npt.NDArray[np.float64]:
        centre = mean.parameters.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # of clients that diverged, whose distance is not finite
            return np.array([np.linalg.norm(row.astype(np.float64) - centre) for row in clients.parameters])

    return np.stack([to_mean(draw, mean) for draw, mean in zip(cohort.draws, fma, strict=True)], axis=1)


def diverged_rows(clients: Weights) -> npt.NDArray[np.bool_]:
    """Find the clients [C, P] that have a NaN or an infinity in a parameter or a buffer, [C].

    Row by row, so that no mask of all parameters is made.

    >>> from fedscope.checkpoints import Layout
    >>> from torch import nn
    >>> values = np.array([[1, 2], [np.nan, 0], [3, -np.inf]], np.float32)
    >>> diverged_rows(Weights(Layout.of(nn.Linear(2, 1, bias=False)), values, {})).tolist()
    [False, True, True]
    """
    held = (clients.parameters, *clients.buffers.values())
    rows = range(len(clients.parameters))
    return np.array([not all(np.isfinite(values[k]).all() for values in held) for k in rows], np.bool_)


def diverged_words(ids: Sequence[int], round_: int) -> str:
    """Describe the clients of one round that diverged, in words, by their ids; "" where there is none.

    >>> diverged_words([2], 5), diverged_words([], 5)
    ('the model of client 2 in round 5 is not finite', '')
    >>> diverged_words([2, 7], 5)
    'the models of clients 2, 7 in round 5 are not finite'
    """
    if not ids:
        return ""
    models, clients, are = ("models", "clients", "are") if len(ids) > 1 else ("model", "client", "is")
    return f"the {models} of {clients} {list_few(ids)} in round {round_} {are} not finite"


def lost_rounds(numbers: Sequence[int]) -> str:
    """Name the rounds that have no finite number and count as none in which something holds; "" where there is none.

    >>> lost_rounds([2]), lost_rounds([2, 3, 7]), lost_rounds([])
    ('round 2 is not finite', 'rounds 2-3, 7 are not finite', '')
    """
    if not numbers:
        return ""
    return f"round{'s' if len(numbers) > 1 else ''} {spans(numbers)} {'are' if len(numbers) > 1 else 'is'} not finite"
