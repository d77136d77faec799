"""Densities of single parameters over clients, as Figure 2 of Wang et al. (FedSA) draws them. Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.drawing import drawing
from ...plotting.layout import EDGE, LINE, FigureLayout, legend_rows, wrap_words
from ...plotting.style import CHARACTER, COLOURS, DASHES, GREY, MARKERS, SMALL, literal, paper_style, shorten_label
from .density import density_of
from .parameter_names import Array, RunValues
from .result import differ, not_finite
from .summaries import Summary, no_density

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import Parameters

# Inches. Left of the panels and between them; their names, their numbers below, the axis' name.
LEFT, RIGHT, BETWEEN, NAMES, NUMBERS, LABEL = 0.24, 0.1, 0.2, 0.32, 0.2, 0.15
# Panels are at least so wide; at most so many stand side by side.
NARROWEST, COLUMNS = 1.4, 4
# Of an entry of the legend: what it takes before its words, and what is free behind them.
KEY, AFTER = 0.3, 0.14
# The mean width of a digit at the axis, and the least distance between two numbers, in inches.
DIGIT, APART = 0.056, 0.1
# Marks farther than so many widths of the density beyond its ends are arrows, or nothing of it would be seen.
BEYOND = 1.0
# The room of a marker in inches; how much lower, as a share of the panel, one stands that would cover another.
MARKER, STEP = 0.06, 0.09


@dataclass(frozen=True, eq=False)
class Mark:
    """One vertical mark a panel: its ``label``, the ``values`` [n] of the n panels, and matplotlib's ``look``."""

    label: str
    values: Array
    look: dict[str, Any]


def marks_of(runs: Sequence[RunValues]) -> list[Mark]:
    """Return the first run's models, and the global ones of the others; models with the same values in every panel are
    one mark, ``plain average = global``."""
    first, *others = runs
    words = {"start": "start", "fma": "plain average", "global": "global", "averaged": "averaged"}
    if others:
        words |= {"global": f"global of {shorten_label(first.run, 20)}"}
    found = [(words[which], values) for which, values in first.models.items()]
    found += [(f"global of {shorten_label(run.run, 20)}", run.models["global"]) for run in others]
    merged: list[tuple[str, Array]] = []
    for label, values in found:
        same = next((i for i, (_, known) in enumerate(merged) if np.array_equal(known, values, equal_nan=True)), None)
        if same is None:
            merged.append((label, values))
        else:
            merged[same] = (f"{merged[same][0]} = {label}", values)
    looks = iter(range(len(merged)))
    made = []
    for label, values in merged:
        if label.startswith("start"):
            look = {"color": GREY, "linestyle": DASHES[2], "marker": "|"}
        else:
            i = next(looks)
            dash, marker = DASHES[(0, 1, 3)[i % 3]], MARKERS[i % len(MARKERS)]
            look = {"color": COLOURS[i % len(COLOURS)], "linestyle": dash, "marker": marker}
        made.append(Mark(label, values, look))
    return made


@drawing
def draw(result: Parameters, width: float = 3.5, title: str | None = None) -> Figure:
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
        begin = EDGE + 0.04
        labels = [shorten_label(mark.label, int((width - begin - KEY) / CHARACTER)) for mark in marks]
        legend = legend_rows(labels, begin, width, KEY, AFTER)
        each = NAMES + high + NUMBERS
        first = EDGE + (0.2 if title else 0.0)
        top = first + legend.height
        said = wrap_words(_remark(result, marks), width - 0.2, 0.9)
        below = top + rows * each + LABEL + 0.05
        sheet = FigureLayout(width, below + LINE * len(said) + EDGE, title)
        for i, (name, summary) in enumerate(zip(result.names, result.summaries, strict=True)):
            row, column = divmod(i, columns)
            axes = sheet.axes(LEFT + column * (wide + BETWEEN), top + row * each + NAMES, wide, high)
            _panel(axes, result.runs[0].clients[:, i], marks, i, wide)
            _name_panel(axes, shorten_label(name, int(wide / CHARACTER)), summary, high)
            if column == 0:
                sheet.text(0.13, top + row * each + NAMES + high / 2, "density", ha="center", rotation=90)
        sheet.text(LEFT + room / 2, below - 0.05 - LABEL / 2, "parameter value", ha="center")
        long = KEY - 0.06
        legend.draw(sheet, first, lambda i, left, middle: sheet.symbol(left, middle, marks[i].look, long, 3.2), KEY)
        return sheet.finished(said)


def _limits_of(values: Array, marked: Sequence[float]) -> tuple[float, float]:
    """Both ends of a panel's axis: the density of ``values`` [C], or the finite of them, and the marks near it.

    >>> low, high = _limits_of(np.array([0.0, 0.0, 1.0]), [0.5, 90.0])
    >>> low < 0.0 < 1.0 < high < 90.0
    True
    """
    density, finite = density_of(values), values[np.isfinite(values)]
    if density is not None:
        low, high = float(density.at[0]), float(density.at[-1])
    elif len(finite):
        some = float(np.ptp(finite)) / 4 or abs(float(finite[0])) / 50 or 1.0
        low, high = float(finite.min()) - some, float(finite.max()) + some
    else:
        low, high = -1.0, 1.0
    width = BEYOND * (high - low)
    near = [value for value in marked if low - width <= value <= high + width]
    low, high = min([low, *near]), max([high, *near])
    room = 0.04 * (high - low)
    return low - room, high + room


