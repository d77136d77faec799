"""The error of means over windows against their length, and over rounds. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...plotting.drawing import drawing
from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.looks import looks_of
from ...plotting.spread import mean_band
from ...plotting.style import CHARACTER, describe_data, look_of, paper_style, shorten_label, word_of
from ...plotting.ticks import even, from_zero, label_ends, room_for_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import WindowLine, WindowMeans

# Inches. Room left of the panels and right of them, the panels' height, room below each.
LEFT, RIGHT, HIGH, BELOW = 0.49, 0.1, 1.3, 0.36
# Letters of a run's name; names stand 6 % of a panel's width right of it.
LETTERS, AWAY = 11, 0.06


@drawing
def draw(result: WindowMeans, width: float = 3.5, title: str | None = None) -> Figure:
    """Means over the rounds against W, a line a run, in bands of one deviation over the rounds, on a logarithmic axis;
    of one run over several rounds these below, a line a window. ``width`` in inches.

    Raises:
        FedscopeError: no round.
    """
    if not result.rounds:
        raise FedscopeError("the result has no round to draw; compute it again with --force")
    lines = result.lines()
    over_rounds = len(lines) == 1 and len(lines[0].rounds) > 1
    percent = " (%)" if result.measure == "error" else ""
    unit = f"{word_of(result.attrs, 'split')} {result.measure}".strip() + percent
    with paper_style(width):
        said = wrap_words(_remark(result, lines), width - 0.2, 0.86)
        names = [f"W = {window}" for window in lines[0].windows] if over_rounds else [line.run for line in lines]
        longest = min(LETTERS, max(map(len, names))) if len(names) > 1 else 0
        across = (width - LEFT - RIGHT - CHARACTER * longest) / (1 + (AWAY if longest else 0))
        top = EDGE + (0.2 if title else 0.06)
        panels, high = 1 + over_rounds, max(HIGH, room_for_ends(len(names)))
        sheet = FigureLayout(width, top + panels * (high + BELOW) + LINE * len(said) + EDGE, title)
        axes = sheet.axes(LEFT, top, across, high, ylabel=0.34)
        _against_windows(axes, lines, 100 if result.measure == "error" else 1, across)
        axes.set_ylabel(unit)
        if len(lines) > 1:
            label_ends(axes, high)
        if over_rounds:
            below = sheet.axes(LEFT, top + high + BELOW, across, high, ylabel=0.34)
            _over_rounds(below, result)
            below.set_ylabel(unit)
            label_ends(below, high)
        return sheet.finished(said)


def _against_windows(axes: Axes, lines: list[WindowLine], scale: float, across: float) -> None:
    for own, line in zip(looks_of([line.run for line in lines]), lines, strict=True):
        look = {**own, "markersize": 3}
        name = shorten_label(line.run, LETTERS) if len(lines) > 1 else "_run"
        mean, std = scale * line.mean, scale * line.std
        axes.plot(line.windows, mean, label=name, **look)
        if np.isfinite(std).any():
            mean_band(axes, line.windows, mean, std, look["color"])
    axes.set_xscale("log")
    windows = sorted({window for line in lines for window in line.windows})
    axes.set_xticks(windows, labels_apart(windows, across))
    axes.minorticks_off()
    _upwards(axes)
    axes.set_xlabel("$W$, globals in the mean (log)", labelpad=1)


def labels_apart(windows: list[int], across: float) -> list[str]:
    """Return the windows as numbers at a logarithmic axis, from the first one on as many as do not touch."""
    span = np.log(windows[-1] / windows[0]) or 1.0
    said, end = [], -np.inf
    for window in windows:
        middle, half = across * np.log(window / windows[0]) / span, 0.035 * len(str(window))
        fits = middle - half > end + 0.03
        said.append(str(window) if fits else "")
        end = middle + half if fits else end
    return said


def _over_rounds(axes: Axes, result: WindowMeans) -> None:
    scale = 100 if result.measure == "error" else 1
    rounds = [one.round for one in result.rounds]
    for i, first in enumerate(result.rounds[0].rows):
        values = [scale * getattr(one.rows[i], result.measure) for one in result.rounds]
        name = "global" if first.window == 1 else f"W = {first.window}"
        look: dict[str, Any] = {**look_of(i), "linewidth": 0.9, "label": name}
        axes.plot(rounds, values, marker="." if len(rounds) <= 25 else "", markersize=3, **look)
    even(axes.xaxis, 6, integer=True)
    axes.margins(x=0.03)
    _upwards(axes)
    axes.set_xlabel("round", labelpad=1)


def _upwards(axes: Axes) -> None:
    """Numbers of the values, from 0 on unless that would take half of the panel or hide negative ones."""
    even(axes.yaxis, 5, quarters=True)
    axes.autoscale_view()  # now, because labels stand where the lines end, which the limits decide
    low, high = axes.get_ylim()
    if low < high / 2:
        from_zero(axes)


def _remark(result: WindowMeans, lines: list[WindowLine]) -> str:
    spans = {(line.rounds[0], line.rounds[-1], len(line.rounds)) for line in lines}
    first, last, count = min(spans)
    when = f"round {first}" if count == 1 else f"means over {count} rounds, {first} to {last}"
    if len(spans) > 1:
        when = "means over the rounds asked for"
    parts = [f"{when}; W = 1 is global"]
    if any(np.isfinite(line.std).any() for line in lines):
        parts.append("bands: ±1 standard deviation over rounds")
    if result.parts != "all":
        parts.append(f"averaged: {result.parts}, the rest is global's")
    if "data" in result.attrs:
        parts.append(describe_data(result.attrs))
    return "; ".join(parts)
