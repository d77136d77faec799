"""Heat maps of numbers by layer, one below the other: a row a layer, the last one of all layers, and a column a round
or a model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .color_bar import color_bar
from .heatmaps import heat_map, name_cells, name_rows, room_for, signed_heat_map
from .layout import EDGE, LINE, FigureLayout, wrap_words
from .style import CHARACTER, SMALL, SURFACE, paper_style, shorten_label
from .ticks import decades, power_of_ten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: the gap before a colour bar, the bar, its numbers and label, the name of the axis, a row, all rows at most and
# at least, and the room below a map.
GAP, BAR, NUMBERS, LABEL, ROW, ROWS, FEW, BELOW = 0.07, 0.09, 0.5, 0.16, 0.17, 2.2, 0.5, 0.09
#: a letter of a bar's label, and how far that may be longer than its map
LETTER, BEYOND = 0.06, 0.2
#: letters of a layer's name, at most
LETTERS = 20
#: positive values that lie further apart than this have a logarithmic scale, where a map may have one
APART = 20.0
#: a cell so wide and high, in inches, has its number in it
CELL = 0.4, 0.11
#: and one so wide the error of its number, too
WIDE = 0.85


@dataclass(frozen=True, eq=False)
class LayerHeatmap:
    """One map.

    Attributes:
        title: above it; label: of the colour bar.
        values: [layer, column], NaN where one does not exist.
        signed: whether it is white at 0.
        log: whether its scale may be logarithmic.
        written: whether the number stands in its cell where there is room.
        errors: standard errors over draws of the numbers, [layer, column], which stand with them where there is room,
            and are then explained below; NaN where there is none.
    """

    title: str
    label: str
    values: np.ndarray
    signed: bool = False
    log: bool = False
    written: bool = False
    errors: np.ndarray | None = None


def draw_layer_maps(
    layers: Sequence[str],
    columns: Sequence[str],
    maps: Sequence[LayerHeatmap],
    *,
    axis: str,
    remark: str,
    width: float,
    title: str | None,
) -> Figure:
    """Draw maps one below the other; ``axis`` is the name of the columns, ``remark`` stands below, ``width`` in
    inches."""
    names = [shorten_label(name, LETTERS) for name in layers]
    with paper_style(width):
        left = max(map(len, names)) * CHARACTER + 0.08
        wide = width - left - GAP - BAR - NUMBERS
        high = max(FEW, min(ROW * len(names), ROWS * min(1.0, 2 / len(maps))), *map(_height_of_label, maps))
        room = wide / len(columns) if high / len(names) > CELL[1] else 0.0
        with_errors = [one for one in maps if room > WIDE and one.written and one.errors is not None]
        if any(one.errors is not None and np.isfinite(one.errors).any() for one in with_errors):
            remark += "; ±: standard error over draws"
        said = wrap_words(remark, width - 0.2, 0.9)
        below = room_for(columns, wide) + LABEL
        top = EDGE + (0.2 if title else 0.04)
        block = LINE + high + BELOW
        sheet = FigureLayout(width, top + len(maps) * block + below + LINE * len(said) + EDGE, title)
        for i, one in enumerate(maps):
            at = top + i * block + LINE
            sheet.text(left, at - 0.55 * LINE, one.title, size=SMALL)
            axes = sheet.axes(left, at, wide, high)
            image, log = _draw(axes, one)
            name_rows(axes, names, high)
            if len(names) > 1:
                axes.axhline(len(names) - 1.5, color="black", linewidth=0.6)
            if one.written and room > CELL[0]:
                _write_numbers(axes, image, one, errors=one in with_errors)
            if i == len(maps) - 1:
                name_cells(axes, columns, wide, rows=False)
            else:
                axes.set_xticks([])
            _draw_bar(sheet.bar(left + wide + GAP, at, BAR, high), image, one, high, log=log)
        bottom = top + len(maps) * block - BELOW + below - 0.08
        sheet.text(left + wide / 2, bottom, axis, ha="center", size=SMALL)
        return sheet.finished(said)


def _draw(axes: Axes, one: LayerHeatmap) -> tuple[Any, bool]:
    """The image, and whether its scale is logarithmic."""
    from matplotlib.colors import LogNorm

    known = one.values[np.isfinite(one.values)]
    if one.signed:
        return signed_heat_map(axes, one.values, hatched=True), False
    if one.log and known.size and known.min() > 0 and known.max() > APART * known.min():
        norm = LogNorm(float(known.min()), float(known.max()))
        return heat_map(axes, one.values, SURFACE, hatched=True, norm=norm), True
    return heat_map(axes, one.values, SURFACE, hatched=True), False


def _height_of_label(one: LayerHeatmap) -> float:
    """Return how high a map has to be, in inches, that the label of its bar reaches into no other map."""
    words = re.sub(r"[${}^\\]", "", _label_of(one))
    return LETTER * len(words) - BEYOND


def _label_of(one: LayerHeatmap) -> str:
    """The label of a bar that is not logarithmic, with the power of ten of long numbers."""
    power = power_of_ten(one.values, 3)
    return rf"$10^{{{power}}}$ {one.label}".strip() if power else one.label


def _draw_bar(axes: Axes, image: Any, one: LayerHeatmap, high: float, *, log: bool) -> None:
    """The colour bar; of long numbers the power of ten stands in the unit."""
    if log:
        known = np.abs(one.values[np.isfinite(one.values)])
        long = known.max() >= 1e4 or known.min() < 1e-3
        drawn = color_bar(axes, image, one.label)
        decades(drawn.ax.yaxis, (1,) if long else (1, 3), 6, plain=not long)
        return
    power = power_of_ten(one.values, 3)
    drawn = color_bar(axes, image, _label_of(one), max(2, min(5, int(high / 0.25))))
    if power:
        drawn.ax.yaxis.set_major_formatter(lambda value, _: f"{value / 10.0**power:g}")


def _write_numbers(axes: Axes, image: Any, one: LayerHeatmap, *, errors: bool) -> None:
    """Write each number into its cell, in the one of black and white that can be read there."""
    for (row, column), value in np.ndenumerate(one.values):
        if not np.isfinite(value):
            continue
        words = f"{value:.2g}"
        if errors and one.errors is not None and np.isfinite(error := one.errors[row, column]):
            words = f"{value:.3g} ± {error:.1g}"
        red, green, blue, _ = image.to_rgba(value)
        colour = "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else "black"
        axes.text(column, row, words, ha="center", va="center", fontsize=SMALL, color=colour)
