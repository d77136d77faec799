"""The error of an average against the number of models in it. Drawing only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...plotting.drawing import drawing
from ...plotting.layout import EDGE, LINE, FigureLayout, legend_rows, wrap_words
from ...plotting.looks import looks_of
from ...plotting.spread import mean_band
from ...plotting.style import (
    COLOURS,
    GREY,
    MORE_DASHES,
    SURFACE,
    describe_data,
    describe_statistics,
    paper_style,
    run_look,
    shorten_label,
    word_of,
)
from ...plotting.ticks import even, falls_below_zero
from .result import OWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import RoundSubsets, SizeRow, Subsets

# Inches. Room left of the panel, right of it and below it.
LEFT, RIGHT, BOTTOM = 0.46, 0.1, 0.42
SIGN = 0.16  # what a minus and one more digit take
#: the place of a mean over clients' data
MEAN = "clients"


@drawing
def draw(result: Subsets, width: float = 3.5, title: str | None = None) -> Figure:
    """Means over subsets with bands of one standard deviation; ``width`` in inches.

    On the data of several clients there is a thin line for each, and their mean. Of one run a colour a round, of
    several a colour a run and dashes a round. Too many rounds for colours that can be told apart shade from dark to
    light, without bands.
    """
    drawn = _lines(result)
    if not drawn:
        raise FedscopeError("the result has no round to draw; compute it again with --force")
    with paper_style(width):
        looks, many = _looks(drawn), len(drawn) > len(COLOURS)
        named = _entries(drawn, looks)
        legend = legend_rows([label for label, _ in named] if len(drawn) > 1 else [], EDGE + 0.04, width, 0.48)
        said = wrap_words(_remark(result, drawn, bands=not many), width - 0.2, 0.86)
        top = EDGE + (0.2 if title else 0.04)
        panel = top + legend.height + (0.06 if legend.labels else 0)
        high = min(max(0.55 * width, 1.2), 2.4)
        sheet = FigureLayout(width, panel + high + BOTTOM + LINE * len(said) + EDGE, title)
        left = LEFT + (SIGN if _is_negative(drawn) else 0.0)
        axes = sheet.axes(left, panel, width - left - RIGHT, high)
        for one, look in zip(drawn, looks, strict=True):
            if one.place == MEAN:
                for own in _members(result, one):
                    _thin(axes, own, look)
            _curve(axes, one, look, band=not many)
        _finish(axes, result)
        legend.draw(sheet, top, lambda i, left, middle: sheet.symbol(left, middle, named[i][1], 0.3), 0.36)
        return sheet.finished(said)


def _lines(result: Subsets) -> list[RoundSubsets]:
    """Return what is drawn with a marker: each round, and in the place of several clients' data their mean. Where a
    round is drawn on several data, a line is called after them, too."""
    lines = []
    for one in result.rounds:
        group = [own for own in result.on_clients(one) if own.sizes]
        if len(group) > 1 and one is group[0]:
            lines.append(
                replace(one, place=MEAN, sizes=tuple(map(_mean, zip(*(own.sizes for own in group), strict=True))))
            )
        elif len(group) < 2 and one.sizes:
            lines.append(one)
    if len({one.place for one in lines}) < 2:
        return lines
    several = len({one.run for one in lines}) > 1
    return [replace(one, run=f"{one.run}, {_said(one)}" if several else _said(one)) for one in lines]


def _is_negative(drawn: list[RoundSubsets]) -> bool:
    """Whether a loss is below 0, whose numbers have a sign and more digits."""
    return any(row.loss_mean < 0 for one in drawn if one.measure == "loss" for row in one.sizes)


def _said(one: RoundSubsets) -> str:
    return "each client's data" if one.place == MEAN else one.data


def _mean(rows: tuple[SizeRow, ...]) -> SizeRow:
    """Return the mean of a size over clients' data; what scatters over subsets is not that of the mean."""
    error, loss = (float(np.mean([getattr(row, f"{name}_mean") for row in rows])) for name in ("error", "loss"))
    row = replace(rows[0], error_mean=error, error_std=None, error_stderr=None)
    return replace(row, loss_mean=loss, loss_std=None, loss_stderr=None)


def _members(result: Subsets, line: RoundSubsets) -> list[RoundSubsets]:
    """Return a round on each client's data, whose mean a line is."""
    names = {line.run, line.run.removesuffix(f", {_said(line)}")}
    runs = {one.run for one in result.rounds}
    run = next(iter(names & runs), next(iter(runs)))  # of one run a line is called after its data
    first = next(
        one for one in result.rounds if (one.run, one.round) == (run, line.round) and one.of_client is not None
    )
    return [one for one in result.on_clients(first) if one.sizes]


def _thin(axes: Axes, one: RoundSubsets, look: dict[str, Any]) -> None:
    scale = 100 if one.measure == "error" else 1
    mean = [scale * getattr(row, f"{one.measure}_mean") for row in one.sizes]
    axes.plot([row.m for row in one.sizes], mean, color=look["color"], linewidth=0.5, alpha=0.4, zorder=2)


