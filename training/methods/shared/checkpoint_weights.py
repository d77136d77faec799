"""Weights of the last checkpoints of one training, by their age."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

#: how much a checkpoint counts, by its age
Shape = Literal["uniform", "linear", "cosine", "minus_sqrt", "ema"]
SHAPES: tuple[Shape, ...] = get_args(Shape)


def checkpoint_weights(shape: Shape, count: int, beta: float = 0.9) -> np.ndarray:
    """Return the weights of ``count`` checkpoints, the oldest first, [n], that sum to 1.

    In proportion to g(a), where the newest has the age a = 0, the next a = 1/n, and so on::

        uniform     1
        linear      1 − a
        cosine      (1 + cos πa)/2
        minus_sqrt  1 − √a
        ema         β^(n a)

    The first of them is the mean of a window (WIMA, SWA); the last, over all checkpoints, an exponential moving
    average. In a mean of checkpoints each step of the training counts with the sum of the weights of all checkpoints
    after it: uniform weights stand for a rate that falls linearly, all others for one that falls later.

    >>> [checkpoint_weights(shape, 3).round(3).tolist() for shape in ("uniform", "linear", "minus_sqrt")]
    [[0.333, 0.333, 0.333], [0.167, 0.333, 0.5], [0.114, 0.263, 0.623]]
    """
    age = np.arange(count)[::-1] / count
    weights = {
        "uniform": np.ones(count),
        "linear": 1 - age,
        "cosine": (1 + np.cos(np.pi * age)) / 2,
        "minus_sqrt": 1 - np.sqrt(age),
        "ema": np.power(beta, np.arange(count)[::-1], dtype=np.float64),
    }[shape]
    return np.asarray(weights / weights.sum(), np.float64)
