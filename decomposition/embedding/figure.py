"""Models on a map as a figure: a panel a run, on common axes. Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.color_bar import color_bar
from ...plotting.drawing import drawing
from ...plotting.layout import EDGE, LINE, FigureLayout, legend_rows, wrap_words
from ...plotting.style import CHARACTER, COLOURS, paper_style, shorten_label
from ...plotting.ticks import even
from .result import axis_words, remark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from .result import Embedding

# Inches. Left of the panels with and without numbers there, between them, above each, below each with numbers and below
# the last ones.
AXIS, BARE, BETWEEN, TITLE, TICKS, BELOW = 0.49, 0.06, 0.08, 0.17, 0.2, 0.34
# The bar of the rounds: the gap before it, itself, its numbers and label.
GAP, BAR, NUMBERS = 0.07, 0.08, 0.36
# Panels are at least so wide, or there are fewer in a row; heights are these shares of the width at least and at most.
NARROWEST, FLATTEST, TALLEST = 1.05, 0.55, 1.2
# Beyond the outermost models, a share of their extent.
MARGIN = 0.06
#: how the paths of the server's models look, by name
PATHS: dict[str, dict[str, Any]] = {
    "global": {"color": "#000000", "linewidth": 0.9},
    "averaged": {"color": COLOURS[1], "linewidth": 0.9},
}
END: dict[str, Any] = {"marker": "D", "markersize": 3.6, "markeredgecolor": "white", "markeredgewidth": 0.5}


@drawing
def draw(result: Embedding, width: float = 3.5, title: str | None = None) -> Figure:
    """Clients as dots in the colour of their round, the server's models as paths that end in a diamond."""
    numbers = result.method == "pca"
    with paper_style(width):
        left = AXIS if numbers else BARE
        right = GAP + BAR + NUMBERS if len(result.rounds) > 1 else 0.06
        room = width - left - right
        columns = max(1, min(len(result.runs), int((room + BETWEEN) / (NARROWEST + BETWEEN))))
        rows = -(-len(result.runs) // columns)
        columns = -(-len(result.runs) // rows)
        wide = (room - BETWEEN * (columns - 1)) / columns
        limits, shape = limits_of(result.places)
        high = wide * shape
        said = wrap_words(remark(result), width - 0.16, 0.86)
        keys = ["client", *(which for which in PATHS if any(point.which == which for point in result.points))]
        legend = legend_rows(keys, 0.1, width, 0.45)
        first = EDGE + (0.2 if title else 0.0)
        top = first + legend.height + 0.03
        row = TITLE + high + (TICKS if numbers else BETWEEN)
        below = top + row * rows + (BELOW - TICKS if numbers else 0.0) + 0.04
        sheet = FigureLayout(width, below + LINE * len(said) + EDGE, title)
        several = len(result.rounds) > 1
        legend.draw(sheet, first, lambda i, left, middle: _symbol(sheet, left, middle, keys[i], several=several), 0.27)
        colours = round_colours()
        for i, run in enumerate(result.runs):
            across, down = left + (i % columns) * (wide + BETWEEN), top + (i // columns) * row
            axes = sheet.axes(across, down + TITLE, wide, high)
            _panel(axes, result, run, colours, limits)
            sheet.text(across + wide / 2, down + TITLE / 2, shorten_label(run, int(wide / CHARACTER)), ha="center")
            last = i + columns >= len(result.runs)
            _label_axes(axes, result, wide, high, first=i % columns == 0, last=last)
        if len(result.rounds) > 1:
            _round_bar(sheet.bar(width - right + GAP, top + TITLE, BAR, high), result, colours, high)
        return sheet.finished(said, 0.08)


def round_colours() -> Colormap:
    """Make a colour map from pale, the first round, to dark, the last one; both can be seen on white."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["viridis_r"](np.linspace(0.08, 1.0, 256)))


def shade(number: int, rounds: Sequence[int]) -> float:
    """Place a round between the first and the last, 0 to 1; 1 for the only one.

    >>> shade(20, (1, 20, 39)), shade(7, (7,))
    (0.5, 1.0)
    """
    return (number - rounds[0]) / (rounds[-1] - rounds[0]) if len(rounds) > 1 else 1.0


def limits_of(places: np.ndarray) -> tuple[tuple[float, ...], float]:
    """(x0, x1, y0, y1) that hold all places, and height by width of a panel: distances are equally long along both."""
    low, high = places.min(axis=0), places.max(axis=0)
    middle, extent = (low + high) / 2, np.maximum(high - low, 1e-3 * (high - low).max())
    shape = float(np.clip(extent[1] / extent[0], FLATTEST, TALLEST))
    across = (1 + 2 * MARGIN) * max(extent[0], extent[1] / shape)
    half = np.array([across, across * shape]) / 2
    (x0, y0), (x1, y1) = middle - half, middle + half
    return (float(x0), float(x1), float(y0), float(y1)), shape


def _panel(axes: Axes, result: Embedding, run: str, colours: Colormap, limits: Sequence[float]) -> None:
    places, points = result.of(run)
    shades = [shade(point.round, result.rounds) for point in points]
    size = 7.0 if len(result.points) <= 300 else 4.5
    look: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.15, "zorder": 2, "rasterized": len(points) > 5000}
    axes.scatter(places[:, 0], places[:, 1], s=size, c=colours(shades), **look)
    for which, line in PATHS.items():
        path, named = result.of(run, which)
        if not len(path):
            continue
        order = np.argsort([point.round for point in named])
        x, y = path[order].T
        above = 4 if which == "global" else 5
        axes.plot(x, y, **line, solid_joinstyle="round", zorder=above)
        axes.plot(x[-1:], y[-1:], color=line["color"], linestyle="", zorder=above + 2, **END)
    axes.set(xlim=(limits[0], limits[1]), ylim=(limits[2], limits[3]))
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color("#9a9a9a")


def _label_axes(axes: Axes, result: Embedding, wide: float, high: float, *, first: bool, last: bool) -> None:
    if result.method != "pca":
        axes.set_xticks([])
        axes.set_yticks([])
        return
    even(axes.xaxis, max(2, min(5, int(wide / 0.35))))
    even(axes.yaxis, max(2, min(5, int(high / 0.3))))
    across, along = axis_words(result)
    axes.tick_params(labelleft=first)
    fitting = max(_index_fitting(across, wide), _index_fitting(along, high))  # both in the same words
    if last:
        axes.set_xlabel(across[fitting])
    if first:
        axes.set_ylabel(along[fitting])
        axes.yaxis.set_label_coords(-0.34 / wide, 0.5)


def _index_fitting(words: Sequence[str], room: float) -> int:
    """Find the first of several labels that is not longer than ``room`` inches, else the last."""
    fit = (i for i, label in enumerate(words) if 0.066 * len(label.replace("$", "")) <= room)
    return next(fit, len(words) - 1)


def _round_bar(axes: Axes, result: Embedding, colours: Colormap, high: float) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    first, last = result.rounds[0], result.rounds[-1]
    between = [t for t in result.rounds[1:-1] if high > 0.8 and min(t - first, last - t) > 0.2 * (last - first)]
    middle = min(between, key=lambda t: abs(2 * t - first - last), default=None)
    shown = ScalarMappable(Normalize(first, last), colours)
    bar = color_bar(axes, shown, "round", labelpad=-4 if middle is None else 2)
    bar.set_ticks([first, *([middle] if middle is not None else []), last])


def _symbol(sheet: FigureLayout, left: float, middle: float, name: str, *, several: bool) -> None:
    if name == "client":
        sheet.symbol(left + 0.18, middle, {"marker": "o", "markersize": 2.8, "color": "#3b528b", "linestyle": ""})
        return
    if several:
        sheet.line(left, middle, 0.2, PATHS[name])
    end = {**END, "color": PATHS[name]["color"], "linestyle": ""}
    sheet.symbol(left + (0.2 if several else 0.18), middle, end)
