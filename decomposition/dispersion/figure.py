"""Dispersion and skewness by layer and round. Drawing only."""

from __future__ import annotations

import textwrap
from collections.abc import Collection
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...landscape.drawing.paper import CHARACTER, GREY, SMALL, SURFACE, paper_style, shortened
from ...landscape.drawing.sheet import Sheet
from .result import WHOLE
from .statistics import FEWEST, Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import Dispersion

# Inches. A layer where they are few, and all of them at most; between panels, the colour bar and its numbers.
LAYER, MOST, COLUMN_GAP, GAP, BAR, BAR_LABELS = 0.145, 3.4, 0.1, 0.07, 0.09, 0.52
LINE, EDGE, BOTTOM, NAME = 0.135, 0.05, 0.36, 0.13
NO_VALUE = "#d9d9d9"


def draw_dispersion(result: Dispersion, width: float = 3.5, title: str | None = None) -> Figure:
    """A row of heat maps a quantity, a column a run; rows of a map are layers, the whole model below them."""
    if not result.rounds:
        raise FedscopeError("the result has no round to draw; compute it again with --force")
    layers = [row.layer for row in result.rounds[0].rows]
    quantities = _quantities(result)
    with paper_style(width):
        names = min(max(map(len, layers)), int(0.36 * width / CHARACTER))
        left = names * CHARACTER + 0.12
        wide = (width - left - GAP - BAR - BAR_LABELS + COLUMN_GAP) / len(result.runs) - COLUMN_GAP
        high = min(len(layers) * LAYER, MOST)
        said = textwrap.wrap(_remark(result, quantities), int((width - 0.2) / (0.86 * CHARACTER)))
        top = EDGE + (0.2 if title else 0.04) + (LINE if len(result.runs) > 1 else 0)
        each = LINE + 0.04 + high + 0.1
        below = top + len(quantities) * each - 0.1 + BOTTOM
        sheet = Sheet(width, below + LINE * len(said) + EDGE)
        if title:
            sheet.text(width / 2, EDGE + 0.08, title, ha="center")
        for row, (name, about) in enumerate(quantities.items()):
            panel = top + row * each + LINE + 0.04
            fits = left + len(about[0]) * CHARACTER < width - EDGE
            sheet.text(left if fits else EDGE + 0.04, panel - 0.04 - LINE / 2, about[not fits], fontsize=SMALL)
            values = _values(result, name)
            for column, run in enumerate(result.runs):
                across = left + column * (wide + COLUMN_GAP)
                if row == 0 and len(result.runs) > 1:
                    words = shortened(run, int(wide / (1.2 * CHARACTER)))
                    sheet.text(across + wide / 2, top - LINE / 2, words, ha="center", weight="bold", fontsize=SMALL)
                axes = sheet.axes(across, panel, wide, high)
                image = _draw_map(axes, values[run], name, _limits(values, name))
                rounds = [one.round for one in result.rounds if one.run == run]
                _tick(axes, rounds, [shortened(layer, names) for layer in layers], (wide, high))
                axes.tick_params(labelleft=column == 0, labelbottom=row == len(quantities) - 1)
            bar = sheet.axes(width - BAR_LABELS - BAR, panel, BAR, high)
            _draw_bar(bar, image, name)
        sheet.text((left + width - BAR_LABELS - BAR - GAP) / 2, below - 0.12, "round", ha="center")
        for i, line in enumerate(said):
            sheet.text(EDGE + 0.04, below + (i + 0.5) * LINE, line, color=GREY, fontsize=SMALL)
    return sheet.figure


def _quantities(result: Dispersion) -> dict[str, tuple[str, str]]:
    """What is drawn, and what stands above it, in full and where the figure is narrow."""
    found = {"median_cv": ("median cv, σ/|μ|", "median cv, σ/|μ|")}
    if any(one.clients >= FEWEST for one in result.rounds):
        found["skew_rejected_share"] = ("skewness rejected (% of parameters)", "skewness rejected (%)")
    elif any(row.skew_mean_abs is not None for one in result.rounds for row in one.rows):
        found["skew_mean_abs"] = ("mean |skewness|", "mean |skewness|")
    return found


