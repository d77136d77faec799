"""Errors of the mean of factors by layer and round, and of all means over rounds. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...plotting.color_bar import color_bar
from ...plotting.drawing import drawing
from ...plotting.heatmaps import heat_map, name_cells, name_rows, room_for
from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.style import CHARACTER, COLOURS, SMALL, SURFACE, paper_style, shorten_label
from ...plotting.ticks import from_zero
from .means import MEANS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import AdapterMeans

# Inches: the gap before the colour bar, the bar, its numbers and label, the axis' name, a row, all rows at most and at
# least, the curves, and the room between both.
GAP, BAR, NUMBERS, LABEL, ROW, ROWS, FEW, CURVES, BETWEEN = 0.07, 0.09, 0.5, 0.16, 0.17, 2.6, 0.5, 1.1, 0.14
#: letters of a layer's name, at most
LETTERS = 24
LINES = {
    "factors": ("factors", "-", "o"),
    "products": ("products, rank kept", "--", "s"),
    "frozen_a": ("B, A kept", ":", "D"),
}


@drawing
def draw_means(result: AdapterMeans, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw the error of the mean of factors, a row a layer and a column a round, and above it all means over rounds
    where there are several; ``width`` in inches."""
    names = [shorten_label(name, LETTERS) for name in result.layers]
    rounds = [str(number) for number in result.rounds]
    curves = CURVES if len(rounds) > 1 else 0.0
    with paper_style(width):
        left = max(max(map(len, names)) * CHARACTER + 0.08, 0.45)
        wide = width - left - GAP - BAR - NUMBERS
        high = max(FEW, min(ROW * len(names), ROWS))
        said = wrap_words(
            "M: mean of the products B·A; error: ‖mean − M‖ / ‖M‖, of all layers the root of summed squares",
            width - 0.2,
            0.9,
        )
        below = room_for(rounds, wide) + LABEL
        top = EDGE + (0.2 if title else 0.04)
        block = LINE + curves + BETWEEN if curves else 0.0
        sheet = FigureLayout(width, top + block + LINE + high + below + LINE * len(said) + EDGE, title)
        if curves:
            sheet.text(left, top + 0.45 * LINE, "error of each mean, all layers", size=SMALL)
            _draw_curves(sheet.axes(left, top + LINE, wide, curves), result)
        at = top + block + LINE
        sheet.text(left, at - 0.55 * LINE, "error of the mean of factors", size=SMALL)
        axes = sheet.axes(left, at, wide, high)
        image = heat_map(axes, 100 * result.values("factors"), SURFACE, hatched=True)
        name_rows(axes, names, high)
        if len(names) > 1:
            axes.axhline(len(names) - 1.5, color="black", linewidth=0.6)
        name_cells(axes, rounds, wide, rows=False)
        color_bar(sheet.bar(left + wide + GAP, at, BAR, high), image, "error, %", max(2, min(5, int(high / 0.25))))
        sheet.text(left + wide / 2, at + high + below - 0.08, "round", ha="center", size=SMALL)
        return sheet.finished(said)


def _draw_curves(axes: Axes, result: AdapterMeans) -> None:
    """Every mean that there is, in per cent of the mean of products; cells of the map stand below their rounds."""
    at = np.arange(len(result.rounds))
    for colour, name in zip(COLOURS, MEANS, strict=False):
        values = 100 * result.values(name)[-1]
        if np.isfinite(values).any():
            label, style, marker = LINES[name]
            axes.plot(at, values, style, marker=marker, markersize=2.5, color=colour, label=label, linewidth=1)
    axes.set_xlim(-0.5, len(at) - 0.5)
    from_zero(axes)
    axes.set_xticks([])
    axes.set_ylabel("error, %")
    axes.legend(fontsize=SMALL, frameon=False, loc="best")
