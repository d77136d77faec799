"""Errors of a round's models on every client's data as a heat map, and what the average gains each client. Drawing
only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...plotting.color_bar import color_bar
from ...plotting.drawing import drawing
from ...plotting.empty import say_empty
from ...plotting.heatmaps import heat_map, name_cells, room_beside, room_for
from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.style import COLOURS, GREY, SMALL, SURFACE, describe_data, paper_style
from ...plotting.ticks import even
from .result import TEST, left_out, lost_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import Matrix, RoundMatrix

# Inches. Left of the map the axis' name; the colour bar with its gap and numbers; the panel of gains; below it.
LABEL, GAP, BAR, NUMBERS, GAINS, BELOW = 0.16, 0.07, 0.09, 0.42, 0.75, 0.17
# A cell of the map is at most so high.
CELL = 0.2
#: of the shared models, as rows are named
SHORT = {"start": "start", "global": "global", "averaged": "avg", "merged": "merged"}


@drawing
def draw(result: Matrix, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw the last round: a row a model, a column a client's own data and, last, the test data; below it what the
    deployed model gains each client at home, with two standard errors; ``width`` in inches.

    Clients with similar labels are neighbours.
    """
    one = result.rounds[-1]
    values = one.shown()
    rows = [SHORT.get(name, name.removeprefix("client-")) for name in one.models]
    columns = [*(str(k) for k in one.clients), "test"]
    with paper_style(width):
        beside = max(room_beside([name], CELL) for name in rows) + 0.02
        left = LABEL + beside
        wide = width - left - GAP - BAR - NUMBERS
        high = len(rows) * min(CELL, wide / len(columns))
        home = wide * len(one.clients) / len(columns)
        names, own = room_for(columns, wide), room_for(columns[:-1], home)
        said = wrap_words(_remark(result), width - 0.2, 0.9)
        top = EDGE + (0.2 if title else 0.04)
        gains = top + high + names + LABEL + 0.06
        sheet = FigureLayout(width, gains + GAINS + own + BELOW + LINE * len(said) + EDGE, title)
        axes = sheet.axes(left, top, wide, high)
        image = heat_map(axes, values, SURFACE, hatched=True)
        _name(axes, rows, columns, wide, high)
        axes.axhline(len(one.clients) - 0.5, color="white", linewidth=1)
        axes.axvline(len(one.clients) - 0.5, color="white", linewidth=1)
        sheet.text(0.09, top + high / 2, "model", ha="center", rotation=90, size=SMALL)
        sheet.text(left + wide / 2, top + high + names + 0.05, "data of client", ha="center", size=SMALL)
        nat = " (nat)" if result.attrs.get("loss_units", "nat") == "nat" else ""
        label = "error (%)" if one.measure == "error" else f"loss{nat}"
        if np.isfinite(values).any():
            color_bar(sheet.bar(left + wide + GAP, top, BAR, high), image, label, max(2, min(5, int(high / 0.2))))
        below = sheet.axes(left, gains, home, GAINS, ylabel=left - 0.15)
        _draw_gains(below, one, nat)
        name_cells(below, columns[:-1], home, rows=False)
        sheet.text(left + home / 2, gains + GAINS + own + 0.05, "client", ha="center", size=SMALL)
        return sheet.finished(said)


def _name(axes: Axes, rows: list[str], columns: list[str], wide: float, high: float) -> None:
    name_cells(axes, columns, wide, rows=False)
    step = max(1, int(np.ceil(0.1 * len(rows) / high)))
    clients = len(columns) - 1
    # of shared models in thin rows the last one has its name
    at = [*range(0, clients - step // 2, step), *range(clients if step == 1 else len(rows) - 1, len(rows))]
    axes.set_yticks(at, [rows[i] for i in at], fontsize=SMALL if step == 1 and high / len(rows) > 0.1 else 6)


def _draw_gains(axes: Axes, one: RoundMatrix, nat: str) -> None:
    """Gains of the clients at home by the deployed model: above 0 it is better than the client's own model. ``nat`` is
    the unit of the loss."""
    gains = one.gains_of(one.deployed)
    scale = 100 if one.measure == "error" else 1
    value, stderr = (
        np.array(
            [
                np.nan
                if one.is_lost
                or gain.client in one.diverged
                or (x := getattr(gain, f"{one.measure}_gain{end}")) is None
                else scale * x
                for gain in gains
            ]
        )
        for end in ("", "_stderr")
    )
    axes.axhline(0, color=GREY, linewidth=0.6, zorder=1)
    colours = [COLOURS[1] if x < 0 else COLOURS[0] for x in value]
    x = np.arange(len(gains))
    axes.vlines(x, value - 2 * stderr, value + 2 * stderr, colors=colours, linewidth=0.8)
    axes.scatter(x, value, 9, color=colours, zorder=3, linewidths=0)
    axes.set_xlim(-0.5, len(gains) - 0.5)
    axes.margins(y=0.08)
    even(axes.yaxis, 4)
    if not np.isfinite(value).any():
        say_empty(axes, "not finite" if one.is_lost else "none", numbers=False)
    axes.tick_params(axis="x", length=0, pad=2)
    axes.set_ylabel("gain (points)" if one.measure == "error" else f"gain{nat or ' in loss'}")


def _remark(result: Matrix) -> str:
    one = result.rounds[-1]
    parts = [
        f"round {one.round}: {one.measure} of every model on every client's data; below: what the {one.deployed} model "
        "gains a client on its own data (orange: it loses), bars are two standard errors"
    ]
    if one.is_lost:
        parts.append(lost_words(one))
    elif one.diverged:
        parts.append(f"no gain: {left_out(one).rpartition(': ')[2]}, whose own model has no finite loss")
    if np.isnan(one.shown()).any():
        parts.append("hatched: no such sample, or no number")
    if "data" in result.attrs:
        parts.append(_data_words(result))
    return "; ".join(parts)


def _data_words(result: Matrix) -> str:
    """Describe the samples that are shown: those of these clients, and in the last column the test data."""
    if result.attrs.get("split") != "train":  # the last column has all that the others are of
        return describe_data(result.attrs)
    one = result.rounds[-1]
    samples = {cell.place: cell.samples for cell in one.cells}
    test = samples.pop(TEST, 0)
    return f"{describe_data({**result.attrs, 'samples': sum(samples.values())})}, and test, {test:,} samples"
