"""Marks at axes: numbers, crosses where there is no value, names at the ends of lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .drawing import size_of
from .style import CHARACTER, SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis


#: inches: half of a point that is labelled, and a gap
DOT = 0.03
#: of a label at the end of a line
LABEL_HEIGHT = 1.12 * SMALL / 72


def even(axis: Axis, most: int | Literal["auto"], *, quarters: bool = False, **more: Any) -> None:
    """Set at most so many round numbers, 1, 2 or 5 apart, with ``quarters`` also 2.5; ``integer=True`` for rounds, of
    which one may be all there is, and ``steps=None`` for matplotlib's own."""
    from matplotlib.ticker import MaxNLocator

    steps = [1, 2, 2.5, 5, 10] if quarters else [1, 2, 5, 10]
    fewest = {"min_n_ticks": 1} if more.get("integer") else {}  # else it divides the one round that has a number
    axis.set_major_locator(MaxNLocator(most, **{"steps": steps, **fewest, **more}))


def decades(axis: Axis, subs: Sequence[float] = (1.0,), numticks: int | None = None, *, plain: bool = True) -> None:
    """Numbers at a logarithmic axis, every decade or more often; ``plain`` writes 0.1 and 1 rather than powers of
    ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=subs, numticks=numticks))
    if plain:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def power_of_ten(values: np.ndarray, most: int) -> int:
    """Find the power of ten of the greatest value for the unit: none from 0.1 to below 10^(most + 1)."""
    finite = np.abs(values[np.isfinite(values)])
    greatest = float(finite.max()) if finite.size else 0.0
    power = math.floor(math.log10(greatest)) if greatest > 0 else 0
    return 0 if -1 <= power <= most else power


def crosses(axes: Axes, x: np.ndarray, values: np.ndarray, up: float, **look: Any) -> None:
    """Crosses on the axis where values are not finite, so that there is no curve; those of a further line stand above
    them, so that all are seen."""
    broken = x[~np.isfinite(values)]
    up *= 1 + sum(
        line.get_marker() == "x" and line.get_transform() != axes.transData and np.size(line.get_xdata()) > 0
        for line in axes.lines
    )
    place: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "markersize": 3}
    for drawn in axes.plot(broken, np.full(len(broken), up), "x", **place, **look):
        drawn.set_in_layout(len(broken) > 0)  # without a cross it would lie in the corner of a figure


def falls_below_zero(axes: Axes) -> bool:
    """Tell whether a line of the panel has a value below 0, as the losses of a task of one's own may; bands and the
    caps of bars do not count, which may reach there from numbers that are never negative."""
    lines = [line for line in axes.lines if line.get_transform() == axes.transData and line.get_linestyle() != "None"]
    given = [np.ma.array(line.get_ydata(orig=True), dtype=np.float64) for line in lines]
    drawn = [np.ma.filled(np.ma.masked_invalid(values), 0.0) for values in given]
    return any(bool((values < 0).any()) for values in drawn)


def from_zero(axes: Axes) -> None:
    """Begin the values at 0, with room for the markers of the highest ones, of which the margin of a narrow span has
    too little; not where one of them is negative, which would not be seen."""
    axes.autoscale_view(scalex=False)
    if falls_below_zero(axes):
        return
    highest, top = float(axes.dataLim.y1), axes.get_ylim()[1]
    axes.set_ylim(0.0, max(top, 1.08 * highest) if np.isfinite(highest) else top)


def isolated(values: np.ndarray) -> list[int]:
    """Return the places of values without a finite neighbour, through which no line goes.

    >>> isolated(np.array([1.0, np.nan, 2.0, 3.0]))
    [0]
    """
    known = np.isfinite(np.concatenate([[np.nan], values, [np.nan]]))
    return np.flatnonzero(known[1:-1] & ~known[:-2] & ~known[2:]).tolist()


def few_marks(points: int, lines: int, place: int) -> range:
    """Return the places of marks on a line of many points, the ``place``-th of so many: a few, at other points a line,
    because lines of one colour may differ in them alone; none of a line by itself.

    >>> list(few_marks(60, 2, 0)), list(few_marks(60, 2, 1)), list(few_marks(60, 1, 0))
    ([0, 12, 24, 36, 48], [6, 18, 30, 42, 54], [])
    """
    apart = max(1, points // 5)
    return range(place * apart // lines, points, apart) if lines > 1 else range(0)


def room_for_ends(labels: int) -> float:
    """Return how high a panel has to be, in inches, that so many labels of one line stand beside it."""
    return LABEL_HEIGHT * labels


def label_ends(ax: Axes, height: float, beside: Sequence[Axes] = ()) -> None:
    """Write each line's label right of its last finite point, in its colour; labels that would overlap are moved apart
    and tied to their lines. `height` is the panel's, in inches. Lines whose label begins with "_" are left out.

    Args:
        beside: panels left of it with the same values, the nearest first, whose lines may be none of this one's.
    """
    _, height = size_of(ax, 0.0, height)
    places: list[tuple[float, str, str]] = []
    for panel in (ax, *beside):
        known = {label for _, label, _ in places}
        for line in panel.lines:
            label = str(line.get_label())
            values = np.asarray(line.get_ydata(orig=True), dtype=np.float64)
            finite = np.flatnonzero(np.isfinite(values))
            if label.startswith("_") or label in known or not finite.size:
                continue
            # transScale first: on a logarithmic axis the place on paper is not linear in the value.
            _, at = (ax.transScale + ax.transLimits).transform((0.0, values[finite[-1]]))
            places.append((float(at), label, str(line.get_color())))
    places.sort(key=lambda place: place[0])
    sizes = [(1.12 + 1.2 * label.count("\n")) * SMALL / 72 / height for _, label, _ in places]
    for (at, label, color), y in zip(
        places, _kept_beside(spread_apart([at for at, _, _ in places], sizes), sizes), strict=True
    ):
        ax.plot([1.01, 1.05], [at, y], transform=ax.transAxes, color=color, linewidth=0.5, clip_on=False, label="_tie")
        ax.text(1.06, y, label, color=color, size=SMALL, va="center", linespacing=1.0, transform=ax.transAxes)


def _kept_beside(centres: list[float], sizes: list[float]) -> list[float]:
    """Move intervals that lie apart so that they are beside a panel of height 1, where they take most of it; fewer may
    stand out, and more do."""
    if not 0.9 < sum(sizes) < 1 + 1e-9:
        return centres
    top, kept = 1.0, list(centres)
    for i in reversed(range(len(sizes))):
        kept[i] = min(kept[i], top - sizes[i] / 2)
        top = kept[i] - sizes[i] / 2
    low = 0.0
    for i, size in enumerate(sizes):
        kept[i] = max(kept[i], low + size / 2)
        low = kept[i] + size / 2
    return kept


def label_points(
    ax: Axes, points: Sequence[tuple[float, float, str, str]], width: float, height: float, most: int | None = None
) -> None:
    """Write labels next to points (x, y, label, colour) of a panel of ``width`` by ``height`` inches, earlier ones
    first; one that would cover a point or another label, or leave the panel, is left out.

    Args:
        most: of labels.
    """
    width, height = size_of(ax, width, height)
    box = np.array([width, height])
    at = [(ax.transScale + ax.transLimits).transform((x, y)) * box for x, y, _, _ in points]
    taken = [(*(place - DOT), *(place + DOT)) for place in at]
    said = 0
    for place, (_, _, label, colour) in zip(at, points, strict=True):
        wide, high = CHARACTER * len(label), SMALL / 72
        for across, up in ((1, 1), (-1, 1), (1, -1), (-1, -1)):
            middle = place + np.array([across * (wide / 2 + DOT), up * (high / 2 + DOT)])
            half = np.array([wide, high]) / 2
            own = (*(middle - half), *(middle + half))
            inside = (middle >= half).all() and (middle + half <= box).all()
            if inside and said != most and not any(_meet(own, other) for other in taken):
                where = float(middle[0] / width), float(middle[1] / height)
                ax.text(*where, label, color=colour, size=SMALL, ha="center", va="center", transform=ax.transAxes)
                taken.append(own)
                said += 1
                break


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Tell whether two boxes (left, low, right, high) share more than an edge."""
    return all(max(one[i], other[i]) < min(one[i + 2], other[i + 2]) - 1e-9 for i in (0, 1))


def spread_apart(places: list[float], sizes: list[float]) -> list[float]:
    """Move intervals of `sizes` apart that are centred on ascending `places`, as little as needed: groups that touch
    are centred on the mean of their places.

    >>> spread_apart([0.0, 0.5, 3.0], [1.0, 1.0, 1.0])
    [-0.25, 0.75, 3.0]
    """
    groups: list[list[int]] = []
    starts: list[float] = []
    for index in range(len(places)):
        group = [index]
        while True:
            # The lower edge at which the group's members are nearest to their own places.
            offset, wanted = 0.0, []
            for member in group:
                wanted.append(places[member] - offset - sizes[member] / 2)
                offset += sizes[member]
            start = sum(wanted) / len(wanted)
            if not groups or starts[-1] + sum(sizes[member] for member in groups[-1]) <= start:
                break
            group = groups.pop() + group
            starts.pop()
        groups.append(group)
        starts.append(start)
    centres = list(places)
    for start, group in zip(starts, groups, strict=True):
        for member in group:
            centres[member] = start + sizes[member] / 2
            start += sizes[member]
    return centres
