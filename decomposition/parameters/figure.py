"""Densities of single parameters over clients, as Figure 2 of Wang et al. (FedSA) draws them. Drawing only."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from ...landscape.drawing.paper import CHARACTER, GREY, SMALL, literal, paper_style, shortened
from ...landscape.drawing.sheet import Sheet
from .marks import KEY, Mark, marks_of, rows_of
from .panels import draw_panel, limits_of, name_panel
from .result import differ, not_finite

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .result import Parameters

# Inches. Left of the panels and between them; their names, their numbers below, the axis' name; a line of small type.
LEFT, RIGHT, BETWEEN, NAMES, NUMBERS, LABEL, EDGE, LINE = 0.24, 0.1, 0.2, 0.32, 0.2, 0.15, 0.05, 0.135
# Panels are at least so wide; at most so many stand side by side.
NARROWEST, COLUMNS = 1.4, 4


def draw_parameters(result: Parameters, width: float = 3.5, title: str | None = None) -> Figure:
    """A panel a parameter, each with its own axes: the density over the first run's clients, the clients below it, and
    the models as vertical lines; ``width`` in inches.

    Marks far outside of the density are arrows at the edge.
    """
    room = width - LEFT - RIGHT
    most = min(COLUMNS, max(1, int((room + BETWEEN) / (NARROWEST + BETWEEN))), len(result.names))
    columns = -(-len(result.names) // -(-len(result.names) // most))
    wide = (room - BETWEEN * (columns - 1)) / columns
    high = min(max(0.55 * wide, 0.75), 1.4)
    rows = -(-len(result.names) // columns)
    with paper_style(width):
        marks = marks_of(result.runs)
        legend = rows_of(marks, width, EDGE + 0.04)
        each = NAMES + high + NUMBERS
        top = EDGE + (0.2 if title else 0.0) + LINE * len(legend)
        said = _wrapped(_remark(result, marks), width)
        below = top + rows * each + LABEL + 0.05
        sheet = Sheet(width, below + LINE * len(said) + EDGE)
        if title:
            sheet.text(width / 2, EDGE + 0.08, title, ha="center")
        for i, (name, summary) in enumerate(zip(result.names, result.summaries, strict=True)):
            row, column = divmod(i, columns)
            axes = sheet.axes(LEFT + column * (wide + BETWEEN), top + row * each + NAMES, wide, high)
            draw_panel(axes, result.runs[0].clients[:, i], marks, i, wide)
            name_panel(axes, shortened(name, int(wide / CHARACTER)), summary, high)
            if column == 0:
                sheet.text(0.13, top + row * each + NAMES + high / 2, "density", ha="center", rotation=90)
        sheet.text(LEFT + room / 2, below - 0.05 - LABEL / 2, "parameter value", ha="center")
        for row, entries in enumerate(legend):
            for mark, across in entries:
                _key(sheet, mark, across, top - LINE * (len(legend) - row - 0.5))
        for i, line in enumerate(said):
            sheet.text(EDGE + 0.04, below + (i + 0.5) * LINE, line, color=GREY, fontsize=SMALL)
    return sheet.figure


def _key(sheet: Sheet, mark: Mark, across: float, at: float) -> None:
    from matplotlib.lines import Line2D

    ends = [across / sheet.width, (across + KEY - 0.06) / sheet.width]
    line = {name: value for name, value in mark.look.items() if name != "marker"}
    sheet.figure.add_artist(Line2D(ends, [1 - at / sheet.height] * 2, **line))
    look = {"color": mark.look["color"], "marker": mark.look["marker"], "markersize": 3.2}
    sheet.key(across + (KEY - 0.06) / 2, at, look)
    sheet.text(across + KEY, at, mark.label, fontsize=SMALL)


def _wrapped(remark: str, width: float) -> list[str]:
    return textwrap.wrap(remark, int((width - 0.2) / (0.9 * CHARACTER)))


def _remark(result: Parameters, marks: Sequence[Mark]) -> str:
    """Over whom, and what the numbers and marks mean."""
    first = result.runs[0]
    clients = len(first.client_ids)
    parts = [f"{shortened(first.run, 24)}, round {first.round}: {clients} clients (ticks); scales differ"]
    if any(summary.fma_to_mode is not None for summary in result.summaries):
        parts.append("σ: from the density's mode, in the clients' standard deviations")
    for i in range(len(result.names)):
        marked = [float(mark.values[i]) for mark in marks]
        low, high = limits_of(first.clients[:, i], marked)
        if any(isfinite(value) and not low <= value <= high for value in marked):
            parts.append("arrows: beyond the axis")
            break
    if broken := not_finite(result):
        parts.append(f"not finite, and not drawn: {literal(', '.join(broken))}")
    if differ(result):
        parts.append("the runs' rounds began differently: marks do not compare their servers")
    return "; ".join(parts)
