"""The geometry of updates over rounds, and the cosines of one round as a heat map. Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...plotting.color_bar import color_bar
from ...plotting.drawing import drawing
from ...plotting.empty import is_empty, say_empty
from ...plotting.heatmaps import name_cells, room_beside, room_for, signed_heat_map
from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.looks import looks_of
from ...plotting.spread import mean_band, mean_bars
from ...plotting.style import CHARACTER, SMALL, paper_style, shorten_label
from ...plotting.ticks import even, isolated, label_ends, room_for_ends
from .result import ClientUpdates, describe_divergence, from_sketches

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .angles import RoundUpdates
    from .result import Updates

# Inches. Room left and right of the curves, their height, between and below them.
LEFT, RIGHT, HIGH, BETWEEN, BELOW = 0.52, 0.1, 0.95, 0.12, 0.4
# The map: its title, the gap before its bar, the bar, numbers beside it; its side at least and at most.
TITLE, GAP, BAR, NUMBERS, SMALLEST, LARGEST = 0.18, 0.07, 0.08, 0.52, 0.8, 2.2
# From this width on, inches, the map stands beside the curves.
WIDE = 5.5
# More rounds than this are a line without marks.
MARKED = 25


@drawing
def draw(result: ClientUpdates | Updates, width: float = 3.5, title: str | None = None) -> Figure:
    """Mean cosine and cancellation over rounds, a line a run, and the first run's last cosines; ``width`` in inches."""
    return draw_updates([result] if isinstance(result, ClientUpdates) else list(result), width, title)


@drawing
def draw_updates(results: Sequence[ClientUpdates], width: float = 3.5, title: str | None = None) -> Figure:
    """Mean cosine and cancellation over rounds, a line a run, and the first run's last round as a map of cosines.

    Bands are one standard error; thin dots are what updates of these lengths would give were they orthogonal. One
    round of one run is its map alone; of several runs at one round the points stand side by side. ``width`` in inches.

    Raises:
        FedscopeError: no result.
    """
    if not results:
        raise FedscopeError("there are no updates to draw; give at least one result")
    curves = sum(len(result.rounds) for result in results) > 1
    last = results[0].rounds[-1]
    with paper_style(width):
        several = len(results) > 1
        name = min(max(len(result.run) for result in results), 10)
        aside = curves and width >= WIDE
        room = 0.42 * width if aside else width
        side = min(max(room - LEFT - GAP - BAR - NUMBERS, SMALLEST), LARGEST)
        across = width - room if aside else width
        ends = name * CHARACTER + 0.08 * (across - LEFT) + 0.04 if several else RIGHT
        tall = (max(HIGH, (side + TITLE - BETWEEN) / 2) if aside else HIGH) if curves else 0.0
        tall = max(tall, room_for_ends(len(results))) if curves and several else tall
        said = wrap_words(_remark(results, curves), width - 0.16, 0.88)
        names = [str(k) for k in last.client_ids]
        ids, beside = room_for(names, side), room_beside(names, side)
        top = EDGE + (0.2 if title else 0.04)
        down = 2 * tall + BETWEEN + BELOW if curves else 0.0
        of_map = TITLE + side + ids + 0.2
        below = top + (max(down, of_map) if aside else down + of_map)
        sheet = FigureLayout(width, below + LINE * len(said) + EDGE, title)
        if curves:
            upper = sheet.axes(LEFT, top, across - LEFT - ends, tall, ylabel=0.36)
            lower = sheet.axes(LEFT, top + tall + BETWEEN, across - LEFT - ends, tall, ylabel=0.36)
            _draw_cosines(upper, results)
            _draw_cancellation(lower, results)
            for axes in (upper, lower) if several else ():
                label_ends(axes, tall)
        begins = top if aside else top + down
        left = width - room + LEFT if aside else LEFT
        named = f"{shorten_label(results[0].run, 20)}, " if several else ""
        sheet.text(left, begins + TITLE / 2, f"{named}round {last.round}", fontsize=SMALL)
        axes = sheet.axes(left, begins + TITLE, side, side)
        bar = sheet.bar(left + side + GAP, begins + TITLE, BAR, side)
        _draw_map(axes, bar, last, side)
        name_cells(axes, names, side)
        sheet.text(left - beside - 0.09, begins + TITLE + side / 2, "client", rotation=90, ha="center", fontsize=SMALL)
        sheet.text(left + side / 2, begins + TITLE + side + ids + 0.09, "client", ha="center", fontsize=SMALL)
        return sheet.finished(said, EDGE + 0.03)


def _draw_cosines(axes: Axes, results: Sequence[ClientUpdates]) -> None:
    axes.axhline(0, color="#b0b0b0", linewidth=0.6, zorder=1, label="_zero")
    for look, result, at in zip(_looks(results), results, _places(results), strict=True):
        mean = np.array([one.cosine_mean for one in result.rounds])
        spread = np.array([one.cosine_stderr for one in result.rounds])
        colour = look["color"]
        axes.plot(at, np.ma.masked_invalid(mean), label=shorten_label(result.run, 10), **look, **_marks(mean))
        mean_band(axes, at, mean, spread, colour, 0.2)
        # a band of one round has no area
        alone = isolated(spread)
        mean_bars(axes, at[alone], mean[alone], spread[alone], colour, label="_bar")
    axes.tick_params(labelbottom=False)
    axes.set_ylabel("mean cosine")
    _rounds(axes, results)


