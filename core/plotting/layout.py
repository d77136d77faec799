"""A figure on which everything has its place in inches: title, panels, entries of a legend, remarks below."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from ..checkpoints import FedscopeError
from .drawing import NarrowError, target
from .legends import legend_inside
from .style import CHARACTER, GREY, SIZE, SMALL, new_figure, shorten_label
from .user_style import WIDTHS, current

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: inches: round what is drawn; of a line of small type
EDGE, LINE = 0.05, 0.135
#: from line to line of a title
TITLE_LINE = 0.14
#: inches of a column of panels in which lines and cells are still told apart, and in which they are easily
SLIMMEST, SLIM = 0.07, 0.2
#: letters of a legend's entry below which it is not cut
FEWEST = 12


class FigureLayout:
    """A figure on which axes and lines of text are placed in inches from its top left corner.

    Where the user gave a part of a figure, that is the sheet. Where the user gave axes, each panel is one of them, with
    its colour bar and legend, and nothing else is drawn.

    Args:
        title: in the middle of the top, where it takes 0.2 inches; what is wider than the figure is broken into lines,
            by which the figure is higher.
        edge: what is free above the title and below the remarks, in inches.

    Raises:
        FedscopeError: a part of a figure that is too low.
    """

    def __init__(self, width: float, height: float, title: str | None = None, edge: float = EDGE) -> None:
        self.width, self.edge = width, edge
        self._target = target()
        lines = title_lines(title, width - 2 * EDGE) if title else []
        self._further = TITLE_LINE * max(0, len(lines) - 1)  # by so much everything stands lower
        self.height = height = height + self._further
        self._kept: list[Any] | None = None  # lines for a legend
        self._last = (0.0, 0.0)  # left and width of the last panel
        self._room = (width, height)
        self.figure: Any
        if self._target.is_axes:
            self.figure = self._target.axes[0].figure
        elif self._target.into is not None:
            self.figure, self._room = room_in(self._target.into, height), self._target.room
        else:
            self.figure = new_figure(width, height)
        for i, line in enumerate(lines):
            self.text(width / 2, edge + 0.08 + TITLE_LINE * i - self._further, line, ha="center")

    @property
    def is_axes(self) -> bool:
        """Whether panels are the user's own axes, with nothing around them."""
        return self._target.is_axes

    def axes(
        self, left: float, top: float, width: float, height: float, ylabel: float | None = None, **shared: Any
    ) -> Axes:
        """Axes with their upper left corner at (left, top), and if given the y label so many inches left of them."""
        self._last = (left, width)
        if self.is_axes:
            return self._target.take(width, height)
        self._target.panels.append((width, height))
        axes = self._add_axes(left, top, width, height, **shared)
        if ylabel is not None:
            axes.yaxis.set_label_coords(-ylabel / width, 0.5)
        return axes

    def bar(self, left: float, top: float, width: float, height: float) -> Axes:
        """Axes for the colour bar of the panel left of it."""
        if self.is_axes:
            return self._target.beside(left - sum(self._last), width)
        return self._add_axes(left, top, width, height)

    def _add_axes(self, left: float, top: float, width: float, height: float, **shared: Any) -> Axes:
        across, down = self._room
        if min(width, height) <= 0:  # a layout that has not foreseen it; matplotlib's own words do not help
            raise FedscopeError(
                f"a figure {self.width * current().room:.3g} inches wide has no room for its panels; give a greater "
                "--width"
            )
        axes: Axes = self.figure.add_axes(
            (left / across, 1 - (top + self._further + height) / down, width / across, height / down), **shared
        )
        return axes

    def text(self, left: float, top: float, words: str, **style: Any) -> None:
        """A line of text whose middle is ``top`` inches from the top."""
        if not self.is_axes:
            down = 1 - (top + self._further) / self._room[1]
            self.figure.text(left / self._room[0], down, words, **{"va": "center", **style})

    def ylabel(self, axes: Axes, left: float, top: float, words: str) -> None:
        """A label of a panel, upright, whose middle is at (left, top)."""
        if self.is_axes:
            axes.set_ylabel(words)
        self.text(left, top, words, rotation=90, ha="center")

    def line(self, left: float, top: float, long: float, look: Mapping[str, Any]) -> None:
        """A line of ``long`` inches as in the panels; of no length a marker."""
        from matplotlib.lines import Line2D

        if self._kept is not None:
            self._kept.append(Line2D([], [], **{**look, **({} if long else {"linestyle": ""})}))
        if self.is_axes:
            return
        across = [left / self._room[0], (left + long) / self._room[0]] if long else [left / self._room[0]]
        down = [1 - (top + self._further) / self._room[1]] * len(across)
        self.figure.add_artist(Line2D(across, down, transform=self.figure.transSubfigure, **look))

    def handles(self, symbol: Callable[[int, float, float], None], count: int) -> list[tuple[Any, ...]]:
        """Return the lines that a function draws for each of some entries of a legend, in axes of the user's own."""
        found = []
        for i in range(count):
            self._kept = []
            symbol(i, 0.0, 0.0)
            found.append(tuple(self._kept))
        self._kept = None
        return found

    def symbol(
        self, left: float, top: float, look: Mapping[str, Any], long: float = 0.0, markersize: float = 3.0
    ) -> None:
        """A marker as in the panels, or a line of ``long`` inches with its marker in the middle."""
        if not long:
            return self.line(left, top, 0.0, look)
        self.line(left, top, long, {name: value for name, value in look.items() if name != "marker"})
        own = {name: value for name, value in look.items() if name in ("markerfacecolor", "markersize")}
        marker = {"color": look["color"], "marker": look["marker"], "markersize": markersize, **own}
        self.line(left + long / 2, top, 0.0, marker)

    def finished(self, remarks: Sequence[str], left: float = EDGE + 0.04) -> Figure:
        """Return the figure, at its bottom what must be known besides the panels, in lines of small type."""
        for i, line in enumerate(remarks):
            top = self.height - self._further - self.edge - LINE * (len(remarks) - i - 0.5)
            self.text(left, top, line, color=GREY, fontsize=SMALL)
        made: Figure = self.figure
        return made


