"""Panels one above the other, whose margins matplotlib finds, below a common legend."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from .drawing import target
from .layout import EDGE, TITLE_LINE, room_in, title_lines
from .legends import legend_above, legend_inside
from .user_style import current

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: inches between panels and round them, where a part of a figure is filled
GAP = 0.06
#: inches: the least height of a panel; from one to the next, so that their labels stand apart; below the last one; a
#: row of a legend
LEAST, APART, BELOW, ROW = 0.9, 1.1, 0.35, 0.15


class PanelStack:
    """So many panels with one axis of abscissae, on a figure of so many inches.

    In a part of the user's figure they fill it; in axes of the user's own each is one of them.

    Attributes:
        panels: from above.
    """

    def __init__(self, width: float, height: float, count: int) -> None:
        self._target, self._size = target(), (width, height)
        on = self._target
        self.figure: Any
        if on.is_axes:
            self.panels: list[Axes] = [on.take(width, height / count) for _ in range(count)]
            self.figure = on.axes[0].figure
            return
        on.panels += [(width, height / count)] * count
        if on.into is not None:
            self.figure = room_in(on.into, height)
        else:
            from matplotlib.figure import Figure

            self.figure = Figure(figsize=(width, height), layout="constrained")
        self.panels = list(self.figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0])

    def finished(
        self, handles: Sequence[Any], columns: int, title: str | None = None, *, long: float | None = None
    ) -> Figure:
        """Return the figure, with a legend and a title above.

        Args:
            long: how long lines in the legend are, in heights of its type; None as in every figure.
        """
        if self._target.is_axes:
            legend_inside(self.panels[0], handles, [str(handle.get_label()) for handle in handles], long=long)
            figure: Figure = self.figure
            return figure
        lines = title_lines(title, self._size[0] - 2 * EDGE) if title else []
        if self._target.into is None:
            self._grow(TITLE_LINE * len(lines) + ROW * ceil(len(handles) / columns))
        legend = legend_above(self.figure, handles, columns, "\n".join(lines), long=long)
        if self._target.into is not None and self.figure.get_figure(root=True).get_layout_engine() is None:
            self._fill(legend)
        drawn: Figure = self.figure
        return drawn

    def _grow(self, above: float) -> None:
        """Make the figure higher where so many inches above the panels leave too little for these."""
        width, height = self._size
        needed = above + LEAST + APART * (len(self.panels) - 1) + BELOW
        if needed > height:
            self.figure.set_size_inches(width, needed)

    def _fill(self, legend: Any) -> None:
        """Place the panels of a part of a figure, which nobody lays out, below the legend."""
        from matplotlib.transforms import Bbox

        from .zoom import enlarge

        part, room, gap = self.figure, current(), GAP * self.figure.get_figure(root=True).dpi
        # numbers and labels are as large here as they will be once enlarged
        enlarge(self.panels, room.room, room.zoom)
        top = part.bbox.y1 - gap
        long = legend.get_window_extent()
        middle = (part.bbox.x0 + part.bbox.x1) / 2
        corner = part.transSubfigure.inverted().transform((middle, top))
        legend.set_loc("upper center")
        legend.set_bbox_to_anchor(tuple(corner), part.transSubfigure)
        top -= long.height + gap
        around: list[Any] = [axes.get_tightbbox() for axes in self.panels]
        left = max(axes.bbox.x0 - box.x0 for axes, box in zip(self.panels, around, strict=True)) + gap
        right = max(box.x1 - axes.bbox.x1 for axes, box in zip(self.panels, around, strict=True)) + gap
        below = self.panels[-1].bbox.y0 - around[-1].y0 + gap
        high = (top - part.bbox.y0 - below - 2 * gap * (len(self.panels) - 1)) / len(self.panels)
        for i, axes in enumerate(self.panels):
            y = top - high * (i + 1) - 2 * gap * i
            box = Bbox.from_extents(part.bbox.x0 + left, y, part.bbox.x1 - right, y + high)
            axes.set_position(box.transformed(part.transSubfigure.inverted()))
