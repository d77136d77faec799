"""The spread about a mean: a shaded band, or bars. Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def mean_band(
    axes: Axes, x: Sequence[float] | np.ndarray, mean: np.ndarray, spread: np.ndarray, color: str, alpha: float = 0.16
) -> None:
    """Shade ``spread`` to either side of a mean, behind its line; nothing where the spread is not finite."""
    axes.fill_between(x, mean - spread, mean + spread, color=color, alpha=alpha, linewidth=0, zorder=1)


def mean_bars(
    axes: Axes, x: Sequence[float] | np.ndarray, mean: np.ndarray, spread: np.ndarray, color: str, **look: Any
) -> None:
    """Draw ``spread`` to either side of a mean as bars without points; ``look`` is as of ``errorbar``."""
    axes.errorbar(x, mean, yerr=spread, fmt="none", ecolor=color, elinewidth=0.8, **look)
