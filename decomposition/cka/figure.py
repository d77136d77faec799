"""Similarities as heat maps, their means over rounds, and test errors against them, as in Figure 4 of Zhou et al.
Drawing only."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...plotting.color_bar import color_bar
from ...plotting.drawing import drawing
from ...plotting.empty import say_empty
from ...plotting.heatmaps import heat_map, name_cells, room_beside, room_for
from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.looks import looks_of
from ...plotting.spread import mean_bars
from ...plotting.style import (
    CHARACTER,
    COLOURS,
    GREY,
    SMALL,
    SURFACE,
    describe_data,
    literal,
    paper_style,
    shorten_label,
    word_of,
)
from ...plotting.ticks import crosses, even, few_marks, from_zero, label_ends, label_points, room_for_ends
from .result import OUTPUT, ClientCKA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .model_result import ModelCKA
    from .result import ClientCKAs, RoundCKA

# Inches. Left of the maps, between them, their titles, the name of the axis below.
LEFT, BETWEEN, TITLE, LABEL = 0.24, 0.09, 0.18, 0.17
# Of a colour bar: the gap before it, itself, its numbers and label.
GAP, BAR, NUMBERS = 0.07, 0.08, 0.42
# The curves: room left and right of them, their height (without maps above), room below.
AXIS, ENDS, CURVES, ALONE, BELOW = 0.5, 0.78, 1.0, 1.4, 0.32
# Of the names at the ends of curves: their length, and how far right they stand, as a share of the curves' width.
NAMES, AWAY = 0.72, 0.06
# Maps of one round are at least and at most so wide, the latter in a figure of 3.5; cells from ROOMY on hold their
# number.
NARROWEST, WIDEST, ROOMY = 0.55, 2.2, 0.3
# The share of the width that the labels of models take at most.
LABELS = 0.35
# More rounds than this are a line without marks.
MARKED = 25
# What is asked for by a name, and why a result may not have it.
PANELS = {
    "maps": "",
    "rounds": "no run has two rounds",
    "error": "no run has two rounds with a test error, measured while training",
}


@drawing
def draw(
    result: ClientCKA | ClientCKAs, width: float = 3.5, title: str | None = None, panels: Sequence[str] = ()
) -> Figure:
    """Draw the first, middle and last round as heat maps above the means over rounds and, where they were measured,
    test errors against the means; ``width`` in inches.

    Args:
        panels: some of "maps", "rounds" and "error" alone; all by default.

    Raises:
        FedscopeError: as :func:`draw_clients`.
    """
    return draw_clients([result] if isinstance(result, ClientCKA) else list(result), width, title, panels)


@drawing
def draw_clients(
    results: Sequence[ClientCKA], width: float = 3.5, title: str | None = None, panels: Sequence[str] = ()
) -> Figure:
    """Heat maps of the first, middle and last round, a row a run, above the means over rounds, and below these test
    errors against the means where they were measured; ``width`` in inches.

    All maps have one colour scale; rows and columns of a map are the clients of its round, in one order. Where the maps
    would be too narrow the middle round is left out. Cells without a value are hatched. Bars are one standard error.
    Some of PANELS alone are drawn where they are asked for.

    Raises:
        FedscopeError: no result; results of different layers, which one axis cannot show; a panel that is asked for and
            has nothing to show.
    """
    if not results:
        raise FedscopeError("there is no similarity to draw; give at least one result")
    if len({result.layer for result in results}) > 1:
        layers = ", ".join(dict.fromkeys(result.layer for result in results))
        raise FedscopeError(f"similarities of different layers ({layers}) do not go into one figure; draw one a layer")
    drawn = _choose_panels(results, panels)
    most = 3 if _side(width, 3) >= NARROWEST else 2
    shown = [pick_rounds(result.rounds, most) for result in results]
    columns = max(map(len, shown))
    curves, high = len(drawn - {"maps"}), max(CURVES if "maps" in drawn else ALONE, room_for_ends(len(results)))
    scale = scale_of([similarity.cka for rounds in shown for similarity in rounds])
    with paper_style(width):
        named = [[[str(k) for k in similarity.client_ids] for similarity in rounds] for rounds in shown]
        every = [names for row in named for names in row]
        beside, side = _room_beside_maps(every, width, columns)
        ids = max(room_for(names, side) for names in every)
        remark = wrap_words(_remark(results, drawn), width - 0.16, 0.9)
        top = EDGE + (0.2 if title else 0.0)
        row = TITLE + side + ids + LABEL if "maps" in drawn else 0
        below = top + row * len(results) + (0.14 - GAP if curves else 0) + curves * (GAP + high + BELOW)
        sheet = FigureLayout(width, below + LINE * len(remark) + EDGE, title)
        for r, (result, rounds) in enumerate(zip(results, shown, strict=True) if "maps" in drawn else ()):
            down = top + r * row + TITLE
            for c, similarity in enumerate(rounds):
                left = LEFT + beside + c * (side + BETWEEN + beside)
                axes = sheet.axes(left, down, side, side)
                image = _heat_map(axes, similarity.cka, scale, side)
                axes.set_title(f"round {similarity.round}", fontsize=SMALL, pad=3)
                name_cells(axes, named[r][c], side)
                sheet.text(left + side / 2, down + side + ids + 0.03, "client", ha="center", va="top", size=SMALL)
            name = shorten_label(result.run, int(side / CHARACTER)) if len(results) > 1 else "client"
            sheet.text(0.13, down + side / 2, name, ha="center", rotation=90, size=SMALL)
            _bar(sheet, image, LEFT + len(rounds) * (side + BETWEEN + beside) - BETWEEN + GAP, down, side)
        lowest = below - BELOW
        across = min(width - AXIS - ENDS, (width - AXIS - NAMES) / (1 + AWAY))
        if "error" in drawn:
            axes = sheet.axes(AXIS, lowest - high, across, high, ylabel=0.36)
            _errors_over_similarity(axes, results, across)
            _number_rounds(axes, results, across, high)
            label_ends(axes, high)
            lowest -= high + GAP + BELOW
        if "rounds" in drawn:
            axes = sheet.axes(AXIS, lowest - high, across, high, ylabel=0.36)
            _means_over_rounds(axes, results)
            label_ends(axes, high)
        return sheet.finished(remark, 0.08)


@drawing
def draw_models(result: ModelCKA, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw the matrix as a heat map, a row and a column a model, of many only some named; ``width`` in inches."""
    names = [shorten_label(label, int(LABELS * width / CHARACTER)) for label in result.labels]
    with paper_style(width):
        margin = max(map(len, names)) * CHARACTER + 0.13
        side = width - margin - GAP - BAR - NUMBERS
        below = room_for(names, side)
        remark = wrap_words(_remark([result]), width - 0.16, 0.9)
        top = EDGE + (0.2 if title else 0.04)
        height = top + side + below + 0.05 + LINE * len(remark) + EDGE
        sheet = FigureLayout(width, height, title)
        axes = sheet.axes(margin, top, side, side)
        image = _heat_map(axes, result.cka, scale_of([result.cka]), side)
        name_cells(axes, names, side)
        _bar(sheet, image, margin + side + GAP, top, side)
        return sheet.finished(remark, 0.08)


