"""Updates by layer and round as two heat maps: how far they agree, and what the mean keeps of them. Drawing only."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from ...plotting.color_bar import color_bar
from ...plotting.drawing import drawing
from ...plotting.heatmaps import heat_map, name_cells, room_for, signed_heat_map
from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.style import CHARACTER, SMALL, SURFACE, paper_style, shorten_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .layer_result import LayerUpdates

# Inches: the gap before a colour bar, the bar, its numbers and label, the name of the axis, a row, all rows at most and
# at least, and the room below a map.
GAP, BAR, NUMBERS, LABEL, ROW, ROWS, FEW, BELOW = 0.07, 0.09, 0.5, 0.16, 0.17, 2.2, 0.5, 0.09
#: letters of a layer's name, at most; a name's height in inches
LETTERS, NAME = 20, 0.1


@drawing
def draw_layers(result: LayerUpdates, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw the mean cosine, white at 0, and below it the length kept, a row a layer and a column a round; ``width`` in
    inches."""
    names = [shorten_label(name, LETTERS) for name in result.layers]
    rounds = [str(number) for number in result.rounds]
    maps = (
        ("mean cosine between clients' updates", "cosine", result.values("cosine_mean")),
        ("length kept by the mean update", "length kept", result.values("cancellation")),
    )
    with paper_style(width):
        left = max(map(len, names)) * CHARACTER + 0.08
        wide = width - left - GAP - BAR - NUMBERS
        high = max(FEW, min(ROW * len(names), ROWS))
        said = wrap_words(_remark(result, maps), width - 0.2, 0.9)
        below = room_for(rounds, wide) + LABEL
        top = EDGE + (0.2 if title else 0.04)
        block = LINE + high + BELOW
        sheet = FigureLayout(width, top + 2 * block + below + LINE * len(said) + EDGE, title)
        for i, (words, label, values) in enumerate(maps):
            at = top + i * block + LINE
            sheet.text(left, at - 0.55 * LINE, words, size=SMALL)
            axes = sheet.axes(left, at, wide, high)
            image = heat_map(axes, values, SURFACE, hatched=True) if i else signed_heat_map(axes, values, hatched=True)
            _name_rows(axes, names, high)
            if len(names) > 1:
                axes.axhline(len(names) - 1.5, color="black", linewidth=0.6)
            if i:
                name_cells(axes, rounds, wide, rows=False)
            else:
                axes.set_xticks([])
            color_bar(sheet.bar(left + wide + GAP, at, BAR, high), image, label, max(2, min(5, int(high / 0.25))))
        sheet.text(left + wide / 2, top + 2 * block - BELOW + below - 0.08, "round", ha="center", size=SMALL)
        return sheet.finished(said)


def _name_rows(axes: Axes, names: list[str], high: float) -> None:
    """As many names as there is room for; the last one, of all layers, always."""
    last = len(names) - 1
    step = ceil(NAME / (high / len(names)))
    at = [*(i for i in range(0, last, step) if i <= last - step), last]
    axes.set_yticks(at, [names[i] for i in at], fontsize=SMALL)


def _remark(result: LayerUpdates, maps: tuple[tuple[str, str, np.ndarray], ...]) -> str:
    parts = [
        "Δ: a client's model less the one it was sent, in the layer of a row",
        "length kept: ‖Σ\u00a0p\u00a0Δ‖\u00a0/\u00a0Σ\u00a0p\u00a0‖Δ‖",
    ]
    if not all(np.isfinite(values).all() for _, _, values in maps):
        parts.append("hatched: no client moved there, or one diverged")
    return "; ".join([*parts, *result.attrs.get("left_out", ())])
