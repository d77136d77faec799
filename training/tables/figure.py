"""A table's numbers against a setting, a line a row; drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.number_words import words_apart
from ...plotting.drawing import drawing
from ...plotting.legends import fitting_columns
from ...plotting.looks import looks_of
from ...plotting.printed import printed_setting
from ...plotting.spread import mean_bars
from ...plotting.stack import PanelStack
from ...plotting.style import CHARACTER, SMALL, literal, paper_style, shorten_label
from ...plotting.ticks import even
from ..curves.measures import measure_of
from ..curves.other_seeds import are_nested
from ..curves.summary import break_label
from .row_labels import printed_row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .comparison import Comparison

#: markers of the values of a second setting, beside which a method keeps its colour, dashes and marker
FILLED: tuple[dict[str, Any], ...] = (
    {"fillstyle": "full"},
    {"fillstyle": "none", "markeredgewidth": 0.7},
    {"fillstyle": "left", "markeredgewidth": 0.5, "markerfacecoloralt": "white"},
    {"fillstyle": "top", "markeredgewidth": 0.5, "markerfacecoloralt": "white"},
)
#: of a line in the legend, in letters' heights: dashes show
HANDLE = 3.4
SIZE = 3.5
GREY_MARKER: dict[str, Any] = {"color": "0.4", "marker": "o", "linestyle": "", "markersize": SIZE}


@drawing
def draw(table: Comparison, width: float = 3.5, title: str | None = None) -> Figure:
    """Mean and, as bars, deviation over seeds against the columns' setting; of several measures the first.

    A row has the colour, dashes and marker of its method. Where the columns have a second setting, it has a line for
    each of its values, whose markers are filled otherwise. The axis is logarithmic where the greatest value is more
    than ten times the smallest.

    Raises:
        FedscopeError: columns without a setting that is a number, or of one value of it.
    """
    key = table.attrs.get("axis", "")
    places: dict[str, tuple[float, str]] = {
        column: (float(x), rest) for column, (x, rest) in table.attrs.get("places", {}).items()
    }
    values = sorted({x for x, _ in places.values()})
    if len(values) < 2:
        raise FedscopeError(
            "the columns of this table are not numbers of one setting, so there is nothing to draw against; vary one, "
            "as run.participation=0.1,0.2"
        )
    measure = measure_of(table.columns_named[0][1])
    scale = 100 if measure.is_share else 1
    rests = list(dict.fromkeys(rest for _, rest in places.values()))
    with paper_style(width):
        from matplotlib.lines import Line2D

        stack = PanelStack(width, 0.7 * width, 1)
        seeds: set[int] = set()
        axes = stack.panels[0]
        looks = looks_of([table.called.get(row, row) for row in table.rows_named])
        for i, row in enumerate(table.rows_named):
            for j, rest in enumerate(rests):
                cells = [
                    (places[column][0], cell)
                    for column, name in table.columns_named
                    if name == measure.name and places[column][1] == rest
                    if (cell := table.cell(row, column, name)) is not None
                ]
                if not cells:
                    continue
                cells.sort(key=lambda pair: pair[0])
                x = np.array([place for place, _ in cells])
                mean, deviation = (
                    scale * np.array([getattr(cell, name) for _, cell in cells]) for name in ("mean", "deviation")
                )
                look = {**looks[i], **FILLED[j % len(FILLED)], "markersize": SIZE}
                named = ", ".join(part for part in (printed_row(table, row), rest) if part)
                axes.plot(x, mean, label=_shorten(named, width), **look)
                if not np.isnan(deviation).all():
                    mean_bars(axes, x, mean, deviation, look["color"], capsize=1.5)
                    seeds |= {len(cell.values) for _, cell in cells if len(cell.values) > 1}  # of one there is no bar
        log = ""
        if values[0] > 0 and values[-1] > 10 * values[0]:
            log = ", log"
            axes.set_xscale("log")
            words = words_apart(values)
            axes.set_xticks(values, [words[value] for value in values])
            axes.minorticks_off()
        else:
            even(axes.xaxis, "auto")
        named = literal(printed_setting(key))
        axes.set_xlabel(f"{named}{log}" if key else "")
        axes.set_ylabel(break_label(measure.label_in(table.attrs.get("tasks", ()))))
        handles = axes.get_legend_handles_labels()[0]
        if len(table.rows_named) > 1 and len(rests) > 1:  # a line each, and what fills its marker
            names = [_shorten(printed_row(table, row), width) for row in table.rows_named]
            handles = [
                Line2D([], [], **look, markersize=SIZE, label=name) for name, look in zip(names, looks, strict=True)
            ]
            handles += [
                Line2D([], [], **FILLED[j % len(FILLED)], **GREY_MARKER, label=_shorten(rest, width))
                for j, rest in enumerate(rests)
            ]
        if seeds:
            each = "" if are_nested(cell.values for cell in table.cells) else " each"
            label = f"± s.d. over {' to '.join(map(str, sorted({min(seeds), max(seeds)})))} seeds{each}"
            handles.append(Line2D([], [], color="0.4", marker="|", linestyle="", label=label))
        columns = min(2, fitting_columns(handles, width, 0.3 + HANDLE * SMALL / 72))
        return stack.finished(handles, columns, title, long=HANDLE)


def _shorten(label: str, width: float) -> str:
    return shorten_label(label, int((width - 0.5) / CHARACTER))
