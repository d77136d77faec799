"""The spread about a mean: a shaded band, or bars. Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def mean_band(
    axes: Axes,
    x: Sequence[float] | np.ndarray,
    mean: np.ndarray,
    spread: np.ndarray,
    color: str,
    alpha: float = 0.16,
    *,
    log: bool = False,
) -> None:
    """Shade ``spread`` to either side of a mean, behind its line; nothing where the spread is not finite.

    Args:
        log: for a logarithmic axis: see :func:`below`.
    """
    axes.fill_between(x, below(mean, spread, log=log), mean + spread, color=color, alpha=alpha, linewidth=0, zorder=1)


def below(mean: np.ndarray, spread: np.ndarray, *, log: bool) -> np.ndarray:
    """Lower edge of a band: mean − spread, or, for a logarithmic axis, the mean divided by 1 + spread / mean.

    The upper edge is the mean times that factor, so that such a band is as wide below its line as above, and never
    falls to 0. Of a small spread both are the same.

    >>> below(np.array([2.0, 2.0]), np.array([0.02, 6.0]), log=True).round(3).tolist()
    [1.98, 0.5]
    """
    positive = mean > 0 if log else np.zeros(np.shape(mean), bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(positive, mean / (1 + spread / np.where(positive, mean, 1.0)), mean - spread)


def mean_bars(
    axes: Axes, x: Sequence[float] | np.ndarray, mean: np.ndarray, spread: np.ndarray, color: str, **look: Any
) -> None:
    """Draw ``spread`` to either side of a mean as bars without points; ``look`` is as of ``errorbar``."""
    axes.errorbar(x, mean, yerr=spread, fmt="none", ecolor=color, elinewidth=0.8, **look)
