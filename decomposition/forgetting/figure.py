"""The change that local training makes, by client and class, below its means over rounds. Drawing only."""

from __future__ import annotations

import textwrap
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from ...landscape.drawing.paper import CHARACTER, COLOURS, GREY, SMALL, measured_on, paper_style
from ...landscape.drawing.sheet import Sheet
from ...landscape.lines.connectivity_figure import DIVERGING
from .result import mean_over_clients

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import Forgetting

# Inches. Room left of the panels, right of them for the bar with its numbers, and below; a line of small type.
LEFT, RIGHT, BAR, GAP, BOTTOM, LINE, EDGE = 0.5, 0.52, 0.09, 0.07, 0.42, 0.135, 0.05
# The panel of means, and the cells: as high as small type where there are few clients, all of them no higher than MOST.
MEANS, CELL, MOST = 0.95, 0.16, 3.4
# Points across that the dot of a client's largest class needs to be seen.
SMALLEST = 1.0


def draw_forgetting(result: Forgetting, width: float = 3.5, title: str | None = None) -> Figure:
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
        said = textwrap.wrap(_remark(result, dots=dot >= SMALLEST), int((width - 0.2) / (0.86 * CHARACTER)))
        top = EDGE + (0.2 if title else 0.04)
        means = top + LINE + 0.05
        cells = (means + MEANS + BOTTOM + 0.04 if several else top) + LINE + 0.05
        below = cells + high + BOTTOM
        sheet = Sheet(width, below + LINE * len(said) + EDGE)
        if title:
            sheet.text(width / 2, EDGE + 0.08, title, ha="center")
        if several:
            axes = sheet.axes(LEFT, means, width - LEFT - 0.12, MEANS)
            _draw_means(axes, result)
            axes.yaxis.set_label_coords(-0.33 / (width - LEFT - 0.12), 0.5)
            for i, words in enumerate(("own data", "others' data")):
                across = LEFT + i * (0.25 + 8 * CHARACTER)
                sheet.key(across + 0.05, top + LINE / 2, {"color": COLOURS[i], "marker": "os"[i], "markersize": 3})
                sheet.text(across + 0.14, top + LINE / 2, words, fontsize=SMALL)
        sheet.text(LEFT, cells - 0.05 - LINE / 2, f"round {result.rounds[-1]}", fontsize=SMALL)
        axes = sheet.axes(LEFT, cells, wide, high)
        axes.yaxis.set_label_coords(-0.33 / wide, 0.5)
        bar = sheet.axes(LEFT + wide + GAP, cells, BAR, high)
        _draw_cells(axes, bar, result, change, (wide / change.shape[1], high / len(change)))
        if dot >= SMALLEST:
            _draw_dots(axes, result, dot)
        for i, line in enumerate(said):
            sheet.text(EDGE + 0.04, below + (i + 0.5) * LINE, line, color=GREY, fontsize=SMALL)
    return sheet.figure


def _change(result: Forgetting) -> np.ndarray:
    """After minus before in percentage points in the last round, [K, classes]: on the others' data, and of test data
    on the client's own classes too, since there no sample is both."""
    change = result.after_others[-1] - result.before_others[-1]
    if result.attrs.get("split") == "test":
        change = np.where(result.own[-1] > 0, result.after_own[-1] - result.before_own[-1], change)
    return np.asarray(100 * change)


def _draw_means(axes: Axes, result: Forgetting) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.axhline(0, color="#b0b0b0", linewidth=0.6, zorder=1)
    for i, (values, sign) in enumerate(((result.own_gain, 100), (result.others_loss, -100))):
        mean, stderr = mean_over_clients(values)
        look: dict[str, Any] = {"color": COLOURS[i], "marker": "os"[i], "markersize": 3}
        axes.errorbar(result.rounds, sign * mean, yerr=100 * stderr, elinewidth=0.8, zorder=3, **look)
    axes.margins(x=0.04)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    axes.set_xlabel("round")
    axes.set_ylabel("change (points)")


def _draw_cells(axes: Axes, bar: Axes, result: Forgetting, change: np.ndarray, cell: tuple[float, float]) -> None:
    """The heat map; ``cell`` is the width and height of one in inches."""
    from matplotlib.ticker import MaxNLocator

    axes.set_facecolor("#d9d9d9")  # where there is no sample
    finite = np.abs(change[np.isfinite(change)])
    greatest = float(finite.max()) if finite.size and finite.max() > 0 else 1.0
    image = axes.imshow(
        np.ma.masked_invalid(change),
        cmap=DIVERGING,
        vmin=-greatest,
        vmax=greatest,
        interpolation="nearest",
        aspect="auto",
    )
    axes.set_xlim(-0.5, change.shape[1] - 0.5)
    axes.set_ylim(len(change) - 0.5, -0.5)
    for spine in axes.spines.values():
        spine.set_visible(True)
    axes.tick_params(length=0, pad=2)
    names = [str(k) for k in result.client_ids[-1].tolist()]
    for set_ticks, labels, step in (
        (
            axes.set_xticks,
            list(map(str, range(change.shape[1]))),
            (len(str(change.shape[1])) + 1) * CHARACTER / cell[0],
        ),
        (axes.set_yticks, names, 0.13 / cell[1]),
    ):
        shown = range(0, len(labels), max(1, ceil(step)))
        set_ticks(shown, [labels[i] for i in shown])
    axes.set_xlabel("class")
    axes.set_ylabel("client")
    colours = bar.figure.colorbar(image, cax=bar)
    colours.set_label("change (points)", labelpad=3)
    colours.locator = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10])
    colours.update_ticks()
    colours.outline.set_linewidth(0.6)


def _draw_dots(axes: Axes, result: Forgetting, size: float) -> None:
    """A client's own classes: the largest of them ``size`` points across, areas in proportion."""
    labels = result.labels[-1]
    client, own = np.nonzero(labels)
    share = labels[client, own] / labels.max(axis=1)[client]
    area = size**2 * np.maximum(share, 0.1)  # a class of one sample can still be seen
    axes.scatter(own, client, area, color="black", edgecolors="white", linewidths=size / 8, zorder=3)


def _remark(result: Forgetting, *, dots: bool) -> str:
    """What changed, on which data, and what the marks mean."""
    which = "test accuracy" if result.attrs.get("split") == "test" else "accuracy on the others' data"
    parts = [f"cells: change of {which} by local training"]
    if dots:
        parts.append("dots: the client's own classes, larger with more samples")
    if np.isnan(_change(result)).any():
        parts.append("grey: no such sample")
    if len(result.rounds) > 1:
        parts.append("above: means over clients, bars: their standard error")
    if "data" in result.attrs:
        parts.append(measured_on(result.attrs))
    return "; ".join(parts)
