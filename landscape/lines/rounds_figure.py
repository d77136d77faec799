"""The barriers of layers over rounds as two heat maps, a row a layer and a column a round. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.color_bar import color_bar
from ...plotting.drawing import drawing
from ...plotting.heatmaps import heat_map, name_cells, name_rows, room_for
from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.style import (
    CHARACTER,
    SMALL,
    SURFACE,
    describe_alignment,
    describe_data,
    describe_statistics,
    literal,
    paper_style,
    shorten_label,
)
from ...plotting.ticks import power_of_ten
from .betas import coverage_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .rounds_result import LayerRounds

# Inches: the gap before the colour bar, the bar, its numbers and label, the name of the axis, a row, all rows at most
# and at least, and the room below a map.
GAP, BAR, NUMBERS, LABEL, ROW, ROWS, FEW, BELOW = 0.07, 0.09, 0.5, 0.16, 0.17, 2.2, 0.5, 0.09
#: letters of a layer's name, at most
LETTERS = 20


@drawing
def draw_rounds(result: LayerRounds, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw the barrier of every layer in every round: above with the others at A, below with them at B, on one scale;
    ``width`` in inches."""
    names = [shorten_label(name, LETTERS) for name in result.layers]
    rounds = [str(number) for number in result.rounds]
    values, errors = result.known_barriers, result.values("barrier_stderr")
    with paper_style(width):
        left = max(map(len, names)) * CHARACTER + 0.08
        wide = width - left - GAP - BAR - NUMBERS
        high = max(FEW, min(ROW * len(names), ROWS))
        said = wrap_words(_remark(result, values), width - 0.2, 0.9)
        below = room_for(rounds, wide) + LABEL
        top = EDGE + (0.2 if title else 0.04)
        block = LINE + high + BELOW
        sheet = FigureLayout(width, top + 2 * block + below + LINE * len(said) + EDGE, title)
        known = values[np.isfinite(values)]
        limit = float(known.max()) if known.size and known.max() > 0 else 1.0
        power = power_of_ten(known, 2)  # small numbers would be wider than their room
        image: Any = None
        for i, end in enumerate(result.ends):
            at = top + i * block + LINE
            sheet.text(left, at - 0.55 * LINE, _head(end), size=SMALL)
            axes = sheet.axes(left, at, wide, high)
            image = heat_map(axes, values[i] / 10.0**power, SURFACE, hatched=True, vmin=0.0, vmax=limit / 10.0**power)
            sure = np.argwhere(_are_sure(values[i], errors[i]))
            dots: dict[str, Any] = {"color": "black", "markeredgecolor": "white", "markeredgewidth": 0.5}
            axes.plot(sure[:, 1], sure[:, 0], "o", markersize=3, **dots)
            name_rows(axes, names, high)
            if len(names) > 1:
                axes.axhline(len(names) - 1.5, color="white", linewidth=1)
            if i:
                name_cells(axes, rounds, wide, rows=False)
            else:
                axes.set_xticks([])
        bottom = top + 2 * block - BELOW
        sheet.text(left + wide / 2, bottom + below - 0.08, "round", ha="center", size=SMALL)
        unit = "nats" if result.attrs.get("loss_units", "nat") == "nat" else ""
        unit = rf"$10^{{{power}}}$ {unit}".strip() if power else unit
        tall = bottom - top - LINE
        bar = sheet.bar(left + wide + GAP, top + LINE, BAR, tall)
        color_bar(bar, image, f"loss barrier ({unit})" if unit else "loss barrier", max(3, min(5, int(tall / 0.25))))
        return sheet.finished(said)


def _are_sure(values: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Whether barriers are more than two standard errors above 0; not where there is no error, or one of 0."""
    return np.asarray((errors > 0) & (values > 2 * errors))


def _head(end: str) -> str:
    return f"others at {end}" if end in ("global", "start") else f"others at the {end}"


def _remark(result: LayerRounds, values: np.ndarray) -> str:
    first, second = result.ends
    parts = [rf"layers of a row move from {second} at $\beta$ = 0 to {first} at 1"]
    if result.attrs.get("layers") == "cumulative":
        parts.append("to: all layers up to this one")
    parts.append("barrier: the highest rise above the straight line between the ends")
    if _are_sure(values, result.values("barrier_stderr")).any():
        parts.append("dots: more than two standard errors over samples above 0")
    if not np.isfinite(values).all():
        parts.append("hatched: a loss is not finite" if result.is_measured else "hatched: unknown")
    if words := coverage_words(result.beta, r"$\beta$"):
        parts.append(words)
    if "data" in result.attrs:
        parts.append(describe_data(result.attrs))
    policy = describe_statistics(result.attrs, str(result.attrs.get("normalization_policy", "none")))
    aligned = describe_alignment(result.attrs, shorten_label(result.ends[0], 40))
    return "; ".join(filter(None, [*parts, policy, aligned, *map(literal, result.attrs.get("left_out", ()))]))