def _values(result: Dispersion, name: str) -> dict[str, Array]:
    """[layers + 1, rounds] a run; NaN where there is none."""
    unit = 100 if name == "skew_rejected_share" else 1
    made = {}
    for run in result.runs:
        columns = [[getattr(row, name) for row in one.rows] for one in result.rounds if one.run == run]
        made[run] = unit * np.array(columns, dtype=np.float64).T
    return made


def _limits(values: dict[str, Array], name: str) -> tuple[float, float]:
    known = np.concatenate([own[np.isfinite(own)] for own in values.values()])
    if name == "median_cv":
        known = known[known > 0]
        low, high = (float(known.min()), float(known.max())) if known.size else (0.1, 1.0)
        return (low, high) if high > 1.05 * low else (low / 1.5, high * 1.5)
    return 0.0, float(known.max()) if known.size and known.max() > 0 else 1.0


def _draw_map(axes: Axes, values: Array, name: str, limits: tuple[float, float]) -> Any:
    from matplotlib.colors import LogNorm, Normalize

    axes.set_facecolor(NO_VALUE)
    norm = LogNorm(*limits, clip=True) if name == "median_cv" else Normalize(*limits)
    shown = np.ma.masked_invalid(values)
    image = axes.imshow(shown, cmap=SURFACE, norm=norm, interpolation="nearest", aspect="auto")
    axes.set_xlim(-0.5, values.shape[1] - 0.5)
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.axhline(len(values) - 1.5, color="white", linewidth=1.5)
    for spine in axes.spines.values():
        spine.set_visible(True)
    return image


def _tick(axes: Axes, rounds: list[int], layers: list[str], size: tuple[float, float]) -> None:
    """As many names as there is room for; the whole model always has its own."""
    last = len(layers) - 1
    step = ceil(NAME / (size[1] / len(layers)))
    named = [i for i in range(0, last, step) if i <= last - step] + [last]
    axes.set_yticks(named, [layers[i] for i in named])
    room = (max(len(str(number)) for number in rounds) + 1.2) * CHARACTER
    shown = range(0, len(rounds), ceil(room / (size[0] / len(rounds))))
    axes.set_xticks(shown, [str(rounds[i]) for i in shown])
    axes.tick_params(length=0, pad=2)


def _draw_bar(axes: Axes, image: Any, name: str) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    bar = axes.figure.colorbar(image, cax=axes)
    bar.outline.set_linewidth(0.6)
    if name != "median_cv":
        bar.locator = MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10])
        bar.update_ticks()
        return
    low, high = image.norm.vmin, image.norm.vmax
    subs = (1,) if high > 1e3 * low else (1, 3) if high > 30 * low else (1, 2, 5)
    bar.ax.yaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    bar.ax.yaxis.set_major_formatter(_plain_number)
    bar.ax.yaxis.set_minor_locator(NullLocator())


def _plain_number(value: float, _: object) -> str:
    return f"{value:g}"


def _remark(result: Dispersion, quantities: Collection[str]) -> str:
    """What the test was, over how many clients, and what grey means."""
    counts = sorted({one.clients for one in result.rounds})
    clients = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    parts = [f"{clients} clients; {WHOLE}: the whole model"]
    if "skew_rejected_share" in quantities:
        parts.append(
            f"D'Agostino's test of skewness, false discovery rate {100 * result.fdr:g} % within each layer and, in "
            f"the row {WHOLE}, over the model: descriptive, because parameters are dependent"
        )
    if any(not np.isfinite(own).all() for name in quantities for own in _values(result, name).values()):
        parts.append("grey: no value")
    return "; ".join(parts)
