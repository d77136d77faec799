"""Lines as a figure: loss and error over β, a colour a pair; and what lies between all pairs of models as a heat map.
Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.color_bar import color_bar
from ...plotting.drawing import axes_given, drawing
from ...plotting.heatmaps import name_cells, signed_heat_map
from ...plotting.layout import EDGE, LINE, FigureLayout, legend_rows, wrap_words
from ...plotting.style import (
    CHARACTER,
    SMALL,
    describe_alignment,
    describe_data,
    describe_statistics,
    literal,
    look_of,
    paper_style,
    shorten_label,
    word_of,
)
from ...plotting.ticks import crosses, decades, even
from .betas import coverage_words
from .result import connectivity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import Line

# Inches.
LEFT, RIGHT, BOTTOM = 0.55, 0.12, 0.36
# Of the heat map: room left of the cells and below them, for the bar with its numbers.
NAMES, BELOW, NUMBERS, BAR, GAP = 0.4, 0.42, 0.62, 0.09, 0.07
#: letters of the line that says which end is which; where fewer fit beside the barrier, that stands above
FEWEST = 20
#: points of a straight line that is drawn on a logarithmic axis
BENT = 101


@drawing
def draw_line(line: Line, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw loss above error over β, or side by side from 6 inches on; the loss alone where the task has no error.

    Dots are the models themselves; the dotted line is the straight line between them over which the barrier rises.
    """
    beside = width >= 6
    with paper_style(width):
        cell = width / 2 if beside else width
        alone = axes_given() == 1 or (np.isnan(line.error).all() and np.isfinite(line.loss).any())
        names = ["loss"] if alone else ["loss", "error"]
        beside, cell = beside and len(names) > 1, cell if len(names) > 1 else width
        wide, high = cell - LEFT - RIGHT, 1.7 if beside else 1.25
        gap = 0.14
        top = EDGE + (0.2 if title else 0.04)
        body = high if beside else len(names) * (high + gap) - gap
        said = wrap_words(_remark(line), width - 0.1, hyphens=False)
        below = top + body + BOTTOM + 0.06
        entries = _entries(line, width)
        rows = sum(len(words) + apart for words, _, apart in entries)
        sheet = FigureLayout(width, below + LINE * (rows + len(said)) + 0.03 + EDGE, title)
        for i, name in enumerate(names):
            left, down = (i * cell, 0.0) if beside else (0.0, i * (high + gap))
            axes = sheet.axes(LEFT + left, top + down, wide, high, ylabel=0.41)
            _curves(axes, line, name)
            if beside or i == len(names) - 1:
                axes.set_xlabel(r"$\beta$")
            else:
                axes.tick_params(labelbottom=False)
        if sheet.is_axes and len(line.pairs) > 1:
            pairs = legend_rows([shorten_label(pair, 32) for pair in line.pairs], 0.0, width, 0.3)
            pairs.draw(sheet, 0.0, lambda i, left, middle: sheet.line(left, middle, 0.3, look_of(i)), 0.0)
        for i, (words, barrier, apart) in enumerate(entries):
            sheet.line(0.12, below + 0.5 * LINE, 0.3, look_of(i))
            if apart:
                sheet.text(0.5, below + 0.5 * LINE, barrier, fontsize=SMALL)
                below += LINE
            else:
                sheet.text(width - RIGHT, below + 0.5 * LINE, barrier, fontsize=SMALL, ha="right")
            for which in words:
                sheet.text(0.5, below + 0.5 * LINE, which, fontsize=SMALL)
                below += LINE
        return sheet.finished(said, 0.1)