def _panel(axes: Axes, values: Array, marks: Sequence[Mark], i: int, wide: float) -> None:
    """Draw the i-th parameter, ``values`` [C] of the clients, on axes ``wide`` inches wide."""
    density, finite = density_of(values), values[np.isfinite(values)]
    marked = [float(mark.values[i]) for mark in marks]
    low, high = _limits_of(values, marked)
    axes.set(xlim=(low, high), ylim=(0, 1))
    if density is not None:
        axes.fill_between(density.at, density.density, color="#e4e4e4", linewidth=0, zorder=1)
        axes.plot(density.at, density.density, color="#404040", linewidth=0.9, zorder=2)
        axes.set_ylim(0, 1.18 * density.density.max())
    elif len(finite) == len(values):  # all the same: a density of no width
        axes.axvline(finite[0], ymax=0.85, color="#404040", linewidth=0.9, zorder=2)
    arrows = {False: 0, True: 0}
    shown: list[list[float]] = []
    for value, mark in zip(marked, marks, strict=True):
        if low <= value <= high:
            _line(axes, value, mark, 0.965 - STEP * _level(shown, value, MARKER / wide * (high - low)))
        elif np.isfinite(value):
            arrows[value > high] += 1
            _arrow(axes, value > high, 0.965 - 0.1 * arrows[value > high], mark)
    tick: dict[str, Any] = {"color": "black", "markersize": 4.5, "markeredgewidth": 0.7, "zorder": 4}
    axes.plot(finite, np.full(len(finite), 0.035), "|", transform=axes.get_xaxis_transform(), **tick)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    _number(axes, wide)


def _level(shown: list[list[float]], value: float, apart: float) -> int:
    """Return the first row of markers in which there is room for one more, counted from above; takes it."""
    for level, row in enumerate(shown):
        if all(abs(value - other) >= apart for other in row):
            row.append(value)
            return level
    shown.append([value])
    return len(shown) - 1


def _line(axes: Axes, value: float, mark: Mark, up: float) -> None:
    look = {name: part for name, part in mark.look.items() if name != "marker"}
    axes.axvline(value, ymax=0.94, zorder=3, **{**look, "linewidth": 1.0})
    dot: dict[str, Any] = {"color": look["color"], "marker": mark.look["marker"], "markersize": 3.2}
    axes.plot([value], [up], transform=axes.get_xaxis_transform(), clip_on=False, zorder=5, **dot)


def _arrow(axes: Axes, right: bool, up: float, mark: Mark) -> None:
    """A mark that lies outside: an arrow of its colour at the edge."""
    end, towards = (0.995, 9) if right else (0.005, -9)
    arrow = {"arrowstyle": "-|>,head_width=0.13,head_length=0.22", "color": mark.look["color"], "shrinkB": 0}
    places = {"xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate("", (end, up), (-towards, 0), **places, arrowprops=arrow, annotation_clip=False)


def _number(axes: Axes, wide: float) -> None:
    """Set as many numbers at the axis as fit side by side and above no neighbour's: values may have many digits."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    axes.tick_params(labelsize=SMALL - 0.5)
    low, high = axes.get_xlim()
    formatter = ScalarFormatter()
    formatter.set_axis(axes.xaxis)
    formatter.set_scientific(False)  # whose power of ten stands elsewhere
    for most in range(5, 0, -1):
        ticks: Any = np.asarray(MaxNLocator(nbins=most, min_n_ticks=1).tick_values(low, high))
        ticks = ticks[(low <= ticks) & (ticks <= high)]
        labels: Any = np.array(formatter.format_ticks(ticks.tolist()))
        size = max((len(label) for label in labels), default=0) * DIGIT
        places = (ticks - low) / (high - low) * wide
        inside = (places >= size / 2 - APART) & (places <= wide - size / 2 + APART)
        ticks, labels, places = ticks[inside], labels[inside], places[inside]
        every = max(1, int(np.ceil((size + APART / 2) / np.diff(places).min()))) if len(places) > 1 else 1
        if len(ticks[::every]) > 1:  # one number is no scale
            break
    axes.set_xticks(ticks[::every], labels[::every].tolist())


def _words_of(summary: Summary) -> str:
    """Return the line below a panel's name."""
    if summary.constant:
        return "the same in all clients"
    if summary.mode is None:
        return no_density(summary)
    said = [] if summary.skewness is None else [f"skew {summary.skewness:+.2f}"]
    if summary.fma_to_mode is not None:
        said.append(f"average {summary.fma_to_mode:+.2f} σ")
    return "; ".join(said).replace("-", "−")


def _name_panel(axes: Axes, name: str, summary: Summary, height: float) -> None:
    """Two lines above the axes, which are ``height`` inches high."""
    axes.text(0, 1 + 0.165 / height, name, transform=axes.transAxes, size=SMALL, va="bottom")
    axes.text(0, 1 + 0.04 / height, _words_of(summary), transform=axes.transAxes, size=SMALL, color=GREY, va="bottom")


def _remark(result: Parameters, marks: Sequence[Mark]) -> str:
    first = result.runs[0]
    clients = len(first.client_ids)
    parts = [f"{shorten_label(first.run, 24)}, round {first.round}: {clients} clients (ticks); scales differ"]
    if any(summary.fma_to_mode is not None for summary in result.summaries):
        parts.append("σ: from the density's mode, in the clients' standard deviations")
    for i in range(len(result.names)):
        marked = [float(mark.values[i]) for mark in marks]
        low, high = _limits_of(first.clients[:, i], marked)
        if any(isfinite(value) and not low <= value <= high for value in marked):
            parts.append("arrows: beyond the axis")
            break
    if broken := not_finite(result):
        parts.append(f"not finite, and not drawn: {literal(', '.join(broken))}")
    if differ(result):
        parts.append("the runs' rounds began differently: marks do not compare their servers")
    return "; ".join(parts)