def _draw_cancellation(axes: Axes, results: Sequence[ClientUpdates]) -> None:
    for look, result, at in zip(_looks(results), results, _places(results), strict=True):
        kept = np.array([one.cancellation for one in result.rounds])
        axes.plot(at, np.ma.masked_invalid(kept), label=shorten_label(result.run, 10), **look, **_marks(kept))
        across = np.array([one.orthogonal for one in result.rounds])
        dots: dict[str, Any] = {"linewidth": 0.6, "linestyle": (0, (1, 1.6)), "zorder": 1.5}
        marks: dict[str, Any] = {
            "marker": "_",
            "markersize": 9 if len(at) == 1 else 5,
            "markevery": isolated(across),
        }
        shown = np.ma.masked_invalid(across)
        axes.plot(at, shown, color=look["color"], label="_orthogonal", **dots, **marks)
    axes.set_ylim(bottom=0)
    axes.set(xlabel="round", ylabel="length kept")
    _rounds(axes, results)


def _looks(results: Sequence[ClientUpdates]) -> list[dict[str, Any]]:
    """Return the look of each run; dashes, because runs with one history lie on each other."""
    return looks_of([result.run for result in results])


def _marks(values: np.ndarray) -> dict[str, Any]:
    """Return how a line and its points are drawn."""
    marked = None if len(values) <= MARKED else isolated(values)
    # not cut at the frame, on which the greatest one stands
    return {"linewidth": 0.9, "zorder": 3, "markersize": 2.4, "markevery": marked, "clip_on": False}


def _one_round(results: Sequence[ClientUpdates]) -> bool:
    return len(results) > 1 and len({one.round for result in results for one in result.rounds}) == 1


def _places(results: Sequence[ClientUpdates]) -> list[np.ndarray]:
    """Place each run's rounds; of several runs at one round side by side around 0."""
    if _one_round(results):
        return [np.array([i - (len(results) - 1) / 2]) for i in range(len(results))]
    return [np.array([one.round for one in result.rounds]) for result in results]


def _rounds(axes: Axes, results: Sequence[ClientUpdates]) -> None:
    even(axes.yaxis, 4, quarters=True)
    if _one_round(results):
        axes.set_xlim(-len(results) / 2, len(results) / 2)
        axes.set_xticks([0], [str(results[0].rounds[0].round)])
    else:
        even(axes.xaxis, 6, integer=True)
        axes.margins(x=0.03)
    if is_empty(axes):
        rounds = np.concatenate(_places(results))
        axes.set_xlim(rounds.min() - 0.5, rounds.max() + 0.5)  # of lines without a number there is none
        say_empty(axes, "not finite", numbers=False)
    axes.autoscale_view()  # now, because labels stand where the lines end, which the limits decide


def _draw_map(axes: Axes, bar: Axes, updates: RoundUpdates, side: float) -> None:
    """Cosines, white at 0; the diagonal is 1 by definition and left grey, cells without a value are hatched."""
    diagonal = np.eye(len(updates.cosine), dtype=bool)
    image = signed_heat_map(axes, np.where(diagonal, np.nan, updates.cosine), hatched=True, bare=True)
    grey = np.ma.masked_where(~diagonal, np.full(diagonal.shape, 0.5))
    axes.imshow(grey, cmap="gray", vmin=0, vmax=0.6, interpolation="nearest", aspect="auto")
    color_bar(bar, image, "cosine", max(2, min(6, int(side / 0.3))), labelpad=2)


def _remark(results: Sequence[ClientUpdates], curves: bool) -> str:
    parts = ["Δ: a client's model less the one it was sent"]
    if curves:
        parts.append("length kept: ‖Σ\u00a0p\u00a0Δ‖\u00a0/\u00a0Σ\u00a0p\u00a0‖Δ‖")
        if error := _drawn_as(results, "cosine_stderr", "band", "bar"):
            parts.append(f"{error}: ±1 standard error (jackknife over clients)")
        if across := _drawn_as(results, "orthogonal", "thin dots", "dash"):
            parts.append(f"{across}: orthogonal updates of the same lengths")
    unmoved = sum(len(one.unmoved) for result in results for one in result.rounds)
    if unmoved:
        parts.append(f"{unmoved} updates are zero and have no cosine")
    for result in results:
        if sketched := from_sketches(result, short=True):
            parts.append(f"{shorten_label(result.run, 10)}: {sketched}" if len(results) > 1 else sketched)
        if lost := describe_divergence(result):
            parts.append(f"{shorten_label(result.run, 10)}: {lost}" if len(results) > 1 else lost)
    return "; ".join(parts)


def _drawn_as(results: Sequence[ClientUpdates], name: str, line: str, mark: str) -> str:
    """Name the marks by which a number over rounds is drawn: rounds with a neighbour as a line, those without as a
    mark."""
    values = [np.array([getattr(one, name) for one in result.rounds]) for result in results]
    marks = sum(len(isolated(own)) for own in values)
    lines = sum(int(np.isfinite(own).sum()) for own in values) - marks
    return " or ".join(word for word, there in ((line, lines), (mark, marks)) if there)
