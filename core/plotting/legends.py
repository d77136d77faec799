"""Legends that matplotlib lays out, in the style's size of type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .style import CHARACTER, SMALL
from .user_style import SIZE, current
from .zoom import enlarge

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def legend_inside(
    axes: Axes, handles: Sequence[Any], labels: Sequence[str], columns: int = 1, *, long: float | None = None
) -> None:
    """A legend within axes of the user's own, where there is most room; a handle may be several lines in one place, and
    so ``long``, in heights of the type."""
    from matplotlib.legend_handler import HandlerTuple

    if labels:
        enlarge([one for handle in handles for one in _parts(handle)], current().room, current().zoom)
        look: dict[str, Any] = {"ncols": columns, "fontsize": SMALL * current().zoom}
        # seen on any surface, and no reason for a layout to make the panel smaller
        look |= {"frameon": True, "facecolor": "white", "edgecolor": "none", "framealpha": 0.75}
        look |= {} if long is None else {"handlelength": long}
        legend = axes.legend(handles, labels, loc="best", handler_map={tuple: HandlerTuple(ndivide=1)}, **look)
        legend.set_in_layout(False)


def legend_above(
    figure: Any, handles: Sequence[Any], columns: int, title: str | None, *, long: float | None = None
) -> Any:
    """A legend above all panels of a figure or of a part of one, below the title of all; returns it. Handles are so
    ``long``, in heights of the type."""
    enlarge(handles, current().room, current().zoom)
    look: dict[str, Any] = {"ncols": columns, "frameon": False}
    look |= {} if long is None else {"handlelength": long}
    if title:
        look |= {"title": title, "title_fontsize": SIZE * current().zoom}
    if current().zoom != 1:
        look["fontsize"] = SMALL * current().zoom
    legend = figure.legend(handles=handles, loc="outside upper center", **look)
    if title and "\n" in title:
        legend.get_title().set_multialignment("center")
    return legend


def fitting_columns(handles: Sequence[Any], width: float, beside: float = 0.45) -> int:
    """Count the columns of a legend that fit, 4 at most; entries go down a column first.

    Args:
        beside: inches that an entry takes beside its words.
    """
    lengths = [len(handle.get_label()) for handle in handles]
    for columns in range(min(4, len(lengths)), 1, -1):
        parts = np.array_split(lengths, columns)
        if sum(CHARACTER * part.max() + beside for part in parts) <= width:
            return columns
    return 1


def _parts(handle: Any) -> tuple[Any, ...]:
    return handle if isinstance(handle, tuple) else (handle,)
