"""The points of a line, and the barrier on it."""

from __future__ import annotations

import numpy as np

from ...checkpoints import FedscopeError


def betas_on(span: tuple[float, float], points: int) -> np.ndarray:
    """``points`` equally spaced β on ``span``, 0 and 1 exactly among them where the span holds them.

    >>> betas_on((-0.5, 1.5), 5).tolist()
    [-0.5, 0.0, 0.5, 1.0, 1.5]
    >>> betas_on((0.5, 1.25), 2).tolist()
    [0.5, 1.0, 1.25]

    Raises:
        FedscopeError: fewer than two points, or a span that does not rise.
    """
    low, high = float(span[0]), float(span[1])
    if points < 2 or not low < high:
        raise FedscopeError(
            f"{points} points from {low:g} to {high:g} make no line; give at least 2, the smaller end first"
        )
    betas = np.linspace(low, high, points)
    step = (high - low) / (points - 1)
    for end in (0.0, 1.0):
        nearest = int(np.argmin(np.abs(betas - end)))
        if abs(betas[nearest] - end) < 1e-9 * step:
            betas[nearest] = end
        elif low < end < high:
            betas = np.sort(np.append(betas, end))
    return betas


def barrier_of(beta: np.ndarray, loss: np.ndarray) -> tuple[float, float]:
    """The greatest excess of ``loss`` [beta] over the straight line between its values at β = 0 and 1, and its β.

    >>> import numpy as np
    >>> barrier_of(np.array([0.0, 0.5, 1.0]), np.array([1.0, 5.0, 3.0]))
    (3.0, 0.5)
    """
    inside = (beta >= 0) & (beta <= 1)
    beta, loss = beta[inside], loss[inside]
    at_0, at_1 = loss[beta == 0][0], loss[beta == 1][0]
    with np.errstate(invalid="ignore"):
        excess = loss - (beta * at_1 + (1 - beta) * at_0)
        top = int(np.argmax(excess))
    return float(excess[top]), float(beta[top])
