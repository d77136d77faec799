"""What lies between all pairs of models as a heat map. Drawing only."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from ..drawing.paper import CHARACTER, GREY, SMALL, measured_on, new_figure, paper_style, statistics_of
from .result import connectivity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .result import Line

#: colour-blind safe, white at 0
DIVERGING = "PuOr_r"

# Inches. Room left of the cells and below them, for the bar with its numbers, and a line of small type.
LEFT, BOTTOM, RIGHT, BAR, GAP, LINE, EDGE = 0.4, 0.42, 0.62, 0.09, 0.07, 0.135, 0.05


def draw_connectivity(line: Line, width: float = 3.5, title: str | None = None) -> Figure:
    """The excess in the middle as a heat map, a row and a column a model; ``width`` in inches.

    Violet cells: the mean of the two is better than they are on average; orange ones: a barrier.
    """
    from matplotlib.ticker import MaxNLocator

    labels, _, middles = connectivity(line)
    names = [label.rpartition("client-")[2] or label for label in labels]
    clients = all("client-" in label for label in labels)
    with paper_style(width):
        left = max(LEFT, max(map(len, names)) * CHARACTER + 0.24)
        side = width - left - GAP - BAR - RIGHT
        policy = statistics_of(line.attrs, str(line.attrs.get("normalization_policy", "none")))
        data = measured_on(line.attrs) if "data" in line.attrs else ""
        remark = "; ".join(words for words in (data, policy) if words)
        said = wrap(remark, int((width - 0.1) / CHARACTER), break_on_hyphens=False)
        top = EDGE + (0.2 if title else 0.04)
        height = top + side + BOTTOM + LINE * len(said) + EDGE
        figure = new_figure(width, height)
        if title:
            figure.text(0.5, 1 - (EDGE + 0.08) / height, title, ha="center", va="center")
        down = 1 - (top + side) / height
        axes = figure.add_axes((left / width, down, side / width, side / height))
        axes.set_facecolor("#d9d9d9")  # what is no pair, or no number
        finite = np.abs(middles[np.isfinite(middles)])
        greatest = float(finite.max()) if finite.size and finite.max() > 0 else 1.0
        shown = np.ma.masked_invalid(middles)
        image = axes.imshow(shown, cmap=DIVERGING, vmin=-greatest, vmax=greatest, interpolation="nearest")
        for spine in axes.spines.values():
            spine.set_visible(True)
        axes.tick_params(length=0, pad=2)
        size = min(SMALL, 72 * 0.85 * side / len(names))
        upright = (max(map(len, names)) + 0.8) * CHARACTER > side / len(names)
        axes.set_xticks(range(len(names)), names, fontsize=size, rotation=90 if upright else 0)
        axes.set_yticks(range(len(names)), names, fontsize=size)
        if clients:
            axes.set_xlabel("client")
            axes.set_ylabel("client")
        bar = figure.colorbar(
            image, cax=figure.add_axes(((left + side + GAP) / width, down, BAR / width, side / height))
        )
        nats = " (nats)" if line.attrs.get("loss_units", "nat") == "nat" else ""
        bar.set_label(f"excess loss in the middle{nats}", labelpad=3)
        bar.locator = MaxNLocator(nbins=5)
        bar.update_ticks()
        bar.outline.set_linewidth(0.6)
        for i, words in enumerate(reversed(said)):
            up = (EDGE + LINE * (i + 0.5)) / height
            figure.text(0.1 / width, up, words, color=GREY, fontsize=SMALL, va="center")
    return figure
