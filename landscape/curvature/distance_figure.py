"""Local against global flatness: of each measure a row a model, a dot a client. Drawing only."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.style import CHARACTER, COLOURS, SMALL, paper_style, shorten_label
from .distance import ALL
from .panels import (
    LABEL,
    LABELS,
    NARROWEST,
    NUMBERS,
    RIGHT,
    ROW,
    TITLE,
    TITLES,
    remark_of,
    scale_of,
    set_ticks,
    unit_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .distance import FlatnessDistance
    from .result import Curvature, Sharpness

#: of one client; of all clients' data; of the mean over clients
LOCAL, EVERYONE, MEAN = COLOURS[0], "#222222", COLOURS[1]
#: inches a row is higher than one of dots alone: the mean stands below its clients
TALLER = 0.11
WORDS = (
    "dots: one model on one client's data each; black line: on all clients' data; diamond: mean over clients with its "
    "standard error over clients"
)


def draw_distances(result: Sharpness, width: float, title: str | None) -> Figure:
    """Draw the figure: a panel a measure, in each a row a model."""
    names = [name for name in TITLES if any(one.measure == name for one in result.distances)]
    models = {model.named: model for model in result.models if model.place == ALL}
    with paper_style(width):
        margin = min(LABELS, max(map(len, models)) * CHARACTER + 0.12)
        wide, columns = (width - margin - 0.16 - RIGHT) / 2, 2
        if wide < NARROWEST:
            wide, columns = width - margin - RIGHT, 1
        high = (ROW + TALLER) * len(models) + 0.06
        each = TITLE + high + NUMBERS + LABEL
        remark = wrap_words(f"{WORDS}; {remark_of(result, False)}", width - 0.16, 0.85)
        top = EDGE + (0.2 if title else 0.02)
        body = -(-len(names) // columns) * each
        sheet = FigureLayout(width, top + body + 0.08 + LINE * len(remark) + EDGE, title)
        room = int((margin - 0.12) / CHARACTER)
        for i, name in enumerate(names):
            across, down = margin + (i % columns) * (wide + 0.16), top + (i // columns) * each + TITLE
            axes = sheet.axes(across, down, wide, high)
            axes.set_title(TITLES[name], fontsize=SMALL, loc="left", pad=3)
            _rows(axes, name, result, list(models.values()), unit_of(name, result.attrs))
            shown = [shorten_label(label, room) if i % columns == 0 else "" for label in models]
            axes.set_yticks(range(len(models)), shown)
        return sheet.finished(remark, 0.08)


def _rows(axes: Axes, name: str, result: Sharpness, models: list[Curvature], base: str) -> None:
    """Draw a measure: clients in the upper half of a model's row, their mean in the lower one."""
    compared = [_of_model(result, name, model) for model in models]
    local = [_clients(result, name, model) for model in models]
    ends = [value for one in compared for value in (one.everyone, one.mean) if value is not None]
    values = np.concatenate([*local, np.array(ends)])
    log, scale, unit = scale_of(values, base)
    for i, (one, own) in enumerate(zip(compared, local, strict=True)):
        axes.plot(own / scale, np.full(len(own), i - 0.15), "o", color=LOCAL, markersize=2.6, alpha=0.6, linewidth=0)
        if one.everyone is not None and math.isfinite(one.everyone):
            axes.plot([one.everyone / scale] * 2, [i - 0.38, i + 0.4], color=EVERYONE, linewidth=1.2, zorder=4)
        if one.mean is not None and math.isfinite(one.mean):
            bar = None if one.stderr is None else one.stderr / scale
            axes.errorbar(one.mean / scale, i + 0.22, xerr=bar, fmt="D", color=MEAN, markersize=2.6, elinewidth=0.8)
    axes.set_ylim(len(models) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    set_ticks(axes, axes.xaxis, log)
    finite = values[np.isfinite(values)]
    if not log and finite.size and finite.min() >= 0:
        axes.set_xlim(0, 1.1 * float(finite.max()) / scale if finite.max() > 0 else 1)
    axes.set_xlabel(unit, fontsize=SMALL, labelpad=1)


def _of_model(result: Sharpness, name: str, model: Curvature) -> FlatnessDistance:
    key = model.run, model.round, model.model, name
    return next(one for one in result.distances if (one.run, one.round, one.model, one.measure) == key)


def _clients(result: Sharpness, name: str, model: Curvature) -> np.ndarray:
    """The clients' numbers of a measure that exist."""
    found = [one.measure(name) for one in result.models if one.named == model.named and one.place != ALL]
    return np.array([one.value for one in found if one is not None and one.value is not None], dtype=float)
