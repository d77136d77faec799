"""The share of units that move, by layer. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...plotting.drawing import drawing
from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.style import CHARACTER, COLOURS, SMALL, describe_data, literal, paper_style, shorten_label
from ...plotting.ticks import even

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .result import Alignment

#: inches of a row, of all at most, and below
ROW, ROWS, BELOW = 0.16, 4.0, 0.36
#: letters of a layer's name
LETTERS = 24


@drawing
def draw(result: Alignment, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw a bar a layer, from the first one down; ``width`` in inches."""
    shares = result.shares()
    names = [shorten_label(layer, LETTERS) for layer in shares]
    with paper_style(width):
        left = min(max(map(len, names)) * CHARACTER + 0.1, 0.5 * width)
        high = max(len(names) * min(ROW, ROWS / len(names)), 0.3)
        said = wrap_words(_remark(result), width - 0.2, 0.9)
        top = EDGE + (0.2 if title else 0.04)
        sheet = FigureLayout(width, top + high + BELOW + LINE * len(said) + EDGE, title)
        axes = sheet.axes(left, top, width - left - 0.15, high)
        axes.barh(np.arange(len(names)), [100 * share for share in shares.values()], 0.7, color=COLOURS[0])
        step = max(1, int(np.ceil(0.1 * len(names) / high)))
        at = list(range(0, len(names), step))
        axes.set_yticks(at, [names[i] for i in at], fontsize=SMALL)
        axes.set(ylim=(len(names) - 0.5, -0.5), xlim=(0, 100))
        even(axes.xaxis, 5)
        axes.set_xlabel("units that move (%)")
        return sheet.finished(said)


def _remark(result: Alignment) -> str:
    models = len({row.model for row in result.moved})
    of = f" of {literal(result.of_run)}" if result.of_run else ""
    parts = [f"{models} model{'s' if models > 1 else ''}{of} matched by {result.attrs.get('by', 'weights')}"]
    for row in result.averages:
        if row.barrier is not None:
            parts.append(f"{literal(row.model)}: loss {row.loss:.3g}")
    if result.averages and "data" in result.attrs:
        parts.append(describe_data(result.attrs))
    return "; ".join(parts)
