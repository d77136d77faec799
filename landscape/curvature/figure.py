"""Curvature over rounds, a colour a run, or a row a model; spectral densities below. Drawing only."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...checkpoints import FedscopeError
from ..drawing.paper import CHARACTER, COLOURS, DASHES, GREY, SMALL, measured_on, new_figure, paper_style, shortened
from .panels import SPREAD, densities, kinds_of, over_rounds, rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .result import Curvature, Sharpness

TITLES = {
    "eigenvalue_1": "largest eigenvalue",
    "trace": "trace",
    "worst_case": "worst rise",
    "ball_mean": "mean rise",
    "filter_worst_case": "worst rise, filters",
    "filter_mean": "mean rise, filters",
}

# Inches. Two columns of panels; LABELS is the most that names of models take.
LEFT, RIGHT, EDGE, LINE, TITLE = 0.52, 0.1, 0.05, 0.135, 0.18
OVER_ROUNDS, ROW, DENSITY, LABELS = 0.85, 0.15, 1.15, 1.25
# Below a panel: its numbers, and where it has one its label.
NUMBERS, LABEL = 0.17, 0.15


def draw_sharpness(result: Sharpness, width: float = 3.5, title: str | None = None) -> Figure:
    """The figure of a result, ``width`` in inches: a panel a measure, bars of one standard error where there is one.

    Over rounds where a run has several, a colour a run; else a row a model. Densities below, of the last round.

    Raises:
        FedscopeError: nothing to draw.
    """
    names = [name for name in TITLES if any(model.measure(name) is not None for model in result.models)]
    if not names:
        raise FedscopeError("the result has no measure to draw; compute it again with --force")
    lines = _by_run(result.models)
    labels = list(lines) if lines else [model.label for model in result.models]
    last = [own[-1] for own in lines.values()] if lines else list(result.models)
    nats = "nats" if result.attrs.get("loss_units", "nat") == "nat" else ""
    spectra = {i: model for i, model in enumerate(last) if model.spectrum is not None}
    with paper_style(width):
        margin = LEFT if lines else min(LABELS, max(map(len, labels)) * CHARACTER + 0.12)
        between = LEFT if lines else 0.16
        wide = (width - margin - between - RIGHT) / 2
        high = OVER_ROUNDS if lines else ROW * len(labels) + 0.08
        each = TITLE + high + (0.06 if lines else NUMBERS + LABEL)
        legend = _rows_of(labels, width) if len(labels) > 1 and (lines or spectra) else []
        remark = textwrap.wrap(_remark(result, bool(lines)), int((width - 0.16) / (0.85 * CHARACTER)))
        first = EDGE + (0.2 if title else 0.02)
        top = first + LINE * len(legend)
        body = -(-len(names) // 2) * each + (NUMBERS + LABEL if lines else 0.0)
        below = 0.06 + TITLE + DENSITY + NUMBERS + LABEL if spectra else 0.0
        height = top + body + below + 0.08 + LINE * len(remark) + EDGE
        figure = new_figure(width, height)
        if title:
            figure.text(0.5, 1 - (EDGE + 0.08) / height, title, ha="center", va="center")
        _legend(figure, legend, labels, first)
        for i, name in enumerate(names):
            left = margin + (i % 2) * (wide + between)
            upper = top + (i // 2) * each + TITLE
            axes = figure.add_axes((left / width, 1 - (upper + high) / height, wide / width, high / height))
            axes.set_title(TITLES[name], fontsize=SMALL, loc="left", pad=3)
            if lines:
                over_rounds(axes, name, lines, nats)
                axes.yaxis.set_label_coords(-0.37 / wide, 0.5)
                lowest = i + 2 >= len(names)
                axes.tick_params(labelbottom=lowest)
                axes.set_xlabel("round" if lowest else "", labelpad=1)
            else:
                rows(axes, name, result.models, len(labels) if spectra else 1, nats)
                room = int((margin - 0.12) / CHARACTER)
                shown = [shortened(label, room) if i % 2 == 0 else "" for label in labels]
                axes.set_yticks(range(len(labels)), shown)
        if spectra:
            upper = top + body + 0.06 + TITLE
            box = (LEFT / width, 1 - (upper + DENSITY) / height, (width - LEFT - RIGHT) / width, DENSITY / height)
            axes = figure.add_axes(box)
            axes.set_title(f"spectral density{f' (1/{nats})' if nats else ''}", fontsize=SMALL, loc="left", pad=3)
            densities(axes, spectra, result)
        for row, words in enumerate(reversed(remark)):
            y = (EDGE + LINE * (row + 0.5)) / height
            figure.text(0.08 / width, y, words, color=GREY, fontsize=SMALL, va="center")
    return figure


def _by_run(models: Sequence[Curvature]) -> dict[str, list[Curvature]]:
    """Each run's models by round; nothing where no run has several rounds, or one has several models of a round."""
    runs: dict[str, list[Curvature]] = {}
    for model in models:
        if model.round is None:
            return {}
        runs.setdefault(model.run, []).append(model)
    rounds = [[model.round for model in own] for own in runs.values()]
    if max(map(len, rounds)) < 2 or any(len(set(own)) < len(own) for own in rounds):
        return {}
    return {run: sorted(own, key=lambda model: model.round or 0) for run, own in runs.items()}


def _rows_of(labels: Sequence[str], width: float) -> list[list[int]]:
    """Entries of the legend, by row: as many side by side as fit."""
    made: list[list[int]] = [[]]
    used = 0.08
    for i, label in enumerate(labels):
        needs = 0.45 + len(shortened(label, 40)) * CHARACTER
        if made[-1] and used + needs > width:
            made.append([])
            used = 0.08
        made[-1].append(i)
        used += needs
    return made


def _legend(figure: Figure, entries: Sequence[Sequence[int]], labels: Sequence[str], top: float) -> None:
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    for row in entries:
        across = 0.08
        y = 1 - (top + LINE / 2) / height
        for i in row:
            colour, dash = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
            ends = [across / width, (across + 0.26) / width]
            figure.add_artist(Line2D(ends, [y, y], color=colour, linestyle=dash, linewidth=1.1))
            label = shortened(labels[i], 40)
            figure.text((across + 0.31) / width, y, label, fontsize=SMALL, va="center")
            across += 0.45 + len(label) * CHARACTER
        top += LINE


def _remark(result: Sharpness, over_rounds: bool) -> str:
    """Radii, data, and what the marks mean."""
    parts = []
    radii = {one.name: one.radius for _, one in result.measures() if one.radius is not None}
    if "worst_case" in radii:
        parts.append(f"rises within {radii['worst_case']:g}")
    if "filter_worst_case" in radii:
        parts.append(f"filters: within {radii['filter_worst_case']:g} of their lengths")
    if any(one.stderr is not None for _, one in result.measures() if one.name in SPREAD):
        parts.append("bars: standard error over draws")
    if over_rounds and kinds_of(result.models) == ["global", "averaged"]:
        parts.append("squares: averaged models")
    broken = sum(one.value is not None and not math.isfinite(one.value) for _, one in result.measures())
    if broken:
        parts.append(f"{broken} numbers not finite (crosses)")
    if "data" in result.attrs:
        parts.append(measured_on(result.attrs))
    return "; ".join(parts)
