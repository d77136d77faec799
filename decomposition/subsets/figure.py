"""The error of an average against the number of models in it. Drawing only."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...landscape.drawing.paper import (
    CHARACTER,
    COLOURS,
    DASHES,
    GREY,
    MARKERS,
    SMALL,
    SURFACE,
    measured_on,
    paper_style,
    shortened,
)
from ...landscape.drawing.sheet import Sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import RoundSubsets, Subsets

# Inches. Room left of the panel and below it, a line of small type, and a line of the legend before its words.
LEFT, RIGHT, BOTTOM, LINE, EDGE, KEY = 0.46, 0.1, 0.42, 0.135, 0.05, 0.36


def draw_subsets(result: Subsets, width: float = 3.5, title: str | None = None) -> Figure:
    """Means over subsets with bands of one standard deviation; ``width`` in inches.

    Of one run a colour a round, of several a colour a run and dashes a round. Too many rounds for colours that can be
    told apart shade from dark to light, without bands.
    """
    drawn = [one for one in result.rounds if one.sizes]
    if not drawn:
        raise FedscopeError("the result has no round to draw; compute it again with --force")
    with paper_style(width):
        labels, looks = _labels(drawn), _looks(drawn)
        many = len(drawn) > len(COLOURS)
        shown = [0, len(drawn) // 2, len(drawn) - 1] if many else list(range(len(drawn)))
        legend = _legend_rows([labels[i] for i in shown], width) if len(drawn) > 1 else []
        said = textwrap.wrap(_remark(result, drawn, bands=not many), int((width - 0.2) / (0.86 * CHARACTER)))
        top = EDGE + (0.2 if title else 0.04)
        panel = top + LINE * len(legend) + (0.06 if legend else 0)
        high = min(max(0.55 * width, 1.2), 2.4)
        below = panel + high + BOTTOM
        sheet = Sheet(width, below + LINE * len(said) + EDGE)
        if title:
            sheet.text(width / 2, EDGE + 0.08, title, ha="center")
        axes = sheet.axes(LEFT, panel, width - LEFT - RIGHT, high)
        for one, look in zip(drawn, looks, strict=True):
            _curve(axes, one, look, band=not many)
        _finish(axes, result)
        for row, entries in enumerate(legend):
            for i, across in entries:
                at = top + (row + 0.5) * LINE
                _key(sheet, across, at, looks[shown[i]])
                sheet.text(across + KEY, at, labels[shown[i]], fontsize=SMALL)
        for i, line in enumerate(said):
            sheet.text(EDGE + 0.04, below + (i + 0.5) * LINE, line, color=GREY, fontsize=SMALL)
    return sheet.figure


def _curve(axes: Axes, one: RoundSubsets, look: dict[str, Any], *, band: bool) -> None:
    m = np.array([row.m for row in one.sizes])
    scale = 100 if one.measure == "error" else 1
    mean = scale * np.array([getattr(row, f"{one.measure}_mean") for row in one.sizes])
    # the only average of its size lies where the band ends
    known = [(getattr(row, f"{one.measure}_std"), row.exhaustive) for row in one.sizes]
    std = scale * np.array([0.0 if spread is None and whole else spread for spread, whole in known], dtype=float)
    axes.plot(m, mean, markersize=3, clip_on=False, zorder=3, **look)
    if band:
        axes.fill_between(m, mean - std, mean + std, color=look["color"], alpha=0.16, linewidth=0, zorder=1)


def _finish(axes: Axes, result: Subsets) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_ylim(bottom=0)
    axes.margins(x=0.03)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.set_xlabel("clients in the average, $m$")
    losses = all(one.measure == "loss" for one in result.rounds if one.sizes)
    axes.set_ylabel(f"{result.attrs.get('split', '')} {'loss' if losses else 'error (%)'}".strip())


def _labels(drawn: list[RoundSubsets]) -> list[str]:
    """What tells the lines apart: the run, the round, or both."""
    runs, rounds = {one.run for one in drawn}, {one.round for one in drawn}
    if len(runs) == 1:
        return [f"round {one.round}" for one in drawn]
    names = [shortened(one.run, 24) for one in drawn]
    return names if len(rounds) == 1 else [f"{name}@{one.round}" for name, one in zip(names, drawn, strict=True)]


def _looks(drawn: list[RoundSubsets]) -> list[dict[str, Any]]:
    runs = list(dict.fromkeys(one.run for one in drawn))
    rounds = list(dict.fromkeys(one.round for one in drawn))
    if len(runs) > 1:
        return [_look(runs.index(one.run), rounds.index(one.round)) for one in drawn]
    if len(drawn) <= len(COLOURS):
        return [_look(i, i) for i in range(len(drawn))]
    import matplotlib

    shades = matplotlib.colormaps[SURFACE](np.linspace(0, 0.9, len(drawn)))
    return [{"color": tuple(shade), "linewidth": 0.8, "marker": "o"} for shade in shades]


def _look(colour: int, dash: int) -> dict[str, Any]:
    return {
        "color": COLOURS[colour % len(COLOURS)],
        "linestyle": DASHES[dash % len(DASHES)],
        "marker": MARKERS[dash % len(MARKERS)],
    }


def _legend_rows(labels: list[str], width: float) -> list[list[tuple[int, float]]]:
    """Entries of the legend with their place across, by row: as many side by side as fit."""
    made: list[list[tuple[int, float]]] = [[]]
    across = EDGE + 0.04
    for i, label in enumerate(labels):
        needs = KEY + len(label) * CHARACTER + 0.12
        if made[-1] and across + needs > width:
            made.append([])
            across = EDGE + 0.04
        made[-1].append((i, across))
        across += needs
    return made


def _key(sheet: Sheet, across: float, at: float, look: dict[str, Any]) -> None:
    from matplotlib.lines import Line2D

    ends = [across / sheet.width, (across + KEY - 0.06) / sheet.width]
    line = {name: value for name, value in look.items() if name != "marker"}
    sheet.figure.add_artist(Line2D(ends, [1 - at / sheet.height] * 2, **line))
    sheet.key(across + (KEY - 0.06) / 2, at, {"color": look["color"], "marker": look["marker"], "markersize": 3})


def _remark(result: Subsets, drawn: list[RoundSubsets], *, bands: bool) -> str:
    """What was averaged, what the bands are, and on which data."""
    most = max(row.subsets for one in drawn for row in one.sizes)
    how = "equal weights" if result.weights == "uniform" else "weights by samples"
    rounds = sorted({one.round for one in drawn})
    when = f"round {rounds[0]}: " if len(rounds) == 1 else ""
    parts = [f"{when}means over up to {most} subsets of the cohort, {how}"]
    if bands and any(row.error_std is not None for one in drawn for row in one.sizes):
        parts.append("bands: ±1 standard deviation over subsets")
    if "data" in result.attrs:
        parts.append(measured_on(result.attrs))
    return "; ".join(parts)