def room_in(part: Any, height: float) -> Any:
    """Return a part of a user's figure, in which a figure so many inches high is laid out.

    Raises:
        FedscopeError: it is lower.
    """
    on, room = target(), current().room
    if on.room[1] < height - 0.01:
        wide, high = (one * room for one in on.room)
        raise FedscopeError(
            f"the figure needs {height * room:.2f} inches of height at a width of {wide:.2f}, but the part of the "
            f"figure has {high:.2f}; make the figure higher, or the type smaller"
        )
    on.used = True
    return part


def column_letters(count: int) -> list[str]:
    """Return what so many columns are called whose names have no room above them.

    >>> column_letters(28)[0], column_letters(28)[-2:]
    ('a', ['aa', 'bb'])
    """
    return [chr(ord("a") + column % 26) * (1 + column // 26) for column in range(count)]


def readable_columns(wide: float, columns: int, width: float, names: float = 0.0) -> float:
    """Return the width of each column of panels, in inches, where so many stand in a figure of ``width``.

    Args:
        wide: of each, as they are.
        names: the share of a wider figure that goes into names beside the columns, which are cut in this one.

    Raises:
        NarrowError: they are too narrow to be read; it says how wide the figure has to be, if it can be.
    """
    on, room = target(), current().room
    if wide >= SLIMMEST - 1e-9:
        return wide
    if on.axes:  # the user's own are as wide as they are
        return wide if wide > 0 else SLIMMEST
    least, good = (
        room * (width + (columns * (column - wide) + (CHARACTER if names else 0.0)) / (1 - names))
        for column in (SLIMMEST, SLIM)
    )
    needed = min(ceil(10 * good) / 10, WIDTHS[1])
    place, wider = ("a figure", "give --width") if on.into is None else ("a part of a figure", "make its width")
    fits = least <= WIDTHS[1]
    remedy = f"{wider} {needed:g}, or draw fewer" if fits else "draw fewer"
    why = f"{columns} columns have no room side by side in {place} {width * room:.3g} inches wide"
    raise NarrowError(why, remedy, needed if fits and on.into is None else None)


def title_lines(title: str, room: float) -> list[str]:
    """Break a title into lines of at most ``room`` inches, between words and not within mathematics; a longer word is
    broken. Its own line breaks stay."""
    return [line for own in title.splitlines() for line in _line_in(own, room)]


def _line_in(title: str, room: float) -> list[str]:
    if _inches(title) <= room:
        return [title]
    lines = [""]
    for word in re.findall(r"(?:\$[^$]*\$|\S)+", title):
        for part in [word] if "$" in word or _inches(word) <= room else _pieces(word, room):
            longer = f"{lines[-1]} {part}".strip()
            if _inches(longer) <= room:
                lines[-1] = longer
            else:
                lines.append(part)
    return [line for line in lines if line]


def _pieces(word: str, room: float) -> list[str]:
    pieces = [""]
    for letter in word:
        if pieces[-1] and _inches(pieces[-1] + letter) > room:
            pieces.append("")
        pieces[-1] += letter
    return pieces


def _inches(words: str) -> float:
    """Return the width of a line of a title; 0 of mathematics that cannot be written, which is refused elsewhere."""
    figure = new_figure(1, 1)
    try:
        return float(figure.text(0, 0, words, fontsize=SIZE).get_window_extent().width / figure.dpi)
    except ValueError:
        return 0.0


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
        if sheet.is_axes:
            legend_inside(target().axes[0], sheet.handles(symbol, len(self.labels)), self.labels)
            return
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
    most = int(min(width - left - key, 100.0) / CHARACTER)
    if most >= FEWEST:  # an entry wider than a row is cut; where there is no row, each has its own
        labels = [label if len(label) <= most else shorten_label(label, most) for label in labels]
    places, at, row = [], left, 0
    for label in labels:
        length = key + CHARACTER * len(label)
        if at > left and at + length > width:
            at, row = left, row + 1
        places.append((at, row))
        at += length + gap
    return LegendRows(tuple(labels), tuple(places))
