"""How well each number predicts what the mean gains. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...plotting.drawing import drawing
from ...plotting.empty import say_empty
from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.style import COLOURS, GREY, describe_data, literal, paper_style
from .result import PREDICTORS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .result import Predictors

# Inches. Room left of the panel, right of it and below it; of a row.
LEFT, RIGHT, BELOW, ROW = 1.32, 0.12, 0.36, 0.17


@drawing
def draw(result: Predictors, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw the correlation of each predictor with the gain, with its interval; grey where that includes 0. ``width`` in
    inches."""
    with paper_style(width):
        said = wrap_words(_remark(result), width - 0.2, 0.86)
        top, high = EDGE + (0.2 if title else 0.06), ROW * (len(result.correlations) + 0.6)
        sheet = FigureLayout(width, top + high + BELOW + LINE * len(said) + EDGE, title)
        axes = sheet.axes(LEFT, top, width - LEFT - RIGHT, high, ylabel=LEFT - EDGE)
        for place, one in enumerate(result.correlations):
            if one.correlation is None or one.low is None or one.high is None:
                continue
            colour = COLOURS[0] if one.holds else GREY
            axes.plot([one.low, one.high], [place, place], color=colour, linewidth=1.2, label="_interval")
            axes.plot([one.correlation], [place], "o", color=colour, markersize=3.5, label="_value")
        axes.set_xlim(-1.05, 1.05)
        axes.set_ylim(len(result.correlations) - 0.4, -0.6)
        names = [PREDICTORS.get(one.predictor, one.predictor) for one in result.correlations]
        axes.set_yticks(range(len(names)), names)
        if all(one.correlation is None for one in result.correlations):
            say_empty(axes, f"unknown from {_rounds(result)}")
        else:
            axes.axvline(0, color="0.6", linewidth=0.6, zorder=0)
        axes.set_xlabel("rank correlation with the gain", labelpad=1)
        return sheet.finished(said)


def _rounds(result: Predictors) -> str:
    count = max((one.rounds for one in result.correlations), default=0)
    return f"{count} round{'s' if count != 1 else ''}"


def _remark(result: Predictors) -> str:
    parts = [
        f"over {_rounds(result)}; lines: 95 % intervals, bootstrap over blocks of rounds; grey: no better than chance"
    ]
    if "data" in result.attrs:
        parts.append(describe_data(result.attrs))
    parts += map(literal, result.attrs.get("left_out", ()))
    return "; ".join(parts)
