"""Similarities as heat maps, their means over rounds, and test errors against them, as in Figure 4 of Zhou et al.
Drawing only."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...landscape.drawing.end_labels import label_ends
from ...landscape.drawing.paper import CHARACTER, GREY, SMALL, measured_on, new_figure, paper_style, shortened
from .panels import (
    BAR,
    GAP,
    NUMBERS,
    colour_bar,
    comparable,
    errors_over_similarity,
    heat_map,
    means_over_rounds,
    name_columns,
    room_for,
    scale_of,
)
from .result import OUTPUT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .model_result import ModelCKA
    from .result import ClientCKA, RoundCKA

# Inches. Left of the maps, between them, their titles, the name of the axis below.
LEFT, BETWEEN, TITLE, LABEL = 0.24, 0.09, 0.18, 0.17
# The curves: room left and right of them, their height, room below. The page's edge, a line of small type.
AXIS, ENDS, CURVES, BELOW, EDGE, LINE = 0.5, 0.78, 1.0, 0.32, 0.05, 0.135
# Maps of one round are at least and at most so wide, the latter in a figure of 3.5.
NARROWEST, WIDEST = 0.55, 2.2
# The share of the width that the labels of models take at most.
LABELS = 0.35


def draw_clients(results: Sequence[ClientCKA], width: float = 3.5, title: str | None = None) -> Figure:
    """Heat maps of the first, middle and last round, a row a run, above the means over rounds, and below these test
    errors against the means where they were measured; ``width`` in inches.

    All maps have one colour scale; rows and columns of a map are the clients of its round, in one order. Where the maps
    would be too narrow the middle round is left out. Cells without a value are hatched. Bars are one standard error.

    Raises:
        FedscopeError: no result; results of different layers, which one axis cannot show.
    """
    if not results:
        raise FedscopeError("there is no similarity to draw; give at least one result")
    if len({result.layer for result in results}) > 1:
        layers = ", ".join(dict.fromkeys(result.layer for result in results))
        raise FedscopeError(f"similarities of different layers ({layers}) do not go into one figure; draw one a layer")
    most = 3 if _side(width, 3) >= NARROWEST else 2
    shown = [chosen(result.rounds, most) for result in results]
    columns = max(map(len, shown))
    curves = any(len(result.rounds) > 1 for result in results)
    errors = any(len(comparable(result)) > 1 for result in results)
    scale = scale_of([one.cka for own in shown for one in own])
    with paper_style(width):
        side = _side(width, columns)
        named = [[[str(k) for k in one.client_ids] for one in own] for own in shown]
        ids = max(room_for(names, side) for row in named for names in row)
        remark = _wrapped(_remark(results, curves, errors), width)
        top = EDGE + (0.2 if title else 0.0)
        row = TITLE + side + ids + LABEL
        height = (
            top
            + row * len(results)
            + (0.14 + CURVES + BELOW if curves else 0)
            + (GAP + CURVES + BELOW if errors else 0)
            + LINE * len(remark)
            + EDGE
        )
        figure = new_figure(width, height)
        _heading(figure, title)
        for r, (result, own) in enumerate(zip(results, shown, strict=True)):
            down = height - (top + r * row + TITLE + side)
            for c, one in enumerate(own):
                left = LEFT + c * (side + BETWEEN)
                axes = figure.add_axes((left / width, down / height, side / width, side / height))
                image = heat_map(axes, one.cka, scale, side)
                axes.set_title(f"round {one.round}", fontsize=SMALL, pad=3)
                if room_for(named[r][c], side):
                    name_columns(axes, named[r][c], side)
                at = (left + side / 2) / width, (down - ids - 0.03) / height
                figure.text(*at, "client", ha="center", va="top", size=SMALL)
            name = shortened(result.run, int(side / CHARACTER)) if len(results) > 1 else "client"
            at = 0.13 / width, (down + side / 2) / height
            figure.text(*at, name, ha="center", va="center", rotation=90, size=SMALL)
            colour_bar(figure, image, LEFT + len(own) * (side + BETWEEN) - BETWEEN + GAP, down, side)
        lowest = EDGE + LINE * len(remark) + BELOW
        if errors:
            box = (AXIS / width, lowest / height, (width - AXIS - ENDS) / width, CURVES / height)
            axes = figure.add_axes(box)
            errors_over_similarity(axes, results)
            axes.yaxis.set_label_coords(-0.36 / (width - AXIS - ENDS), 0.5)
            lowest += CURVES + GAP + BELOW
        if curves:
            down = lowest
            box = (AXIS / width, down / height, (width - AXIS - ENDS) / width, CURVES / height)
            axes = figure.add_axes(box)
            means_over_rounds(axes, results)
            axes.yaxis.set_label_coords(-0.36 / (width - AXIS - ENDS), 0.5)
            label_ends(axes, CURVES)
        _remarks(figure, remark)
    return figure


def draw_models(result: ModelCKA, width: float = 3.5, title: str | None = None) -> Figure:
    """The matrix as a heat map, a row and a column a model, named where the names fit; ``width`` in inches."""
    names = [shortened(label, int(LABELS * width / CHARACTER)) for label in result.labels]
    with paper_style(width):
        margin = max(map(len, names)) * CHARACTER + 0.1
        side = width - margin - GAP - BAR - NUMBERS
        below = room_for(names, side)
        remark = _wrapped(_remark([result], False, False), width)
        top = EDGE + (0.2 if title else 0.04)
        height = top + side + (below or margin) + 0.05 + LINE * len(remark) + EDGE
        figure = new_figure(width, height)
        _heading(figure, title)
        down = height - top - side
        axes = figure.add_axes((margin / width, down / height, side / width, side / height))
        image = heat_map(axes, result.cka, scale_of([result.cka]), side)
        if below:
            name_columns(axes, names, side, rows=True)
        else:
            # every so many, so that what stands is legible
            at = list(range(0, len(names), -(-len(names) * 7 // int(72 * side))))
            axes.set_xticks(at, [names[i] for i in at], fontsize=6, rotation=90)
            axes.set_yticks(at, [names[i] for i in at], fontsize=6)
        colour_bar(figure, image, margin + side + GAP, down, side)
        _remarks(figure, remark)
    return figure


def chosen(rounds: Sequence[RoundCKA], most: int = 3) -> list[RoundCKA]:
    """The first, the middle and the last of some rounds, each once; of two only the first and the last.

    >>> chosen("abcd"), chosen("abcd", 2)
    (['a', 'b', 'd'], ['a', 'd'])
    """
    middle = {(len(rounds) - 1) // 2} if most > 2 else set()
    return [rounds[i] for i in sorted({0, len(rounds) - 1} | middle)]


def _side(width: float, columns: int) -> float:
    """Of a map, where there are so many side by side."""
    room = width - LEFT - GAP - BAR - NUMBERS - BETWEEN * (columns - 1)
    return min(room / columns, WIDEST * width / 3.5)


def _heading(figure: Figure, title: str | None) -> None:
    if title:
        figure.text(0.5, 1 - (EDGE + 0.08) / figure.get_figheight(), title, ha="center", va="center")


def _wrapped(remark: str, width: float) -> list[str]:
    return textwrap.wrap(remark, int((width - 0.16) / (0.9 * CHARACTER)))


def _remarks(figure: Figure, lines: Sequence[str]) -> None:
    width, height = figure.get_size_inches()
    for row, words in enumerate(reversed(lines)):
        y = (EDGE + LINE * (row + 0.5)) / height
        figure.text(0.08 / width, y, words, color=GREY, fontsize=SMALL, va="center")


def _remark(results: Sequence[ClientCKA | ModelCKA], curves: bool, errors: bool) -> str:
    """What is compared, by which estimate, what the marks mean, on which data."""
    attrs: Mapping[str, Any] = results[0].attrs
    where = "outputs" if results[0].layer in ("", OUTPUT) else f"layer {results[0].layer}"
    batches = int(attrs.get("batches", 1))
    parts = [f"{attrs.get('estimator', '')} linear CKA of {where}".strip()]
    if curves and batches > 1:
        parts.append(f"bars: standard error over {batches} minibatches")
    if curves and len(results) > 1:
        parts.append("dashed: with global")
    if errors:
        numbers = ", numbers: first and last round" if len(results) == 1 else ""
        parts.append(f"test error: of global, measured while training{numbers}")
    matrices = [result.cka for result in results if hasattr(result, "cka")]
    matrices += [one.cka for result in results if hasattr(result, "rounds") for one in result.rounds]
    broken = sum(int(np.isnan(np.diagonal(matrix)).sum()) for matrix in matrices)
    if broken:
        parts.append("hatched, crosses: not defined" if curves else "hatched: not defined")
    if "data" in attrs:
        parts.append(measured_on(attrs))
    return "; ".join(parts)