def _curve(axes: Axes, one: RoundSubsets, look: dict[str, Any], *, band: bool) -> None:
    m = np.array([row.m for row in one.sizes])
    scale = 100 if one.measure == "error" else 1
    mean = scale * np.array([getattr(row, f"{one.measure}_mean") for row in one.sizes])
    # the only average of its size has none, and a band that narrows to it would be drawn as if measured
    std = scale * np.array([getattr(row, f"{one.measure}_std") for row in one.sizes], dtype=float)
    axes.plot(m, mean, **{"markersize": 3, **look}, clip_on=False, zorder=3)
    if band:
        mean_band(axes, m, mean, std, look["color"])


def _finish(axes: Axes, result: Subsets) -> None:
    if not falls_below_zero(axes):
        axes.set_ylim(bottom=0)
    axes.margins(x=0.03)
    even(axes.xaxis, 10, integer=True, min_n_ticks=1)
    even(axes.yaxis, 5, quarters=True)
    axes.set_xlabel("clients in the average, $m$")
    losses = all(one.measure == "loss" for one in result.rounds if one.sizes)
    axes.set_ylabel(f"{word_of(result.attrs, 'split')} {'loss' if losses else 'error (%)'}".strip())


def _entries(drawn: list[RoundSubsets], looks: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Return the legend: every line; of many the first, the middle and the last, of many of several runs each run's
    colour and each round's dashes. Two labels may be cut to the same."""
    labels, runs, rounds = _labels(drawn), [one.run for one in drawn], [one.round for one in drawn]
    if len(drawn) <= len(COLOURS):
        return list(zip(labels, looks, strict=True))
    if len(set(runs)) == 1 or len(set(rounds)) == 1:
        return [(labels[i], looks[i]) for i in (0, len(drawn) // 2, len(drawn) - 1)]
    colours = {
        run: {key: look[key] for key in ("color", "marker", "markerfacecolor", "markersize")}
        for run, look in zip(runs, looks, strict=True)
    }
    rows = {f"round {t}": {**look, "color": GREY, "marker": ""} for t, look in zip(rounds, looks, strict=True)}
    return [*((shorten_label(run, 24), look) for run, look in colours.items()), *rows.items()]


def _labels(drawn: list[RoundSubsets]) -> list[str]:
    """Label the lines by what tells them apart: the run, the round, or both."""
    runs, rounds = {one.run for one in drawn}, {one.round for one in drawn}
    if len(runs) == 1:
        return [f"round {one.round}" for one in drawn]
    names = [shorten_label(one.run, 24) for one in drawn]
    return (
        names
        if len(rounds) == 1
        else [
            f"{name}, round {one.round}" if one.place else f"{name}@{one.round}"
            for name, one in zip(names, drawn, strict=True)
        ]
    )


def _looks(drawn: list[RoundSubsets]) -> list[dict[str, Any]]:
    runs = list(dict.fromkeys(one.run for one in drawn))
    rounds = list(dict.fromkeys(one.round for one in drawn))
    if len(runs) > 1 or len(drawn) == 1:
        own = dict(zip(runs, looks_of(runs), strict=True))
        if len(rounds) == 1:
            return [own[one.run] for one in drawn]
        # Runs of one history have the same line: hollow markers, larger for those that are drawn first, show all.
        sizes = {run: min(3 + 1.5 * below, 7.5) for below, run in enumerate(reversed(runs))}
        return [
            {
                "color": own[one.run]["color"],
                "linestyle": MORE_DASHES[rounds.index(one.round) % len(MORE_DASHES)],
                **{"marker": own[one.run]["marker"], "markerfacecolor": "none", "markersize": sizes[one.run]},
            }
            for one in drawn
        ]
    if len(drawn) <= len(COLOURS):
        return [run_look(i) for i in range(len(drawn))]
    import matplotlib

    shades = matplotlib.colormaps[SURFACE](np.linspace(0, 0.9, len(drawn)))
    return [{"color": tuple(shade), "linewidth": 0.8, "marker": "o"} for shade in shades]


def _shared(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the provenance; of several places the number of all their samples."""
    places = {name: count for name, count in attrs.get("places", {}).items() if name != "all"}
    return {**attrs, "samples": sum(places.values())} if places else dict(attrs)


def _remark(result: Subsets, drawn: list[RoundSubsets], *, bands: bool) -> str:
    most = max(row.subsets for one in drawn for row in one.sizes)
    words = {"uniform": "equal weights", "recorded": "recorded weights"}
    how = " or ".join(dict.fromkeys(words.get(one.weights or result.weights, "weights by samples") for one in drawn))
    rounds = sorted({one.round for one in drawn})
    when = f"round {rounds[0]}: " if len(rounds) == 1 else ""
    parts = [f"{when}means over up to {most} subsets of the cohort, {how}"]
    if bands and any(row.error_std is not None for one in drawn for row in one.sizes):
        parts.append("bands: ±1 standard deviation over subsets, where there are several")
    clients = sum(one.of_client is not None for one in result.on_clients(result.rounds[-1]))
    if any(one.place == MEAN for one in drawn):
        parts.append(f"thin: on the data of each of {clients} clients")
    elif {one.place for one in drawn} == {OWN}:
        parts.append(f"each on {drawn[0].data}")
    if "data" in result.attrs:
        parts.append(describe_data(_shared(result.attrs)))
    parts.append(describe_statistics(result.attrs, str(result.attrs.get("normalization_policy", ""))))
    parts.append(result.alignment_words())
    return "; ".join(filter(None, parts))
