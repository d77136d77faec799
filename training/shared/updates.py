"""What a server's step is made of: how far the clients went from the model that they were sent."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...checkpoints import Weights


def updates(start: Weights, clients: Weights) -> Iterator[np.ndarray]:
    """Δ_i = θ_i − w of each client in turn, [P] in float64; the array is reused, so a cohort costs O(P).

    >>> from fedscope.checkpoints import Layout
    >>> from fedscope.checkpoints.weights import Entry
    >>> layout = Layout((Entry("w", (2,), "float32", "parameter"),))
    >>> start, clients = np.float32([1, 1]), np.float32([[1, 2], [3, 1]])
    >>> [update.tolist() for update in updates(Weights(layout, start, {}), Weights(layout, clients, {}))]
    [[0.0, 1.0], [2.0, 0.0]]
    """
    update = np.empty(start.parameters.shape, np.float64)
    for row in clients.parameters:
        np.subtract(row, start.parameters, out=update, dtype=np.float64)
        yield update


def weighted_update(start: Weights, clients: Weights, weights: np.ndarray) -> np.ndarray:
    """Σ_i weights_i Δ_i, [P] in float64: with p the mean update Δ̄.

    Differences are taken before they are added up, so that clients who have not moved move nothing, whatever the
    weights add up to.
    """
    total = np.zeros(start.parameters.shape, np.float64)
    for weight, update in zip(weights, updates(start, clients), strict=True):
        update *= weight
        total += update
    return total


def mean_update(start: Weights, clients: Weights) -> np.ndarray:
    """mean_S Δ_i, the unweighted mean update, [P] in float64."""
    return weighted_update(start, clients, np.full(len(clients), 1 / len(clients)))
