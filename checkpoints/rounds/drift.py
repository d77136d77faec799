"""Drift of a round's clients: numbers that a run's table keeps, so that they are seen as it goes on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..models.weights import Weights, taking_part

#: numbers of all clients at a time: 256 KiB of float64 stay near a core (measured: 1.4 times as fast as 8 MiB)
NUMBERS = 2**15
#: columns of ``metrics.csv``
DRIFT = tuple(
    f"drift_{name}" for name in ("norm", "mean_norm", "kept", "cosine", "to_mean", "conflict", "distance", "step")
)

Block = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any] | None]


def drift_of(start: Weights, clients: Weights, p: npt.NDArray[np.float64], global_: Weights | None) -> dict[str, float]:
    """Measure a round's drift, with updates Δ_i = w_i − start [P], weights p and Δ̄ = Σ p_i Δ_i.

    ================ ====================================================================
    column           what it is; NaN where it does not exist
    ================ ====================================================================
    drift_norm       Σ p_i ‖Δ_i‖
    drift_mean_norm  ‖Δ̄‖
    drift_kept       ‖Δ̄‖ / Σ p_i ‖Δ_i‖: 1 where all go the same way, near 0 where drifts cancel
    drift_cosine     the mean of cos(Δ_i, Δ_j) over pairs of clients that have moved
    drift_to_mean    the mean of cos(Δ_i, Δ̄) over clients that have moved
    drift_conflict   the share of parameters that some client raises and another one lowers, of those that any moves
    drift_distance   ‖w⁺ − start‖, how far the server's model has gone in the round
    drift_step       ‖w⁺ − start‖ / ‖Δ̄‖, the server's step in lengths of the mean update: 1 for FMA
    ================ ====================================================================

    Norms, ``kept`` and ``cosine`` are those that ``fedscope updates`` gives later, ``conflict`` that of ``predictors``.
    A client of weight 0 has no part in sums with p, even where it diverged; one that diverged leaves no mean of
    cosines. All clients are passed over once, in blocks of columns, in float64.

    Args:
        global_: w⁺; None where there is none.

    >>> from fedscope.checkpoints import Layout, TensorEntry
    >>> layout = Layout((TensorEntry("w", (2,), "float32", "parameter"),))
    >>> start, end = (Weights(layout, np.float32(w), {}) for w in ([0, 0], [0.5, 1]))
    >>> clients = Weights(layout, np.float32([[1, 0], [0, 2]]), {})
    >>> found = drift_of(start, clients, np.array([0.5, 0.5]), end)
    >>> found["drift_norm"], found["drift_cosine"], found["drift_step"], found["drift_conflict"]
    (1.5, 0.0, 1.0, 0.0)
    """
    size = start.layout.size
    columns = max(1, NUMBERS // max(1, len(clients)))

    def blocks() -> Iterator[Block]:
        for at in range(0, size, columns):
            where = slice(at, min(at + columns, size))
            end = None if global_ is None else np.asarray(global_.parameters[where])
            yield np.asarray(start.parameters[where]), np.asarray(clients.parameters[:, where]), end

    return drift_in(blocks(), np.asarray(p, np.float64))


def drift_in(blocks: Iterable[Block], p: npt.NDArray[np.float64]) -> dict[str, float]:
    """Measure the same of blocks of columns: ``start`` [n], clients [C, n] and ``global`` [n] or None."""
    clients = len(p)
    products, to_mean, square, far = np.zeros((clients, clients)), np.zeros(clients), 0.0, 0.0
    moved = torn = 0
    has_end = False
    part = taking_part(p)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # of clients that diverged
        for start, rows, end in blocks:
            delta = np.subtract(rows, start, dtype=np.float64)
            mean = p[part] @ delta[part]
            products += delta @ delta.T
            to_mean += delta @ mean
            square += float(mean @ mean)
            # without a weight a client that diverged counts where it is finite, as it does for predictors
            some = not isinstance(part, slice) and not np.isfinite(delta).all()
            signed = np.where(np.isfinite(delta), delta, np.nan) if some else delta
            least, greatest = (
                (np.fmin if some else np.minimum).reduce(signed),
                (np.fmax if some else np.maximum).reduce(signed),
            )
            moved += int(np.count_nonzero((least != 0) | (greatest != 0)))
            torn += int(np.count_nonzero((least < 0) & (greatest > 0)))
            if end is not None:
                has_end = True
                step = np.subtract(end, start, dtype=np.float64)
                far += float(step @ step)
        norms = np.sqrt(np.diagonal(products))
        length, whole = math.sqrt(square), float(p[part] @ norms[part])
        there = norms != 0
        cosines = products[np.ix_(there, there)] / np.outer(norms[there], norms[there])
        pairs = cosines[np.triu_indices(len(cosines), 1)]
        along = to_mean[there] / (norms[there] * length)
    finite = math.isfinite(whole)
    distance = math.sqrt(far) if has_end else math.nan
    return {
        "drift_norm": whole,
        "drift_mean_norm": length,
        "drift_kept": length / whole if whole else math.nan,
        "drift_cosine": float(pairs.mean()) if len(pairs) else math.nan,
        "drift_to_mean": float(along.mean()) if len(along) and length else math.nan,
        "drift_conflict": torn / moved if moved and finite else math.nan,
        "drift_distance": distance,
        "drift_step": distance / length if length else math.nan,
    }
