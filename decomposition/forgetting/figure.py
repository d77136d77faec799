"""The change that local training makes, by client and class, below its means over rounds. Drawing only."""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING

import numpy as np

from ...plotting.color_bar import color_bar
from ...plotting.drawing import drawing
from ...plotting.heatmaps import signed_heat_map
from ...plotting.layout import EDGE, LINE, FigureLayout, legend_rows, wrap_words
from ...plotting.style import CHARACTER, SMALL, describe_data, paper_style, run_look
from ...plotting.ticks import even
from .result import mean_over_clients

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import Forgetting

# Inches. Room left of the panels, right of them for the bar with its numbers, and below.
LEFT, RIGHT, BAR, GAP, BOTTOM = 0.5, 0.52, 0.09, 0.07, 0.42
# The panel of means, and the cells: as high as small type where there are few clients, all of them no higher than MOST.
MEANS, CELL, MOST = 0.95, 0.16, 3.4
# Points across that the dot of a client's largest class needs to be seen.
SMALLEST = 1.0


@drawing
def draw(result: Forgetting, width: float = 3.5, title: str | None = None) -> Figure:
    """Violet cells: the client answers less of the class rightly than the model it was sent; orange ones: more.

    Of the others' training data, or of all test data, in the last round. Where there are several rounds, the mean
    changes on own and on others' data stand above; ``width`` in inches.
    """
    change = _change(result)
    wide = width - LEFT - GAP - BAR - RIGHT
    high = min(max(len(change), 2) * CELL, MOST)
    several = len(result.rounds) > 1
    dot = min(3.6, 72 * 0.5 * wide / change.shape[1], 72 * 0.5 * high / len(change))
    with paper_style(width):
        said = wrap_words(_remark(result, dots=dot >= SMALLEST), width - 0.2, 0.86)
        top = EDGE + (0.2 if title else 0.04)
        means = top + LINE + 0.05
        cells = (means + MEANS + BOTTOM + 0.04 if several else top) + LINE + 0.05
        sheet = FigureLayout(width, cells + high + BOTTOM + LINE * len(said) + EDGE, title)
        if several:
            _draw_means(sheet.axes(LEFT, means, width - LEFT - 0.12, MEANS, ylabel=0.33), result)
            legend = legend_rows(("own data", "others' data"), LEFT, inf, 0.25)
            looks = [run_look(i, markersize=3) for i in range(2)]
            legend.draw(sheet, top, lambda i, left, middle: sheet.symbol(left + 0.05, middle, looks[i]), 0.14)
        sheet.text(LEFT, cells - 0.05 - LINE / 2, f"round {result.rounds[-1]}", fontsize=SMALL)
        axes = sheet.axes(LEFT, cells, wide, high, ylabel=0.33)
        image = signed_heat_map(axes, change)  # grey: no sample
        color_bar(
            sheet.bar(LEFT + wide + GAP, cells, BAR, high),
            image,
            "change (points)",
            max(2, min(5, int(high / 0.15))),
            quarters=True,
        )
        _name_cells(axes, result, change.shape[1], (wide / change.shape[1], high / len(change)))
        if dot >= SMALLEST:
            _draw_dots(axes, result, dot)
        return sheet.finished(said)


def _change(result: Forgetting) -> np.ndarray:
    """After minus before in percentage points in the last round, [K, classes]: on the others' data, and of test data
    on the client's own classes too, since there no sample is both."""
    change = result.after_others[-1] - result.before_others[-1]
    if result.attrs.get("split") == "test":
        change = np.where(result.own[-1] > 0, result.after_own[-1] - result.before_own[-1], change)
    return np.asarray(100 * change[result.there[-1]])


def _draw_means(axes: Axes, result: Forgetting) -> None:
    axes.axhline(0, color="#b0b0b0", linewidth=0.6, zorder=1)
    for i, (values, sign) in enumerate(((result.own_gain, 100), (result.others_loss, -100))):
        mean, stderr = mean_over_clients(values)
        look = run_look(i, linestyle="-", markersize=3)
        axes.errorbar(result.rounds, sign * mean, yerr=100 * stderr, elinewidth=0.8, zorder=3, **look)
    axes.margins(x=0.04)
    even(axes.xaxis, 6, integer=True)
    even(axes.yaxis, 5)
    axes.set(xlabel="round", ylabel="change (points)")


def _name_cells(axes: Axes, result: Forgetting, classes: int, cell: tuple[float, float]) -> None:
    """Name as many classes and clients as there is room for; ``cell`` is the width and height of one in inches."""
    step = max(1, ceil((len(str(classes)) + 1) * CHARACTER / cell[0]))
    axes.set_xticks(range(0, classes, step), [str(i) for i in range(0, classes, step)])
    step = max(1, ceil(0.13 / cell[1]))
    clients = [str(k) for k in result.client_ids[-1][result.there[-1]].tolist()]
    axes.set_yticks(range(0, len(clients), step), clients[::step])
    axes.set(xlabel="class", ylabel="client")


def _draw_dots(axes: Axes, result: Forgetting, size: float) -> None:
    """A client's own classes: the largest of them ``size`` points across, areas in proportion."""
    labels = result.labels[-1][result.there[-1]]
    client, own = np.nonzero(labels)
    share = labels[client, own] / labels.max(axis=1)[client]
    area = size**2 * np.maximum(share, 0.1)  # a class of one sample can still be seen
    axes.scatter(own, client, area, color="black", edgecolors="white", linewidths=size / 8, zorder=3)


def _remark(result: Forgetting, *, dots: bool) -> str:
    which = "test accuracy" if result.attrs.get("split") == "test" else "accuracy on the others' data"
    parts = [f"cells: change of {which} by local training"]
    if dots:
        parts.append("dots: the client's own classes, larger with more samples")
    if np.isnan(_change(result)).any():
        parts.append("grey: no such sample")
    if len(result.rounds) > 1:
        some = any(np.isnan(values[result.there]).any() for values in (result.own_gain, result.others_loss))
        having = " that have such samples" if some else ""
        parts.append(f"above: means over clients{having}, bars: their standard error")
    if "data" in result.attrs:
        parts.append(describe_data(result.attrs))
    return "; ".join(parts)
