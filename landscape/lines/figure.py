"""Lines as a figure: loss and error over β, a colour a pair. Drawing only."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from ..drawing.paper import (
    CHARACTER,
    COLOURS,
    DASHES,
    GREY,
    SMALL,
    measured_on,
    new_figure,
    paper_style,
    shortened,
    statistics_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import Line

# Inches.
LEFT, RIGHT, BOTTOM, LINE, EDGE = 0.55, 0.12, 0.36, 0.135, 0.05


def draw_line(line: Line, width: float = 3.5, title: str | None = None) -> Figure:
    """Loss above error over β, or beside it from 6 inches on; the loss alone where the task has no error.

    Dots are the models themselves; the dotted line is the straight line between them over which the barrier rises.
    """
    beside = width >= 6
    with paper_style(width):
        cell = width / 2 if beside else width
        names = ["loss"] if np.isnan(line.error).all() and np.isfinite(line.loss).any() else ["loss", "error"]
        beside, cell = beside and len(names) > 1, cell if len(names) > 1 else width
        wide, high = cell - LEFT - RIGHT, 1.7 if beside else 1.25
        gap = 0.14
        top = EDGE + (0.2 if title else 0.04)
        body = high if beside else len(names) * (high + gap) - gap
        said = wrap(_remark(line), int((width - 0.1) / CHARACTER), break_on_hyphens=False)
        below = top + body + BOTTOM + 0.06
        entries = _entries(line, width)
        height = below + LINE * (sum(len(words) for words, _ in entries) + len(said)) + 0.03 + EDGE
        figure = new_figure(width, height)
        for i, name in enumerate(names):
            left = LEFT + (i * cell if beside else 0)
            down = top + (0 if beside else i * (high + gap)) + high
            axes = figure.add_axes((left / width, 1 - down / height, wide / width, high / height))
            _curves(axes, line, name)
            if beside or i == len(names) - 1:
                axes.set_xlabel(r"$\beta$")
            else:
                axes.tick_params(labelbottom=False)
            axes.yaxis.set_label_coords(-0.41 / wide, 0.5)
        if title:
            figure.text(0.5, 1 - (EDGE + 0.08) / height, title, ha="center", va="center")
        _legend(figure, entries, below)
        for i, words in enumerate(reversed(said)):
            up = (EDGE + LINE * (i + 0.5)) / height
            figure.text(0.1 / width, up, words, color=GREY, fontsize=SMALL, va="center")
    return figure


def _curves(axes: Axes, line: Line, name: str) -> None:
    from matplotlib.ticker import MaxNLocator

    curves = line.loss if name == "loss" else 100 * line.error
    for end in (0.0, 1.0):
        axes.axvline(end, color="#d0d0d0", linewidth=0.6, zorder=0)
    for i, curve in enumerate(curves):
        colour, dash = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
        axes.plot(line.beta, np.ma.masked_invalid(curve), color=colour, linestyle=dash, zorder=3)
        ends = [int(np.flatnonzero(line.beta == end)[0]) for end in (0.0, 1.0)]
        axes.plot(
            line.beta[ends],
            np.ma.masked_invalid(curve[ends]),
            color=colour,
            linestyle=":" if name == "loss" else "none",
            linewidth=0.7,
            marker="o",
            markersize=4.0,
            markeredgecolor="white",
            markeredgewidth=0.6,
            zorder=4,
        )
        # where values are not finite there is no curve; crosses on the axis say so
        broken = line.beta[~np.isfinite(curve)]
        axes.plot(
            broken,
            np.full(len(broken), 0.03),
            transform=axes.get_xaxis_transform(),
            color=colour,
            linestyle="none",
            marker="x",
            markersize=3,
            clip_on=False,
        )
    finite = curves[np.isfinite(curves)]
    if finite.size and finite.min() > 0 and finite.max() > 20 * finite.min():
        axes.set_yscale("log")
        _plain_log_ticks(axes, float(finite.min()), float(finite.max()))
    else:
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.set_xlim(line.beta[0], line.beta[-1])
    split = str(line.attrs.get("split", "")).strip()
    nats = " (nats)" if line.attrs.get("loss_units", "nat") == "nat" else ""
    axes.set_ylabel(f"{split} {f'loss{nats}' if name == 'loss' else 'error (%)'}".strip())


def _plain_log_ticks(axes: Axes, low: float, high: float) -> None:
    """0.1, 0.3, 1, 3 rather than powers of ten: a loss seldom spans more than two decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    decades = np.log10(high / low)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0) if decades < 3 else (1.0,), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _entries(line: Line, width: float) -> list[tuple[list[str], str]]:
    """For each pair: which end is which, in a line or, where that is too long, in two; and its barrier."""
    entries = []
    for (first, second), barrier, where in zip(line.ends, line.barrier, line.barrier_beta, strict=True):
        said = f"barrier {barrier:.3g} at {where:.2f}" if barrier > 0 else f"barrier {barrier:.3g}"
        room = int((width - 0.5 - RIGHT) / CHARACTER) - len(said) - 2
        if len(first) + len(second) + 12 <= room:
            words = [rf"$\beta$ = 0: {second}, 1: {first}"]
        else:
            words = [rf"$\beta$ = 0: {shortened(second, room - 7)}", rf"$\beta$ = 1: {shortened(first, room - 7)}"]
        entries.append((words, said))
    return entries


def _legend(figure: Figure, entries: list[tuple[list[str], str]], top: float) -> None:
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    for i, (words, said) in enumerate(entries):
        middle = 1 - (top + 0.5 * LINE) / height
        across = [0.12 / width, 0.42 / width]
        figure.add_artist(
            Line2D(across, [middle, middle], color=COLOURS[i % len(COLOURS)], linestyle=DASHES[i % len(DASHES)])
        )
        figure.text(1 - RIGHT / width, middle, said, fontsize=SMALL, va="center", ha="right")
        for line in words:
            figure.text(0.5 / width, 1 - (top + 0.5 * LINE) / height, line, fontsize=SMALL, va="center")
            top += LINE


def _remark(line: Line) -> str:
    parts = []
    if "data" in line.attrs:
        parts.append(measured_on(line.attrs))
    parts.append(statistics_of(line.attrs, str(line.attrs.get("normalization_policy", "none"))))
    broken = int(np.count_nonzero(~np.isfinite(line.loss)))
    if broken:
        parts.append(f"{broken:,} of {line.loss.size:,} points not finite (crosses)")
    return "; ".join(part for part in parts if part)
