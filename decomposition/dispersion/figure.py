"""Dispersion and skewness by layer and round; of single layers the histogram of skewness next to its map over mean and
deviation. Drawing only."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...plotting.color_bar import color_bar
from ...plotting.drawing import drawing
from ...plotting.heatmaps import DIVERGING, NO_VALUE, heat_map
from ...plotting.layout import EDGE, LINE, FigureLayout, column_letters, readable_columns, wrap_words
from ...plotting.style import CHARACTER, COLOURS, SMALL, SURFACE, literal, paper_style, shorten_label
from ...plotting.ticks import decades, even
from .result import WHOLE
from .statistics import FEWEST, Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import Dispersion, RoundDispersion
    from .skew_maps import Cells, LayerMap, SkewHistogram

# Inches. A layer where they are few, and all of them at most; between panels, the colour bar and its numbers.
LAYER, MOST, COLUMN_GAP, GAP, BAR, BAR_LABELS = 0.145, 3.4, 0.1, 0.07, 0.09, 0.52
BOTTOM, NAME = 0.36, 0.13
NAMES = 0.36  # share of the width that layers' names may take
CUT = 4  # letters of a run's name below which it is not cut
# Of single layers: left of a panel and below it; from panel to panel; the colour bar and its numbers; a panel's height.
LEFT, BELOW, BETWEEN, BAR_GAP, THIN_BAR, NUMBERS, HIGH = 0.5, 0.42, 0.56, 0.06, 0.08, 0.5, 1.15
NARROW = 3.0  # a figure in which two panels have no room side by side
SEEN = 0.998  # share of parameters that the axis of the histogram holds
FAINTEST = 0.1  # of mean skewness the strongest colour stands for no less, because that is noise


@drawing
def draw(result: Dispersion, width: float = 3.5, title: str | None = None) -> Figure:
    """A row of heat maps a quantity, a column a run; rows of a map are layers, the whole model below them.

    Raises:
        FedscopeError: no round; more runs than have room in the width.
    """
    if not result.rounds:
        raise FedscopeError("the result has no round to draw; compute it again with --force")
    layers = [row.layer for row in result.rounds[0].rows]
    quantities = _quantities(result)
    with paper_style(width):
        longest = max(map(len, layers))
        names = min(longest, int(NAMES * width / CHARACTER))
        left = names * CHARACTER + 0.12
        wide = (width - left - GAP - BAR - BAR_LABELS + COLUMN_GAP) / len(result.runs) - COLUMN_GAP
        wide = readable_columns(wide, len(result.runs), width, NAMES if names < longest else 0.0)
        headings, key = _headings(result.runs, int(wide / (1.2 * CHARACTER)))
        high = min(len(layers) * LAYER, MOST)
        said = wrap_words("; ".join([*key, _remark(result, quantities)]), width - 0.2, 0.86)
        top = EDGE + (0.2 if title else 0.04) + (LINE if len(result.runs) > 1 else 0)
        each = LINE + 0.04 + high + 0.1
        below = top + len(quantities) * each - 0.1 + BOTTOM
        sheet = FigureLayout(width, below + LINE * len(said) + EDGE, title)
        for row, (name, about) in enumerate(quantities.items()):
            panel = top + row * each + LINE + 0.04
            fits = left + len(about[0]) * CHARACTER < width - EDGE
            sheet.text(left if fits else EDGE + 0.04, panel - 0.04 - LINE / 2, about[not fits], fontsize=SMALL)
            values = _values(result, name)
            for column, run in enumerate(result.runs):
                across = left + column * (wide + COLUMN_GAP)
                if row == 0 and len(result.runs) > 1:
                    head: dict[str, Any] = {"ha": "center", "weight": "bold", "fontsize": SMALL}
                    sheet.text(across + wide / 2, top - LINE / 2, headings[column], **head)
                axes = sheet.axes(across, panel, wide, high)
                image = heat_map(axes, values[run], SURFACE, norm=_norm(values, name))
                axes.axhline(len(layers) - 1.5, color="white", linewidth=1.5)
                rounds = [found.round for found in result.rounds if found.run == run]
                _tick(axes, rounds, [shorten_label(layer, names) for layer in layers], (wide, high))
                axes.tick_params(labelleft=column == 0, labelbottom=row == len(quantities) - 1)
            _draw_bar(sheet.bar(width - BAR_LABELS - BAR, panel, BAR, high), image, name)
        sheet.text((left + width - BAR_LABELS - BAR - GAP) / 2, below - 0.12, "round", ha="center")
        return sheet.finished(said)


def _headings(runs: Sequence[str], letters: int) -> tuple[list[str], list[str]]:
    """Return a heading a column, of so many letters at most, and a key: where too few are left of a name that is
    longer, columns are called by letters."""
    if letters >= CUT or max(map(len, runs)) <= letters:
        return [shorten_label(run, letters) for run in runs], []
    named = column_letters(len(runs))
    return named, [
        f"{letter}:\N{NO-BREAK SPACE}{shorten_label(run, 40)}" for letter, run in zip(named, runs, strict=True)
    ]


def _quantities(result: Dispersion) -> dict[str, tuple[str, str]]:
    """Return the quantities to draw, with their titles in full and for a narrow figure."""
    drawn = {"median_cv": ("median cv, σ/|μ| (log colours)", "median cv, σ/|μ| (log)")}
    if any(found.clients >= FEWEST for found in result.rounds):
        drawn["skew_rejected_share"] = ("significantly skewed (% of parameters)", "significantly skewed (%)")
    elif any(row.skew_mean_abs is not None for found in result.rounds for row in found.rows):
        drawn["skew_mean_abs"] = ("mean |skewness|", "mean |skewness|")
    return drawn


def _values(result: Dispersion, name: str) -> dict[str, Array]:
    """[layers + 1, rounds] a run; NaN where there is none."""
    unit = 100 if name == "skew_rejected_share" else 1
    values = {}
    for run in result.runs:
        columns = [[getattr(row, name) for row in found.rows] for found in result.rounds if found.run == run]
        values[run] = unit * np.array(columns, dtype=np.float64).T
    return values


def _norm(values: Mapping[str, Array], name: str) -> Any:
    """One scale for all runs."""
    from matplotlib.colors import LogNorm, Normalize

    known = np.concatenate([of_run[np.isfinite(of_run)] for of_run in values.values()])
    if name != "median_cv":
        return Normalize(0.0, float(known.max()) if known.size and known.max() > 0 else 1.0)
    known = known[known > 0]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.1, 1.0)
    return LogNorm(*((low, high) if high > 1.05 * low else (low / 1.5, high * 1.5)), clip=True)


def _tick(axes: Axes, rounds: list[int], layers: list[str], size: tuple[float, float]) -> None:
    """Set as many names as there is room for; the whole model always has its own."""
    last = len(layers) - 1
    step = ceil(NAME / (size[1] / len(layers)))
    named = [i for i in range(0, last, step) if i <= last - step] + [last]
    axes.set_yticks(named, [layers[i] for i in named])
    room = (max(len(str(number)) for number in rounds) + 1.2) * CHARACTER
    shown = range(0, len(rounds), ceil(room / (size[0] / len(rounds))))
    axes.set_xticks(shown, [str(rounds[i]) for i in shown])


def _draw_bar(axes: Axes, image: Any, name: str) -> None:
    from matplotlib.ticker import NullLocator

    if name != "median_cv":
        color_bar(axes, image, most=4, quarters=True)
        return
    axis = color_bar(axes, image).ax.yaxis
    low, high = image.norm.vmin, image.norm.vmax
    decades(axis, (1,) if high > 1e3 * low else (1, 3) if high > 30 * low else (1, 2, 5), 12)
    axis.set_minor_locator(NullLocator())


def _clients(found: Sequence[RoundDispersion] | Sequence[LayerMap]) -> str:
    """Return the number of clients, in words."""
    counts = sorted({one.clients for one in found})
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _remark(result: Dispersion, quantities: Collection[str]) -> str:
    parts = [f"{_clients(result.rounds)} clients; {WHOLE}: the whole model"]
    if "skew_rejected_share" in quantities:
        parts.append(
            f"D'Agostino's test of skewness, false discovery rate {100 * result.fdr:g} % within each layer and, in "
            f"the row {WHOLE}, over the model: descriptive, because parameters are dependent"
        )
    if any(not np.isfinite(values).all() for name in quantities for values in _values(result, name).values()):
        parts.append("grey: no value")
    parts += map(literal, result.attrs.get("left_out", ()))
    return "; ".join(parts)


@drawing
def draw_any_layers(result: Dispersion, width: float = 3.5, title: str | None = None) -> Figure | None:
    """Single layers where the result has maps of them; None where it has not."""
    return draw_layers(result.maps, width, title) if result.maps else None


@drawing
def draw_layers(maps: Sequence[LayerMap], width: float = 3.5, title: str | None = None) -> Figure:
    """A row a layer; in narrow figures the two panels stand one above the other."""
    with paper_style(width):
        stacked = width < NARROW
        room = width - LEFT - BAR_GAP - THIN_BAR - NUMBERS
        first, second = (room, room) if stacked else (0.46 * (room - BETWEEN), 0.54 * (room - BETWEEN))
        high = max(HIGH, 0.75 * second)
        remark = (
            f"black: {_clients(maps)} independent normal values (simulated); parameters of a layer are dependent, so "
            "this is a description, not a test of the layer; grey: no parameter"
        )
        said = wrap_words(remark, width - 0.2, 0.86)
        top = EDGE + (0.2 if title else 0.04)
        each = LINE + 0.05 + (2 if stacked else 1) * (high + BELOW) + 0.04
        sheet = FigureLayout(width, top + each * len(maps) + LINE * len(said) + EDGE, title)
        scale = _strongest(maps)
        for i, layer in enumerate(maps):
            heading = top + i * each
            words, letters = f"{layer.run}, round {layer.round}: {layer.layer}", int((width - 0.2) / (1.2 * CHARACTER))
            if len(words) > letters:
                words = shorten_label(f"{layer.run}@{layer.round}: {layer.layer}", letters)
            sheet.text(EDGE + 0.04, heading + LINE / 2, literal(words), weight="bold", fontsize=SMALL)
            panel = heading + LINE + 0.05
            _draw_histogram(sheet.axes(LEFT, panel, first, high), layer.histogram)
            across, panel = (LEFT, panel + high + BELOW) if stacked else (LEFT + first + BETWEEN, panel)
            image = _draw_cells(sheet.axes(across, panel, second, high), layer.cells, scale)
            bar = sheet.bar(across + second + BAR_GAP, panel, THIN_BAR, high)
            color_bar(bar, image, "mean skewness", 5, labelpad=2, extend="both")
        return sheet.finished(said)


def _draw_histogram(axes: Axes, histogram: SkewHistogram) -> None:
    edges, counts, expected = histogram.edges, histogram.counts, histogram.expected
    wide = np.diff(edges)
    axes.stairs(counts / max(counts.sum(), 1) / wide, edges, fill=True, color=COLOURS[4], alpha=0.75)
    axes.stairs(expected / wide, edges, color="black", linewidth=0.9, baseline=None)
    reach = max(_reach(edges, counts), _reach(edges, expected))
    axes.set_xlim(-reach, reach)
    axes.set_ylim(bottom=0)
    even(axes.xaxis, 4)
    even(axes.yaxis, 4, quarters=True)
    axes.set(xlabel="skewness over clients", ylabel="density")


def _reach(edges: Array, weights: Array | np.ndarray) -> float:
    """Return the distance from 0 within which most lies."""
    if not weights.sum():
        return float(edges[-1])
    outer = np.maximum(np.abs(edges[:-1]), np.abs(edges[1:]))
    order = np.argsort(outer)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(outer[order][min(int(np.searchsorted(share, SEEN)), len(outer) - 1)])


def _draw_cells(axes: Axes, cells: Cells, scale: float) -> Any:
    from matplotlib.collections import PolyCollection
    from matplotlib.ticker import NullLocator

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
    even(axes.xaxis, 4)
    low, high = axes.get_ylim()
    if high < 10 * low:  # no power of ten may lie between them
        even(axes.yaxis, 4)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    else:
        decades(axes.yaxis, numticks=6, plain=False)
    axes.yaxis.set_minor_locator(NullLocator())  # which one panel would have and another not
    axes.set(xlabel="mean over clients, μ", ylabel="deviation, σ (log)")
    return image


def _strongest(maps: Sequence[LayerMap]) -> float:
    """Return the mean skewness that has the strongest colour: nearly all parameters lie in cells of less."""
    sizes = np.concatenate([np.abs(layer.cells.skewness) for layer in maps])
    if not len(sizes):
        return 1.0
    order = np.argsort(sizes)
    share = np.cumsum(np.concatenate([layer.cells.count for layer in maps])[order])
    return max(float(sizes[order][np.searchsorted(share, 0.98 * share[-1])]), FAINTEST)
