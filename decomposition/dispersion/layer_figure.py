"""Single layers: the histogram of skewness beside its map over mean and deviation. Drawing only."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...landscape.drawing.paper import CHARACTER, COLOURS, GREY, SMALL, literal, paper_style, shortened
from ...landscape.drawing.sheet import Sheet
from ...landscape.lines.connectivity_figure import DIVERGING
from .figure import NO_VALUE
from .statistics import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .layer_maps import Cells, LayerMap, SkewHistogram

# Inches. Left of a panel and below it; from panel to panel; the colour bar and its numbers; a line of small type.
LEFT, BOTTOM, GAP, BAR_GAP, BAR, BAR_LABELS = 0.5, 0.42, 0.56, 0.06, 0.08, 0.5
LINE, EDGE, HIGH = 0.135, 0.05, 1.15
NARROW = 3.0  # a figure in which two panels have no room side by side
SEEN = 0.998  # share of parameters that the axis of the histogram holds
FAINTEST = 0.1  # of mean skewness the strongest colour stands for no less, because that is noise


def draw_layers(maps: Sequence[LayerMap], width: float = 3.5, title: str | None = None) -> Figure:
    """A row a layer; in narrow figures the two panels stand one above the other."""
    if not maps:
        raise FedscopeError("the result has no single layers to draw: skewness needs three clients or more")
    with paper_style(width):
        stacked = width < NARROW
        room = width - LEFT - BAR_GAP - BAR - BAR_LABELS
        first, second = (room, room) if stacked else (0.46 * (room - GAP), 0.54 * (room - GAP))
        high = max(HIGH, 0.75 * second)
        said = textwrap.wrap(_remark(maps), int((width - 0.2) / (0.86 * CHARACTER)))
        top = EDGE + (0.2 if title else 0.04)
        each = LINE + 0.05 + (2 if stacked else 1) * (high + BOTTOM) + 0.04
        below = top + each * len(maps)
        sheet = Sheet(width, below + LINE * len(said) + EDGE)
        if title:
            sheet.text(width / 2, EDGE + 0.08, title, ha="center")
        scale = _scale(maps)
        for i, one in enumerate(maps):
            heading = top + i * each
            words, letters = f"{one.run}, round {one.round}: {one.layer}", int((width - 0.2) / (1.2 * CHARACTER))
            if len(words) > letters:
                words = shortened(f"{one.run}@{one.round}: {one.layer}", letters)
            sheet.text(EDGE + 0.04, heading + LINE / 2, literal(words), weight="bold", fontsize=SMALL)
            panel = heading + LINE + 0.05
            _draw_histogram(sheet.axes(LEFT, panel, first, high), one.histogram)
            across, panel = (LEFT, panel + high + BOTTOM) if stacked else (LEFT + first + GAP, panel)
            image = _draw_cells(sheet.axes(across, panel, second, high), one.cells, scale)
            _draw_bar(sheet.axes(across + second + BAR_GAP, panel, BAR, high), image)
        for i, line in enumerate(said):
            sheet.text(EDGE + 0.04, below + (i + 0.5) * LINE, line, color=GREY, fontsize=SMALL)
    return sheet.figure


def _draw_histogram(axes: Axes, made: SkewHistogram) -> None:
    from matplotlib.ticker import MaxNLocator

    wide = np.diff(made.edges)
    axes.stairs(made.counts / max(made.counts.sum(), 1) / wide, made.edges, fill=True, color=COLOURS[4], alpha=0.75)
    axes.stairs(made.expected / wide, made.edges, color="black", linewidth=0.9, baseline=None)
    reach = max(_reach(made.edges, made.counts), _reach(made.edges, made.expected))
    axes.set_xlim(-reach, reach)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
    axes.set_xlabel("skewness over clients")
    axes.set_ylabel("density")


def _reach(edges: Array, weights: Array | np.ndarray) -> float:
    """The distance from 0 within which most lies."""
    if not weights.sum():
        return float(edges[-1])
    outer = np.maximum(np.abs(edges[:-1]), np.abs(edges[1:]))
    order = np.argsort(outer)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(outer[order][min(int(np.searchsorted(share, SEEN)), len(outer) - 1)])


def _draw_cells(axes: Axes, cells: Cells, scale: float) -> Any:
    from matplotlib.collections import PolyCollection
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

    axes.set_facecolor(NO_VALUE)
    hexagon = np.array([(0.5, -0.5), (0.5, 0.5), (0, 1), (-0.5, 0.5), (-0.5, -0.5), (0, -1)])
    hexagon *= (cells.width, cells.height / 3)
    centres = np.stack([cells.mean, np.log10(cells.deviation)], axis=1)
    corners = centres[:, None] + hexagon
    corners[..., 1] = 10 ** corners[..., 1]
    image = PolyCollection(list(corners), cmap=DIVERGING, linewidths=0.2, edgecolors="face")
    image.set_array(cells.skewness)
    image.set_clim(-scale, scale)
    axes.set_yscale("log")
    axes.add_collection(image)
    axes.autoscale_view()
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))
    low, high = axes.get_ylim()
    if high < 10 * low:  # no power of ten may lie between them
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(LogLocator(numticks=6))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("mean over clients, μ")
    axes.set_ylabel("deviation, σ")
    return image


def _scale(maps: Sequence[LayerMap]) -> float:
    """The mean skewness that has the strongest colour: nearly all parameters lie in cells of less."""
    sizes = np.concatenate([np.abs(one.cells.skewness) for one in maps])
    if not len(sizes):
        return 1.0
    order = np.argsort(sizes)
    share = np.cumsum(np.concatenate([one.cells.count for one in maps])[order])
    found = float(sizes[order][np.searchsorted(share, 0.98 * share[-1])])
    return max(found, FAINTEST)


def _draw_bar(axes: Axes, image: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    bar = axes.figure.colorbar(image, cax=axes, extend="both")
    bar.set_label("mean skewness", labelpad=2)
    bar.locator = MaxNLocator(nbins=5, steps=[1, 2, 5, 10])
    bar.update_ticks()
    bar.outline.set_linewidth(0.6)


def _remark(maps: Sequence[LayerMap]) -> str:
    counts = sorted({one.clients for one in maps})
    clients = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return (
        f"black: {clients} independent normal values (simulated); parameters of a layer are dependent, so this is a "
        "description, not a test of the layer; grey: no parameter"
    )
