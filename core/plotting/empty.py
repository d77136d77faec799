"""What an empty panel says in place of a curve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .style import GREY, SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def is_empty(axes: Axes) -> bool:
    """True if no line of a panel has a finite value; one whose label begins with "_" counts as none."""
    lines = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
    # of a masked array without a number "any" is masked, which is False
    return not any(np.isfinite(np.ma.asarray(line.get_ydata(orig=True), float)).any() for line in lines)


def say_empty(axes: Axes, words: str, *, numbers: bool = True) -> None:
    """Write into a panel that has nothing to show why that is.

    Args:
        numbers: whether its axis of values keeps its numbers, which are of nothing unless it shares them.
    """
    axes.text(0.5, 0.6, words, color=GREY, size=SMALL, ha="center", va="center", transform=axes.transAxes)
    if not numbers:
        axes.set_yticks([])