def pick_rounds(rounds: Sequence[RoundCKA], most: int = 3) -> list[RoundCKA]:
    """Return the first, the middle and the last of some rounds, each once; of two only the first and the last.

    >>> pick_rounds("abcd"), pick_rounds("abcd", 2)
    (['a', 'b', 'd'], ['a', 'd'])
    """
    middle = {(len(rounds) - 1) // 2} if most > 2 else set()
    return [rounds[i] for i in sorted({0, len(rounds) - 1} | middle)]


def _room_beside_maps(named: Sequence[Sequence[str]], width: float, columns: int) -> tuple[float, float]:
    """Return the room for names of rows next to each map, in inches, and the side of a map then."""
    beside = max((room_beside(names, _side(width, columns)) for names in named), default=0.0)
    return beside, _side(width, columns, beside)


def _side(width: float, columns: int, beside: float = 0.0) -> float:
    """Return the side of a map, where there are so many side by side; ``beside`` is what the names of its rows take."""
    room = width - LEFT - GAP - BAR - NUMBERS - BETWEEN * (columns - 1) - beside * columns
    return min(room / columns, WIDEST * width / 3.5)


def scale_of(matrices: Sequence[np.ndarray]) -> tuple[float, float]:
    """Return the colour scale of some matrices: 0 to 1, and in steps of 0.05 further where values are outside.

    >>> scale_of([np.array([[1.0, -0.02], [-0.02, 1.0 + 1e-12]])])
    (-0.05, 1.0)
    """
    every = np.concatenate([matrix[np.isfinite(matrix)] for matrix in matrices] or [np.zeros(0)])
    low, high = (float(every.min()), float(every.max())) if every.size else (0.0, 1.0)
    return min(0.0, math.floor(20 * low + 1e-6) / 20), max(1.0, math.ceil(20 * high - 1e-6) / 20)


def _heat_map(axes: Axes, matrix: np.ndarray, scale: tuple[float, float], side: float) -> Any:
    """A matrix as a heat map of ``side`` inches, numbers in its cells where they fit; hatched where there is none."""
    look = {"vmin": scale[0], "vmax": scale[1], "interpolation": "auto"}
    image = heat_map(axes, matrix, SURFACE, hatched=True, bare=True, **look)
    if side / len(matrix) >= ROOMY:
        for (i, j), value in np.ndenumerate(matrix):
            if np.isfinite(value):
                dark = value < sum(scale) / 2
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", size=6, color="white" if dark else "black")
    return image


def _bar(sheet: FigureLayout, image: Any, left: float, top: float, side: float) -> None:
    color_bar(sheet.bar(left, top, BAR, side), image, "CKA", max(2, min(5, int(side / 0.16))), labelpad=2)


def _means_over_rounds(axes: Axes, results: Sequence[ClientCKA]) -> None:
    """Mean CKA over rounds, a colour a run or, of one run, a colour a mean; with ``global`` dashed."""
    looks, several = looks_of([result.run for result in results]), len(results) > 1
    for place, (own_look, result) in enumerate(zip(looks, results, strict=True)):
        rounds = np.array([one.round for one in result.rounds], float)
        name = shorten_label(result.run, 10) if several else "between\nclients"
        other = "_" if several else "with\nglobal"
        own = own_look["color"]
        # of one run a colour a mean
        colours = own, own if several else next(one for one in COLOURS[1::-1] if one != own)
        for kind, label, dash, marker, colour in (
            ("mean", name, "-", own_look["marker"] if several else "o", colours[0]),
            ("mean_global", other, (0, (4, 1.5)), own_look["marker"] if several else "s", colours[1]),
        ):
            values = np.array([getattr(one, kind) for one in result.rounds])
            spread = np.array([getattr(one, f"{kind}_stderr") for one in result.rounds])
            if kind == "mean_global" and not np.isfinite(values).any():
                continue
            look: dict[str, Any] = {"linestyle": dash, "color": colour, "linewidth": 0.9, "label": label}
            look |= {"marker": marker, "markersize": 2.4}
            if several and kind != "mean":
                look |= {"markerfacecolor": "white", "markeredgewidth": 0.6}
            if len(rounds) > MARKED:
                look["markevery"] = list(few_marks(len(rounds), len(results), place))
            axes.plot(rounds, np.ma.masked_invalid(values), **look)
            mean_bars(axes, rounds, values, spread, colour, label="_bars")
            if kind == "mean":
                crosses(axes, rounds, values, 0.04, color=GREY, label="_broken")
    even(axes.xaxis, 6, integer=True)
    even(axes.yaxis, 5, quarters=True)
    axes.margins(x=0.03)
    axes.autoscale_view()  # now, because labels stand where the lines end, which the limits decide
    axes.set_xlabel("round", labelpad=1)
    axes.set_ylabel("mean CKA")
    if not any(np.isfinite([one.mean, one.mean_global]).any() for result in results for one in result.rounds):
        say_empty(axes, "not finite", numbers=False)


def _errors_over_similarity(axes: Axes, results: Sequence[ClientCKA], width: float) -> None:
    """Draw the test error of every round's global model against the mean CKA of its clients, in the order of rounds; a
    colour and a marker a run."""
    for look, result in zip(looks_of([result.run for result in results]), results, strict=True):
        known = _comparable(result)
        across, up = [one.mean for one in known], [100 * one.test_error for one in known]
        name = shorten_label(result.run, 10) if len(results) > 1 else "_run"
        axes.plot(across, up, **look, markersize=2.6, linewidth=0.5, label=name)
    even(axes.xaxis, min(6, max(2, int(width / 0.4))), quarters=True)
    even(axes.yaxis, 4, quarters=True)
    axes.margins(x=0.1, y=0.12)
    axes.autoscale_view()  # now, because labels stand where the points are, which the limits decide
    from_zero(axes)
    axes.set_xlabel("mean CKA between clients", labelpad=1)
    axes.set_ylabel("test error (%)")


def _number_rounds(axes: Axes, results: Sequence[ClientCKA], width: float, height: float) -> None:
    """Write the rounds' numbers at the points: every run's first and last one, and others as they fit; of many rounds
    the first and the last alone."""
    ends: list[tuple[float, float, str, str]] = []
    others: list[tuple[float, float, str, str]] = []
    for look, result in zip(looks_of([result.run for result in results]), results, strict=True):
        colour = look["color"]
        named = [(one.mean, 100 * one.test_error, str(one.round), colour) for one in _comparable(result)]
        ends += named[:1] + named[1:][-1:]
        others += named[1:-1]
    label_points(axes, [*ends, *others], width, height, len(ends) if len(others) > MARKED else None)


def _choose_panels(results: Sequence[ClientCKA], asked: Sequence[str]) -> set[str]:
    """Return the panels that are drawn. Raises as :func:`draw_clients`."""
    there = {
        "maps": True,
        "rounds": any(len(result.rounds) > 1 for result in results),
        "error": any(len(_comparable(result)) > 1 for result in results),
    }
    for name in asked:
        if name not in PANELS:
            raise FedscopeError(f"{name!r} is not a panel of similarities over rounds; there are {', '.join(PANELS)}")
        if not there[name]:
            raise FedscopeError(f"there is no panel {name!r}, because {PANELS[name]}; ask for more --rounds")
    return {name for name in asked or PANELS if there[name]}


def _comparable(result: ClientCKA) -> list[RoundCKA]:
    """Return the rounds with a finite mean CKA and a measured test error."""
    return [one for one in result.rounds if math.isfinite(one.mean) and math.isfinite(one.test_error)]


def _remark(results: Sequence[ClientCKA | ModelCKA], drawn: Collection[str] = ("maps",)) -> str:
    attrs: Mapping[str, Any] = results[0].attrs
    where = "outputs" if results[0].layer in ("", OUTPUT) else f"layer {literal(results[0].layer)}"
    batches = int(attrs.get("batches", 1))
    parts = [f"{word_of(attrs, 'estimator')} linear CKA of {where}".strip()]
    if "rounds" in drawn and batches > 1:
        parts.append(f"bars: standard error over {batches} minibatches")
    if "rounds" in drawn and len(results) > 1:
        parts.append("dashed: with global")
    if "error" in drawn:
        parts.append("test error: of global, measured while training, numbers: rounds")
    matrices = [result.cka for result in results if hasattr(result, "cka")]
    matrices += [one.cka for result in results if hasattr(result, "rounds") for one in result.rounds]
    broken = sum(int(np.isnan(np.diagonal(matrix)).sum()) for matrix in matrices)
    marks = {"maps": "hatched", "rounds": "crosses"}
    if broken and (words := [mark for name, mark in marks.items() if name in drawn]):
        parts.append(f"{', '.join(words)}: not defined")
    if "data" in attrs:
        parts.append(describe_data(attrs))
    parts += dict.fromkeys(literal(note) for result in results for note in result.attrs.get("left_out", ()))
    return "; ".join(parts)
