"""A figure on which everything has its place in inches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .paper import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Sheet:
    """A figure on which axes and lines of text are placed in inches from its top left corner."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.figure = new_figure(width, height)

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes with their upper left corner at (left, top)."""
        box = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(box)

    def text(self, left: float, top: float, words: str, **style: Any) -> None:
        """A line of text whose middle is ``top`` inches from the top."""
        self.figure.text(left / self.width, 1 - top / self.height, words, **{"va": "center", **style})

    def key(self, left: float, top: float, look: dict[str, Any]) -> None:
        """A marker as in the panels."""
        from matplotlib.lines import Line2D

        at = Line2D([left / self.width], [1 - top / self.height], transform=self.figure.transFigure, **look)
        self.figure.add_artist(at)
