"""A figure on which everything has its place in inches: title, panels, entries of a legend, remarks below."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .style import CHARACTER, GREY, SMALL, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: inches: round what is drawn; of a line of small type
EDGE, LINE = 0.05, 0.135


class FigureLayout:
    """A figure on which axes and lines of text are placed in inches from its top left corner.

    Args:
        title: in the middle of the top, where it takes 0.2 inches.
        edge: what is free above the title and below the remarks, in inches.
    """

    def __init__(self, width: float, height: float, title: str | None = None, edge: float = EDGE) -> None:
        self.width, self.height, self.edge = width, height, edge
        self.figure = new_figure(width, height)
        if title:
            self.text(width / 2, edge + 0.08, title, ha="center")

    def axes(
        self, left: float, top: float, width: float, height: float, ylabel: float | None = None, **shared: Any
    ) -> Axes:
        """Axes with their upper left corner at (left, top), and if given the y label so many inches left of them."""
        box = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        axes = self.figure.add_axes(box, **shared)
        if ylabel is not None:
            axes.yaxis.set_label_coords(-ylabel / width, 0.5)
        return axes

    def text(self, left: float, top: float, words: str, **style: Any) -> None:
        """A line of text whose middle is ``top`` inches from the top."""
        self.figure.text(left / self.width, 1 - top / self.height, words, **{"va": "center", **style})

    def line(self, left: float, top: float, long: float, look: Mapping[str, Any]) -> None:
        """A line of ``long`` inches as in the panels; of no length a marker."""
        from matplotlib.lines import Line2D

        across = [left / self.width, (left + long) / self.width] if long else [left / self.width]
        down = [1 - top / self.height] * len(across)
        self.figure.add_artist(Line2D(across, down, transform=self.figure.transFigure, **look))

    def symbol(
        self, left: float, top: float, look: Mapping[str, Any], long: float = 0.0, markersize: float = 3.0
    ) -> None:
        """A marker as in the panels, or a line of ``long`` inches with its marker in the middle."""
        if not long:
            return self.line(left, top, 0.0, look)
        self.line(left, top, long, {name: value for name, value in look.items() if name != "marker"})
        marker = {"color": look["color"], "marker": look["marker"], "markersize": markersize}
        self.line(left + long / 2, top, 0.0, marker)

    def finished(self, remarks: Sequence[str], left: float = EDGE + 0.04) -> Figure:
        """Return the figure, at its bottom what must be known besides the panels, in lines of small type."""
        for i, line in enumerate(remarks):
            top = self.height - self.edge - LINE * (len(remarks) - i - 0.5)
            self.text(left, top, line, color=GREY, fontsize=SMALL)
        return self.figure


def wrap_words(words: str, room: float, share: float = 1.0, *, hyphens: bool = True) -> list[str]:
    """Break a text into lines of small type of at most ``room`` inches; ``share`` of the mean width is what a character
    takes, less than 1 for sentences, which have many narrow ones, and ``hyphens`` lets a line end at one."""
    words = words.replace(" samples", "\N{NO-BREAK SPACE}samples")  # no number without its unit
    lines = textwrap.wrap(words, int(room / (share * CHARACTER)), break_on_hyphens=hyphens)
    return [line.replace("\N{NO-BREAK SPACE}samples", " samples") for line in lines]


@dataclass(frozen=True)
class LegendRows:
    """Entries of a legend, each with its place.

    Attributes:
        places: where each one begins: inches from the left, and its row.
    """

    labels: tuple[str, ...]
    places: tuple[tuple[float, int], ...]

    @property
    def rows(self) -> int:
        """The number of rows; 0 without entries."""
        return 1 + self.places[-1][1] if self.places else 0

    @property
    def height(self) -> float:
        """Inches."""
        return LINE * self.rows

    def draw(self, sheet: FigureLayout, top: float, symbol: Callable[[int, float, float], None], words: float) -> None:
        """Draw all entries below ``top``.

        Args:
            symbol: draws that of the i-th entry, which begins at (left, middle).
            words: from there to the label, in inches.
        """
        for i, (label, (left, row)) in enumerate(zip(self.labels, self.places, strict=True)):
            middle = top + LINE * (row + 0.5)
            symbol(i, left, middle)
            sheet.text(left + words, middle, label, fontsize=SMALL)


def legend_rows(labels: Sequence[str], left: float, width: float, key: float, gap: float = 0.0) -> LegendRows:
    """Lay out the entries of a legend from ``left`` on, as many a row as end before ``width`` inches.

    Args:
        key: what an entry takes besides its characters, in inches; gap: what is free behind it.

    >>> legend_rows(["ima", "fma", "fedprox"], 0.0, 1.0, 0.3).rows, legend_rows([], 0.0, 1.0, 0.3).height
    (2, 0.0)
    """
    places, at, row = [], left, 0
    for label in labels:
        length = key + CHARACTER * len(label)
        if at > left and at + length > width:
            at, row = left, row + 1
        places.append((at, row))
        at += length + gap
    return LegendRows(tuple(labels), tuple(places))
