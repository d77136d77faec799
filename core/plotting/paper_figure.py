"""A figure whose panels may get titles and labels after it was made, without their being cut off in files."""

from __future__ import annotations

from typing import Any

import matplotlib.figure
import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

from ..results.pictures import in_turn


class Figure(matplotlib.figure.Figure):
    """A figure of which every inch has its use.

    What is written on it after it was made, as by ``axes.set_title``, stands above what is there, and a file is larger
    by what that needs. A figure that nobody wrote on is drawn as it is.
    """

    _said: tuple[str, ...] | None = None

    def settle(self) -> None:
        """Remember what is written on it."""
        self._said = self._words()

    def _words(self) -> tuple[str, ...]:
        found = [self.get_suptitle(), *(text.get_text() for text in self.texts)]
        for axes in self.axes:
            found += [axes.get_title(loc) for loc in ("left", "center", "right")]
            found += [axes.get_xlabel(), axes.get_ylabel()]
        return tuple(found)

    def _is_changed(self) -> bool:
        return self._said is not None and self._said != self._words()

    def draw(self, renderer: Any) -> None:
        """Draw it; a later title stands above other words."""
        with in_turn():
            if self._is_changed():
                _lift_suptitle(self)
                for axes in self.axes:
                    _lift_title(self, axes, renderer)
            super().draw(renderer)

    def savefig(self, fname: Any, **how: Any) -> None:
        """As of matplotlib; a file is larger than the figure where words that were added later reach out of it."""
        with in_turn():
            if self._is_changed() and how.get("bbox_inches") is None:
                self.draw_without_rendering()
                inches = Bbox.from_bounds(0, 0, *self.get_size_inches())
                needed = Bbox.union([inches, self.get_tightbbox().padded(0.02)])
                if (np.asarray(needed.size) > np.asarray(inches.size) + 0.021).any():
                    how |= {"bbox_inches": needed, "pad_inches": 0.0}
            super().savefig(fname, **how)


def _lift_suptitle(figure: Any) -> None:
    """Have a common title stand above a figure whose every inch has its use."""
    if figure.get_suptitle():
        figure._suptitle.set(y=1.0, va="bottom")


def _lift_title(figure: Figure, axes: Axes, renderer: Any) -> None:
    """Move a title that would cover other words of the figure above them."""
    title: Any = axes.title
    if not title.get_text():
        return
    axes._update_title_position(renderer)  # type: ignore[attr-defined]
    box = title.get_window_extent(renderer)
    drawn = [
        one
        for one in (*figure.texts, *figure.lines)
        if one.get_visible() and one.get_window_extent(renderer).y1 <= figure.bbox.y1
    ]
    others = [one.get_window_extent(renderer) for one in drawn]
    others = [other for other in others if other.y0 > axes.bbox.y1 - 1 and other.x0 < box.x1 and other.x1 > box.x0]
    if any(other.y0 < box.y1 and other.y1 > box.y0 for other in others):
        axes._autotitlepos = False  # type: ignore[attr-defined]
        title.set_y((max(other.y1 for other in others) - axes.bbox.y0) / axes.bbox.height)