@drawing
def draw_connectivity(line: Line, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw the excess in the middle as a heat map, a row and a column a model; ``width`` in inches.

    Violet cells: the mean of the two is better than they are on average; orange ones: a barrier.
    """
    labels, _, middles = connectivity(line)
    names = [shorten_label(label.rpartition("client-")[2] or label, 24) for label in labels]
    with paper_style(width):
        left = max(NAMES, max(map(len, names)) * CHARACTER + 0.24)
        side = width - left - GAP - BAR - NUMBERS
        said = wrap_words("; ".join(_describe_measurement(line)), width - 0.1, hyphens=False)
        top = EDGE + (0.2 if title else 0.04)
        sheet = FigureLayout(width, top + side + BELOW + LINE * len(said) + EDGE, title)
        axes = sheet.axes(left, top, side, side)
        image = signed_heat_map(axes, middles)  # grey: no pair, or no number
        name_cells(axes, names, side)
        if all("client-" in label for label in labels):
            axes.set(xlabel="client", ylabel="client")
        words = [f"excess loss in the middle{_nats(line)}", "excess loss in the middle", "excess loss"]
        label = next((one for one in words if 0.067 * len(one) <= side), words[-1])
        color_bar(sheet.bar(left + side + GAP, top, BAR, side), image, label, 5, steps=None)
        return sheet.finished(said, 0.1)


def _curves(axes: Axes, line: Line, name: str) -> None:
    curves = line.loss if name == "loss" else 100 * line.error
    finite = curves[np.isfinite(curves)]
    logarithmic = bool(finite.size and finite.min() > 0 and finite.max() > 20 * finite.min())
    for end in (0.0, 1.0):
        axes.axvline(end, color="#d0d0d0", linewidth=0.6, zorder=0)
    for i, curve in enumerate(curves):
        look = look_of(i)
        axes.plot(line.beta, np.ma.masked_invalid(curve), **look, zorder=3)
        ends = [int(np.flatnonzero(line.beta == end)[0]) for end in (0.0, 1.0)]
        dots: dict[str, Any] = {"marker": "o", "markersize": 4.0, "markeredgecolor": "white", "markeredgewidth": 0.6}
        dots |= {"color": look["color"], "linestyle": ":" if name == "loss" else "none", "linewidth": 0.7}
        at, chord = line.beta[ends], curve[ends]
        if logarithmic and np.isfinite(chord).all():  # on such an axis a straight line is bent
            at = np.linspace(0.0, 1.0, BENT)
            chord, dots["markevery"] = chord[0] + at * (chord[1] - chord[0]), [0, BENT - 1]
        axes.plot(at, np.ma.masked_invalid(chord), zorder=4, **dots)
        crosses(axes, line.beta, curve, 0.03, color=look["color"], clip_on=False)
    if logarithmic:
        axes.set_yscale("log")
        # a loss seldom spans more than two decades
        decades(axes.yaxis, (1.0, 3.0) if finite.max() < 1e3 * finite.min() else (1.0,), 12)
    else:
        even(axes.yaxis, 5, quarters=True)
    even(axes.xaxis, 5, quarters=True)
    axes.set_xlim(line.beta[0], line.beta[-1])
    split = word_of(line.attrs, "split")
    log = ", log" if axes.get_yscale() == "log" else ""
    axes.set_ylabel(f"{split} {f'loss{_nats(line)}' if name == 'loss' else 'error (%)'}{log}".strip())


def _nats(line: Line) -> str:
    return " (nats)" if line.attrs.get("loss_units", "nat") == "nat" else ""


def _entries(line: Line, width: float) -> list[tuple[list[str], str, bool]]:
    """Describe each pair: which end is which, in a line or, where that is too long, in two; its barrier, and whether
    that stands on a line of its own, since the figure is too narrow for both."""
    entries = []
    curves = zip(line.ends, line.known_barriers, line.barrier_beta, strict=True)
    for i, ((first, second), barrier, where) in enumerate(curves):
        height = f"barrier {barrier:.3g} at {where:.2f}" if barrier > 0 else f"barrier {barrier:.3g}"
        height = "barrier unknown" if np.isnan(barrier) else height
        room = int((width - 0.5 - RIGHT) / CHARACTER) - len(height) - 2
        if apart := room < FEWEST:
            room += len(height) + 2
        if line.on and len(set(line.ends)) == 1:  # which end is which stands in the remark
            words = [shorten_label(_data_on(line.on[i]), room)]
        elif len(first) + len(second) + 12 <= room:
            words = [rf"$\beta$ = 0: {literal(second)}, 1: {literal(first)}"]
        else:
            words = [
                rf"$\beta$ = 0: {shorten_label(second, room - 7)}",
                rf"$\beta$ = 1: {shorten_label(first, room - 7)}",
            ]
        if line.on and len(set(line.ends)) > 1:
            words = [_data_on(line.on[i]), *words]
        entries.append((words, height, apart))
    return entries


def _data_on(name: str) -> str:
    """Name the data of a curve in words."""
    client = name.partition("client-")[2]
    return f"client {client}'s data" if client else "all clients' data"


def _describe_measurement(line: Line) -> list[str]:
    """Describe the data, the normalization statistics and whose order units have."""
    data = describe_data(line.attrs) if "data" in line.attrs else ""
    if counts := line.attrs.get("places"):
        low, high = min(counts.values()), max(counts.values())
        data = data.replace(f"{high:,} samples", f"{low:,} to {high:,} samples") if low < high else data
    policy = describe_statistics(line.attrs, str(line.attrs.get("normalization_policy", "none")))
    aligned = describe_alignment(line.attrs, shorten_label(line.ends[0][0], 40))
    return [words for words in (data, policy, aligned) if words]


def _remark(line: Line) -> str:
    parts = [*_describe_measurement(line), "barrier: the highest rise above the dotted line"]
    if words := coverage_words(line.beta, r"$\beta$"):
        parts[-1] += f"; {words}"
    if line.on and len(set(line.ends)) == 1:
        first, second = (shorten_label(end, 40) for end in line.ends[0])
        parts.insert(0, rf"$\beta$ = 0: {second}, 1: {first}")
    broken = int(np.count_nonzero(~np.isfinite(line.loss)))
    if broken:
        parts.append(f"{broken:,} of {line.loss.size:,} points not finite (crosses)")
    return "; ".join(parts)
