"""Matrices as heat maps, and the names of their rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from .style import CHARACTER, SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: colour-blind safe, white at 0
DIVERGING = "PuOr_r"
#: of cells without a value
NO_VALUE = "#d9d9d9"

#: type is not smaller than this, points
LEGIBLE = 6.0
#: how large names may be of a cell: words, and numbers, which reach below no line and stand clear of each other sooner
WORDS, NUMBERS = 0.9, 1.1
#: the height that the name of a row needs, inches
ROW = 0.1
#: of numbers, where it lets every cell have its own
SMALLEST = 5.5


def heat_map(
    axes: Axes, values: np.ndarray, cmap: str, *, hatched: bool = False, bare: bool = False, **look: Any
) -> Any:
    """Cells [rows, columns] in their colours, grey or hatched where a value is not finite; what ``imshow`` returns.
    ``bare`` ones get no names."""
    if hatched:
        axes.patch.set(facecolor="#e4e4e4", edgecolor="#9a9a9a", hatch="//////", linewidth=0)
    else:
        axes.set_facecolor(NO_VALUE)
    image = axes.imshow(
        np.ma.masked_invalid(values), **{"interpolation": "nearest", "aspect": "auto", **look}, cmap=cmap
    )
    frame(axes, bare=bare)
    return image


def signed_heat_map(axes: Axes, values: np.ndarray, **look: Any) -> Any:
    """Draw a heat map of values with a sign: white at 0, and as strong on either side."""
    finite = np.abs(values[np.isfinite(values)])
    greatest = float(finite.max()) if finite.size and finite.max() > 0 else 1.0
    return heat_map(axes, values, DIVERGING, vmin=-greatest, vmax=greatest, **look)


def frame(axes: Axes, *, bare: bool = False) -> None:
    """Draw a line all round, and next to the cells names without ticks, or nothing."""
    for spine in axes.spines.values():
        spine.set_visible(True)
    axes.tick_params(length=0, pad=2)
    if bare:
        axes.set(xticks=[], yticks=[])


def name_cells(axes: Axes, names: Sequence[str], side: float, *, rows: bool = True) -> None:
    """Write names below the columns of a map of ``side`` inches, upright where they are wider than a cell, and next to
    its rows; of many only every so many, so that what stands is legible."""
    size, step = _size(names, side)
    at = range(0, len(names), step)
    shown = [names[i] for i in at]
    axes.set_xticks(at, shown, fontsize=size, rotation=0 if _level(names, side) else 90)
    if rows:
        axes.set_yticks(at, shown, fontsize=size)


def room_for(names: Sequence[str], side: float) -> float:
    """Return the height of the names below the columns of a map of ``side`` inches."""
    size, _ = _size(names, side)
    return 0.13 if _level(names, side) else 0.05 + max(map(len, names)) * CHARACTER * size / SMALL


def room_beside(names: Sequence[str], side: float) -> float:
    """Return the width of the names next to the rows of a map of ``side`` inches."""
    size, _ = _size(names, side)
    return 0.03 + max(map(len, names)) * CHARACTER * size / SMALL


def _size(names: Sequence[str], side: float) -> tuple[float, int]:
    """Return the size of names in points, and of how many cells one has its name.

    >>> _size(["7"] * 10, 0.75), _size(["7"] * 30, 1.0), _size(["ima"] * 10, 0.75)
    ((5.94, 1), (6.48, 3), (7.0, 2))
    """
    cell = 72 * side / len(names)
    if all(name.isdecimal() for name in names) and NUMBERS * cell >= SMALLEST:
        return min(SMALL, round(NUMBERS * cell, 2)), 1
    room = WORDS * cell
    step = ceil(LEGIBLE / room)
    return min(SMALL, round(step * room, 2)), step


def _level(names: Sequence[str], side: float) -> bool:
    size, step = _size(names, side)
    return (max(map(len, names)) + 0.8) * CHARACTER * size / SMALL < step * side / len(names)


def name_rows(axes: Axes, names: Sequence[str], high: float) -> None:
    """As many names of rows as there is room for; the last one, of the whole model, always.

    Args:
        high: how high the rows are together, inches.
    """
    last = len(names) - 1
    step = ceil(ROW / (high / len(names)))
    at = [*(i for i in range(0, last, step) if i <= last - step), last]
    axes.set_yticks(at, [names[i] for i in at], fontsize=SMALL)
