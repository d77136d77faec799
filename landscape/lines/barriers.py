"""The barrier of a curve, and what is said of one."""

from __future__ import annotations

import numpy as np

#: what float64 makes of a sum, as a share of it
ROUNDING = 4 * float(np.finfo(np.float64).eps)


def barrier_of(beta: np.ndarray, loss: np.ndarray) -> tuple[float, float]:
    """Compute the greatest excess of ``loss`` [beta] over the straight line between its values at β = 0 and 1, and its
    β: both NaN where an end or a point between is NaN, and where there is no point between.

    >>> import numpy as np
    >>> barrier_of(np.array([0.0, 0.5, 1.0]), np.array([1.0, 5.0, 3.0]))
    (3.0, 0.5)
    >>> barrier_of(np.array([0.0, 0.3, 1.0]), np.array([2.3, 2.3 + 4.4e-16, 2.3]))
    (0.0, 0.0)
    >>> barrier_of(np.array([0.0, 1.0, 1.5]), np.array([1.0, 3.0, 9.0]))
    (nan, nan)
    """
    inside = (beta >= 0) & (beta <= 1)
    beta, loss = beta[inside], loss[inside]
    if len(beta) < 3:
        return float("nan"), float("nan")
    at_0, at_1 = loss[beta == 0][0], loss[beta == 1][0]
    with np.errstate(invalid="ignore"):
        excess = loss - (beta * at_1 + (1 - beta) * at_0)
        if np.isfinite(ends := max(abs(at_0), abs(at_1))):
            excess[np.abs(excess) <= ROUNDING * ends] = 0.0  # of a flat line
        top = int(np.argmax(excess))
    height = float(excess[top])
    return height, float(beta[top]) if height == height else float("nan")


def height_words(barrier: float, beta: float, error: str = "") -> str:
    """Say how high a barrier is and where.

    >>> height_words(0.25, 0.5, " ± 0.01"), height_words(0.0, 0.0), height_words(float("nan"), float("nan"))
    ('0.25 ± 0.01 at beta = 0.50', 'none', 'unknown')
    >>> height_words(float("inf"), 0.5)
    'infinite at beta = 0.50'
    """
    if np.isnan(barrier):
        return "unknown"
    if barrier <= 0:
        return "none"
    height = f"{barrier:.3g}{error}" if np.isfinite(barrier) else "infinite"
    return f"{height} at beta = {beta:.2f}"
