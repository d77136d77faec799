"""Planes as figures: one with a table of its models, or panels of several. Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError
from ...plotting.color_bar import color_bar
from ...plotting.drawing import axes_given, drawing
from ...plotting.layout import EDGE, LINE, FigureLayout, legend_rows, wrap_words
from ...plotting.style import CHARACTER, literal, paper_style, shorten_label
from .basins import basin_of
from .drawing.color_scales import BAR_LABEL, SHARED, TWO_PANELS, Scale, SurfaceColours, bar_room, scale_of
from .drawing.fill import (
    DISTANCE,
    axis_labels,
    fill,
    has_equal_scales,
    has_own_reaches,
    is_metric,
    quantities,
    remarks,
    tick_room,
    ticks,
)
from .drawing.markers import draw_table, keys_of, mark, mark_minimum, rows_of, table_height
from .result import Plane

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .many_planes import Planes

# Inches. Room for tick labels and a label at the bottom; the colour bar; where text below the panels begins.
BOTTOM, BAR, BAR_GAP, TEXT = 0.36, 0.09, 0.06, 0.2
BESIDE, AFTER = TEXT + 0.2, 0.3  # where the words of a legend begin, and what is free behind them
# Of several: between columns, between the loss and the error, and a panel's title.
GAP, BETWEEN, HEAD = 0.32, 0.15, 0.21
LABEL = 0.24  # of the room for tick labels at the left of panels what their common label takes
LOWEST = 1.2  # of a panel with its colour bar, whose label is an inch long
NARROW = 3.2  # a figure in which two panels have no room for their titles
WIDEST = 5.0  # of a panel that stands alone
SMALLEST = 0.6  # of several panels; rather fewer stand side by side


@drawing
def draw(plane: Plane, width: float = 3.5, title: str | None = None, **colours: Any) -> Figure:
    """Draw filled contours of the loss (from 6 inches on with the error next to it).

    Args:
        width: in inches.
        title: above it.
        colours: ``cmap``, ``loss_limits``, ``error_limits`` and ``colour_scale``; see
            :class:`~fedscope.landscape.planes.drawing.color_scales.SurfaceColours`.
    """
    return draw_plane(plane, width, title, SurfaceColours(**colours))


@drawing
def draw_planes(
    planes: Planes, width: float = 3.5, title: str | None = None, *, scale: str = "figure", **colours: Any
) -> Figure:
    """A panel a plane, the loss above the error.

    Args:
        width: in inches.
        title: above all.
        scale: which panels share a colour scale: all of the ``figure``, those of a ``row`` (a run, or a set of
            samples), or none (``panel``).
        colours: as of :func:`draw`.

    Raises:
        FedscopeError: another ``scale``.
    """
    if scale not in SHARED:
        raise FedscopeError(f"--scale {scale} is none of {', '.join(SHARED)}")
    shown = [[panel.plane for panel in row] for row in planes.rows]
    titles = [[panel.heading for panel in row] for row in planes.rows]
    return draw_panels(shown, titles, width, title, rows=planes.heads, colours=SurfaceColours(**colours), scale=scale)


@drawing
def draw_plane(
    plane: Plane, width: float = 3.5, title: str | None = None, colours: SurfaceColours | None = None
) -> Figure:
    """Draw one plane: the loss (from 6 inches on with the error next to it) above a table of its models."""
    with paper_style(width):
        names = quantities([plane])
        wide_enough = (width >= TWO_PANELS and axes_given() != 1) or axes_given() > 1
        if colours is not None:
            colours.refuse_unused(TWO_PANELS if wide_enough else 0, has_error="error" in names)
        names = names if wide_enough else ["loss"]
        cell = width / len(names) if len(names) > 1 else min(width, WIDEST)
        scales = {name: scale_of([plane], name, colours) for name in names}
        margin = tick_room([plane], 2.0)
        size = cell - margin - BAR_GAP - BAR - bar_room(scales.values(), 2.0)
        wide, high = _extent(plane, size)
        tall = max(high, LOWEST)
        rows = rows_of(plane)
        basin = basin_of(plane)
        said = _wrap(basin.caption(), width) if basin else []
        said += _wrap(remarks([plane]), width)
        top = EDGE + (0.22 if title else 0.05)
        below = top + tall + BOTTOM + 0.05
        sheet = FigureLayout(width, below + table_height(rows, width) + (LINE * len(said) + 0.04 if said else 0) + EDGE)
        if title:
            sheet.text(width / 2, EDGE + 0.09, title, ha="center")
        for i, name in enumerate(names):
            left = (width - cell * len(names)) / 2 + i * cell + margin
            at = top + (tall - high) / 2
            axes = sheet.axes(left, at, wide, high)
            scale = scales[name]
            mappable = fill(axes, plane, name, scale)
            mark(axes, plane, numbered=not sheet.is_axes)
            if name == "loss":
                mark_minimum(axes, basin)
            ticks(axes, wide, high)
            across, up = axis_labels(plane)
            axes.set_xlabel(_first_fitting(across, wide))
            sheet.ylabel(axes, left - margin + 0.09, at + high / 2, _first_fitting(up, tall))
            color_bar(sheet.bar(left + wide + BAR_GAP, top, BAR, tall), mappable, scale=scale, height=tall)
        if sheet.is_axes:
            _legend(sheet, keys_of([plane]))
        draw_table(sheet, below, rows)
        return sheet.finished(said, TEXT)


def _legend(sheet: FigureLayout, keys: Sequence[tuple[dict[str, Any], str]]) -> None:
    """What the markers are, where there is no table below the panel."""
    rows = legend_rows([words.partition(": loss")[0] for _, words in keys], 0.0, sheet.width, 0.3)
    rows.draw(sheet, 0.0, lambda i, left, middle: sheet.symbol(left, middle, keys[i][0]), 0.0)


def _extent(plane: Plane, size: float) -> tuple[float, float]:
    """Width and height of a panel with room for ``size`` inches: distances are equally long along both axes, or both
    directions are."""
    if has_own_reaches(plane):
        return size, size
    shape = float((plane.b[-1] - plane.b[0]) / (plane.a[-1] - plane.a[0]))
    shape = shape if has_equal_scales(plane) else min(max(shape, 0.6), 1.3)
    return (size, size * shape) if shape <= 1.3 else (1.3 * size / shape, 1.3 * size)


def _first_fitting(words: Sequence[str], room: float) -> str:
    """Return the first of several labels that is not longer than ``room`` inches, else the last."""
    lengths = [0.067 * len(label.translate({ord(sign): None for sign in "$_"})) for label in words]
    return next((label for label, length in zip(words, lengths, strict=True) if length <= room), words[-1])


def draw_panels(
    planes: Sequence[Plane] | Sequence[Sequence[Plane]],
    titles: Sequence[str] | Sequence[Sequence[str]],
    width: float | None = None,
    title: str | None = None,
    **drawn: Any,
) -> Figure:
    """Columns of panels, each plane's loss above its error.

    Args:
        planes: a row of planes, or several rows (a run each).
        titles: of the panels, likewise.
        width: in inches; below 3.2 every panel has a row, up to 4 two stand side by side, from 6 on a whole row does.
        rows: what each row is, written above it.
        colours: of the surfaces.
        scale: which panels share a colour scale, one for losses and one for errors: all of the ``figure``, those of a
            ``row``, or none (``panel``).
        ax, into: where they are drawn, if not on a figure of their own.
    """
    draw_them: Any = _draw_panels
    figure: Figure = draw_them((planes, titles), width, title, **drawn)
    return figure


@drawing
def _draw_panels(
    named: tuple[Sequence[Any], Sequence[Any]],
    width: float = 3.5,
    title: str | None = None,
    *,
    rows: Sequence[str] = (),
    colours: SurfaceColours | None = None,
    scale: str = "figure",
) -> Figure:
    """See :func:`draw_panels`."""
    planes, titles = named  # what is drawn comes first, as in all that draw
    one_row = isinstance(planes[0], Plane)
    grid: Any = [planes] if one_row else planes
    names: Any = [titles] if one_row else titles
    everything = [plane for row in grid for plane in row]
    quantity = quantities(everything)
    if colours is not None:
        colours.refuse_unused(TWO_PANELS, has_error="error" in quantity)
    scales = _scales(grid, quantity, colours, scale)
    every = [own for row in scales for one in row for own in one.values()]
    with paper_style(width):
        margin, bar = tick_room(everything, 1.0), BAR_GAP + BAR + bar_room(every, 1.0)
        columns, gap, size = _columns(grid, width, margin, bar, each=scale == "panel")
        strips = [
            (
                rows[i] if rows and start == 0 else "",
                row[start : start + columns],
                heads[start : start + columns],
                own[start : start + columns],
            )
            for i, (row, heads, own) in enumerate(zip(grid, names, scales, strict=True))
            for start in range(0, len(row), columns)
        ]
        keys = keys_of(everything, int((width - BESIDE - AFTER) / CHARACTER))
        said = _wrap(remarks(everything), width)
        strip_height = HEAD + len(quantity) * (size + BETWEEN) - BETWEEN + BOTTOM
        headed = sum(bool(name) for name, *_ in strips)
        high = EDGE + (0.16 if title else 0) + strip_height * len(strips) + 0.17 * headed
        legend = legend_rows([words for _, words in keys], BESIDE, width, AFTER)
        sheet = FigureLayout(width, high + LINE * (legend.rows + len(said)) + 0.04 + EDGE, title)
        top = EDGE + (0.16 if title else 0)
        for name, row, heads, own in strips:
            if name:
                sheet.text(
                    margin, top + 0.08, shorten_label(name, int((width - margin) / (1.2 * CHARACTER))), weight="bold"
                )
                top += 0.17
            told = _heads(heads, int((size + gap) / 0.066))
            _strip(sheet, (margin, top), row, told, own, size, gap, each=scale == "panel")
            top += strip_height
        looks = [{**look, "markersize": 0.8 * look["markersize"]} for look, _ in keys]
        legend.draw(sheet, high, lambda i, left, middle: sheet.symbol(left - 0.13, middle, looks[i]), 0.0)
        return sheet.finished(said, TEXT)


def _columns(
    grid: Sequence[Sequence[Plane]], width: float, margin: float, bar: float, *, each: bool
) -> tuple[int, float, float]:
    """Find how many panels fit side by side, the gap between them, and the side of one, in inches.

    Args:
        bar: what a colour bar takes; ``each`` panel has its own, else a row has one.
    """
    columns = max(len(row) for row in grid)
    most = 1 if width < NARROW else 2 if width <= 4 else 3 if width < 6 else max(4, int(width / 1.2))
    columns = min(columns, most)
    while True:
        inner = [plane for row in grid for place, plane in enumerate(row) if place % columns]
        # which holds the tick labels of the panel after it; those depend on how high a panel is
        gap = max(GAP, tick_room(inner, (width - margin - bar - GAP * (columns - 1)) / columns) - LABEL)
        gap += bar - BAR_LABEL if each else 0
        size = (width - margin - bar - gap * (columns - 1)) / columns
        if size >= SMALLEST or columns == 1:
            return columns, gap, size
        columns -= 1


def _strip(
    sheet: FigureLayout,
    corner: tuple[float, float],
    planes: Sequence[Plane],
    heads: Sequence[str],
    scales: Sequence[dict[str, Scale]],
    size: float,
    gap: float,
    *,
    each: bool,
) -> None:
    """Panels side by side; ``each`` has its colour bars, else the last one."""
    margin, top = corner
    for row, name in enumerate(scales[0]):
        at = top + HEAD + row * (size + BETWEEN)
        for column, (plane, own) in enumerate(zip(planes, scales, strict=True)):
            left, scale, is_last = margin + column * (size + gap), own[name], column == len(planes) - 1
            axes = sheet.axes(left, at, size, size)
            mappable = fill(axes, plane, name, scale)
            mark(axes, plane, numbered=False)
            if name == "loss":
                mark_minimum(axes, basin_of(plane))
            ticks(axes, size, size)
            if row == 0:
                axes.set_title(heads[column], pad=5.5)  # a minimum at the edge reaches out of the panel
            axes.tick_params(labelbottom=row == len(scales[0]) - 1)
            if each or is_last:
                bar = sheet.bar(left + size + BAR_GAP, at, BAR, size)
                color_bar(bar, mappable, scale=scale, height=size, labelled=is_last)
    middle = margin + (len(planes) * (size + gap) - gap) / 2
    end = top + HEAD + len(scales[0]) * (size + BETWEEN) - BETWEEN
    across, up = _common_labels(planes)
    sheet.text(middle, end + 0.27, across, ha="center")
    sheet.text(0.09, (top + HEAD + end) / 2, up, rotation=90, ha="center")


def _scales(
    grid: Sequence[Sequence[Plane]], names: Sequence[str], colours: SurfaceColours | None, shared: str
) -> list[list[dict[str, Scale]]]:
    """Each panel's scales, by what they are of."""

    def of(planes: Sequence[Plane]) -> dict[str, Scale]:
        return {name: scale_of(planes, name, colours) for name in names}

    if shared == "panel":
        return [[of([plane]) for plane in row] for row in grid]
    if shared == "row":
        return [[own] * len(row) for row, own in ((row, of(row)) for row in grid)]
    own = of([plane for row in grid for plane in row])
    return [[own] * len(row) for row in grid]


def _heads(titles: Sequence[str], length: int) -> list[str]:
    """Titles of at most so many characters, cut in the middle, or at the end where only that keeps them distinct."""
    middle, end = ([cut(title, length) for title in titles] for cut in (shorten_label, _cut))
    return end if len(set(middle)) < len(set(titles)) else middle


def _cut(title: str, length: int) -> str:
    return literal(title if len(title) <= length else f"{title[: length - 1]}…")


def _common_labels(planes: Sequence[Plane]) -> tuple[str, str]:
    """Return the labels of several panels' axes: distances, or those of the first one."""
    if all(is_metric(plane) for plane in planes):
        return DISTANCE, DISTANCE
    across, up = axis_labels(next(plane for plane in planes if not is_metric(plane)))
    return across[0], up[0]


def _wrap(words: str, width: float) -> list[str]:
    return wrap_words(words, width - TEXT, hyphens=False)
