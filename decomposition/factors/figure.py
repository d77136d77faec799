"""Factors over rounds above the distance of the clients and the measured error, which Figures 2 and 3 of Zhou et al.
set side by side; drawing only."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError
from ...plotting.drawing import drawing
from ...plotting.layout import FigureLayout, column_letters, readable_columns
from ...plotting.style import CHARACTER, SIZE, SMALL, new_figure, paper_style, shorten_label
from ...plotting.ticks import from_zero, label_ends
from .figure_panels import (
    draw_clients,
    draw_distances,
    draw_errors,
    draw_factor_lines,
    group_factors,
    round_axis,
    say_where_empty,
    symmetric_log,
)
from .notes import notes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import Decomposition, RunFactors

# Inches. Margins are fixed and not fitted, so that panels of figures of one width lie on each other.
LEFT, RIGHT, TOP, GAP, COLUMN_GAP, XLABEL, EDGE = 0.62, 0.8, 0.36, 0.27, 0.12, 0.4, 0.06
HEIGHTS = {"large": 1.45, "small": 0.95, "clients": 1.1, "distance": 0.75, "error": 0.75}
# Without the others a panel is at least so high.
ALONE = 1.1
NOTE_SIZE, NOTE_LINE = 6.0, 0.105
# Lines between the edge and the panels: the title, a key of the columns, a heading a column (so far above a panel).
TITLE_LINE, KEY_LINE, HEADING = 0.14, 0.12, 0.16
# A column narrower than this has two numbers below, and shares the word "round" with the others.
NARROW = 0.6
# The widest label right of the panels; it stands 6 % of a column's width away.
LABEL = 0.66
# Letters of a run's name, at most.
NAME = 90
BOLD: dict[str, Any] = {"weight": "bold", "fontsize": SIZE}
# What stands over the panels, in full and where the figure is narrow.
TITLES = {
    "squared": ("factors of the loss", "factors of the loss"),
    "cross-entropy": ("factors of the cross-entropy (nats)", "cross-entropy (nats)"),
    "zero-one": ("factors of the 0-1 loss (share of samples)", "0-1 loss (share)"),
    "small": ("small ones; log scale, linear about 0", "small, log scale"),
    "clients": ("dots: clients; lines: p-weighted means", "dots: clients"),
    "distance": ("distance of clients to their average", "distance to average"),
    "error": ("measured test error", "test error"),
}
# What stands at the axes of values: the unit, or of what has none the loss.
UNITS = {"squared": "squared error", "cross-entropy": "nats", "zero-one": "share", "distance": "$L_2$", "error": "%"}
# From that label to the panel's edge, in inches, and what is free at the left of narrow columns, which have none.
UNIT_AWAY, SLIM = 0.48, 0.5


# What is asked for by a name, and what results without it have not.
PANELS = {
    "factors": (("large", "small"), ""),
    "clients": (("clients",), "the clients' own numbers, which the squared loss of samples with owners has alone"),
    "distance": (("distance",), "distances of clients to their average"),
    "error": (("error",), "test errors, because none was measured while training"),
}


@drawing
def draw(result: Decomposition, width: float = 3.5, title: str | None = None, panels: Sequence[str] = ()) -> Figure:
    """Draw the factors over rounds, signed, above the clients' own numbers, their distance to the average and the
    measured test error; `width` in inches, one column of panels a run.

    From above: the factors and the loss of the averaged model that they add up to, signed; those too small to be seen
    there, on an axis that is linear about 0 and logarithmic beyond; every client by itself, on its own samples and on
    the others' (of the squared error only); the greatest (Δ) and the mean distance of a client to the average, L2 in
    weight space; the measured test error. Bars: 95 %, t on R−1 degrees of freedom, over draws. Unbiased estimates where
    they exist, else plug-in ones. What the draws are, and what they cannot show, is written below; a panel of a run
    that diverged says "not finite".

    Some of PANELS alone are drawn where they are asked for, as the distance and the error for Figure 3.

    Raises FedscopeError where no run has a round, where a panel that is asked for has nothing to show, and where there
    are too many runs for the width.
    """
    if not any(run.rounds for run in result.runs):
        raise FedscopeError("the decomposition has no round to draw: choose rounds that recorded their clients")
    large, small = group_factors([one for run in result.runs for one in run.rounds])
    exists = {
        "large": True,
        "small": bool(small),
        "clients": any(one.split for run in result.runs for one in run.rounds),
        "distance": any(row.factor == "delta_max" for _, _, row in result.factors()),
        "error": any(run.curves for run in result.runs),
    }
    heights, columns = _heights(panels, exists), len(result.runs)
    first = next(iter(heights))
    left, right, wide = _across(width, columns, LEFT)
    if not (named := wide >= NARROW):
        left, right, wide = _across(width, columns, SLIM)
        wide = readable_columns(wide, columns, width)
    with paper_style(width):
        # 0.53 em is a generous mean width of a character, so no line is too long.
        note = textwrap.wrap(
            notes(result, panels), int((width - 0.12) * 72 / (0.53 * NOTE_SIZE)), break_on_hyphens=False
        )
        over, headings, key = _words_above(result.runs, title, width, wide)
        top = TOP + TITLE_LINE * (len(over) - (columns == 1)) + KEY_LINE * len(key)
        height = top + sum(heights.values()) + GAP * (len(heights) - 1)
        height += XLABEL + NOTE_LINE * len(note) + 0.06
        sheet = FigureLayout(width, height)
        axes = _axes(sheet, heights, columns, (left, top), wide)
        for column, run in enumerate(result.runs):
            if "large" in heights:
                draw_factor_lines(axes["large", column], run.rounds, [*large, "fma_loss"])
            if "small" in heights:
                draw_factor_lines(axes["small", column], run.rounds, small, apart=0.01)
            if "clients" in heights:
                draw_clients(axes["clients", column], run.rounds, result.split)
            if "distance" in heights:
                draw_distances(axes["distance", column], run.rounds)
            if "error" in heights:
                draw_errors(axes["error", column], run.curves)
            shown = [one.round for one in run.rounds] + [t for curve in run.curves for t in curve.rounds]
            round_axis(axes[first, column], shown, wide, two=wide < NARROW)
        if "small" in heights:
            symmetric_log([axes["small", column] for column in range(columns)])
        _furnish(axes, heights, headings, wide)
        for name in heights if named else ():
            axes[name, 0].set_ylabel(UNITS.get(name, UNITS[result.loss]), fontsize=SMALL)
        _entitle(axes, heights, result.loss, width, left, right)
        for name, high in heights.items():
            say_where_empty([axes[name, column] for column in range(columns)], wide)
            # Last, because labels stand where the lines end, which the limits decide.
            label_ends(axes[name, columns - 1], high, [axes[name, column] for column in reversed(range(columns - 1))])
        for row, line in enumerate(over):
            sheet.text(EDGE, 0.04 + TITLE_LINE * row, line, va="top", **BOLD)
        for row, line in enumerate(key):
            sheet.text(EDGE, 0.05 + TITLE_LINE * len(over) + KEY_LINE * row, line, va="top", fontsize=SMALL)
        for row, line in enumerate(reversed(note)):
            sheet.text(EDGE, height - 0.05 - NOTE_LINE * row, line, fontsize=NOTE_SIZE, va="bottom", color="0.25")
    return sheet.finished(())


def _across(width: float, columns: int, left: float) -> tuple[float, float, float]:
    """Return the room left and right of the columns, and the width of each."""
    right = max(RIGHT, (LABEL + 0.06 * (width - left) / columns) / (1 + 0.06 / columns))
    return left, right, (width - left - right - COLUMN_GAP * (columns - 1)) / columns


def heading(run: RunFactors) -> str:
    """Return the heading of a column: the run, and whether it is about its average over rounds."""
    return shorten_label(f"{run.run}, averaged" if run.model == "averaged" else run.run, NAME)


def _words_above(
    runs: Sequence[RunFactors], title: str | None, width: float, wide: float
) -> tuple[list[str], list[str], list[str]]:
    """Return the lines of the title, a heading a column, and the lines of a key, where headings are letters because a
    name is wider than a column."""
    if len(runs) == 1:
        return _wrap(title or heading(runs[0]), width - 2 * EDGE, BOLD), [], []
    names = [heading(run) for run in runs]
    if len({run.run for run in runs}) == 1:  # its name once, above all columns
        title, names = title or shorten_label(runs[0].run, NAME), [run.model for run in runs]
    over = _wrap(title, width - 2 * EDGE, BOLD) if title else []
    if max(_inches(name, BOLD) for name in names) <= wide + COLUMN_GAP / 2:
        return over, names, []
    letters = column_letters(len(names))
    key = "; ".join(f"{letter}: {name}" for letter, name in zip(letters, names, strict=True))
    return over, letters, _wrap(key, width - 2 * EDGE, {"fontsize": SMALL})


def _wrap(words: str, room: float, font: Mapping[str, Any]) -> list[str]:
    """Break a text into lines of at most `room` inches."""
    for characters in range(max(1, int(2 * room / CHARACTER)), 0, -1):
        lines = textwrap.wrap(words, characters)
        if max((_inches(line, font) for line in lines), default=0.0) <= room:
            break
    return lines


def _inches(words: str, font: Mapping[str, Any]) -> float:
    figure = new_figure(1, 1)
    return float(figure.text(0, 0, words, **font).get_window_extent().width / figure.dpi)


def _heights(asked: Sequence[str], exists: Mapping[str, bool]) -> dict[str, float]:
    """Return the panels that are drawn, from above, and their heights in inches. Raises as :func:`draw`."""
    for name in asked:
        if name not in PANELS:
            raise FedscopeError(f"{name!r} is not a panel of a decomposition; there are {', '.join(PANELS)}")
        if not any(exists[own] for own in PANELS[name][0]):
            raise FedscopeError(f"there is no panel {name!r}: the result has no {PANELS[name][1]}; leave it out")
    wanted = {own for name in asked or PANELS for own in PANELS[name][0] if exists[own]}
    return {name: max(high, ALONE if asked else 0.0) for name, high in HEIGHTS.items() if name in wanted}


def _axes(
    sheet: FigureLayout, heights: Mapping[str, float], columns: int, corner: tuple[float, float], wide: float
) -> dict[tuple[str, int], Axes]:
    """A panel for each name and run; rows share their values, columns their rounds."""
    axes: dict[tuple[str, int], Axes] = {}
    first = next(iter(heights))
    begin, top = corner
    for name, high in heights.items():
        for column in range(columns):
            left = begin + column * (wide + COLUMN_GAP)
            shared: dict[str, Any] = {"sharex": axes.get((first, column)), "sharey": axes.get((name, 0))}
            axes[name, column] = sheet.axes(left, top, wide, high, ylabel=UNIT_AWAY, label=f"{name} {column}", **shared)
        top += high + GAP
    return axes


def _furnish(
    axes: Mapping[tuple[str, int], Axes], heights: Mapping[str, float], headings: Sequence[str], wide: float
) -> None:
    """Headings of the columns, limits and labels of the axes."""
    first, last = next(iter(heights)), list(heights)[-1]
    for (name, column), ax in axes.items():
        if name == first and headings:
            above = 1 + HEADING / heights[name]
            ax.text(1.0, above, headings[column], ha="right", va="bottom", transform=ax.transAxes, **BOLD)
        # Now, when every column is drawn: the limits are shared, and must hold all of them.
        ax.autoscale_view(scalex=False)
        if name in ("clients", "distance", "error"):
            from_zero(ax)
        ax.tick_params(labelleft=column == 0, labelbottom=name == last)
        if name == last and wide >= NARROW:
            ax.set_xlabel("round")
    if wide < NARROW:  # in the middle of all columns
        columns = 1 + max(column for _, column in axes)
        middle = (wide * columns + COLUMN_GAP * (columns - 1)) / 2 / wide
        low = axes[last, 0]
        low.text(middle, -0.19 / heights[last], "round", ha="center", va="top", transform=low.transAxes)


def _entitle(
    axes: Mapping[tuple[str, int], Axes], panels: Iterable[str], loss: str, width: float, left: float, right: float
) -> None:
    """Write the titles of the panels, over the columns alone: next to them stand the labels of the lines."""
    room = width - left - right
    for name in panels:
        full, short = TITLES[loss if name == "large" else name]
        font: dict[str, Any] = {"fontsize": SMALL}
        words = full if _inches(full, font) <= room else short
        title = axes[name, 0].set_title(words, loc="left", pad=3, **font)
        if (excess := _inches(words, font) - room) > 0:  # begins above the numbers
            title.set_x(-min(excess, left - EDGE) / (axes[name, 0].get_position().width * width))
