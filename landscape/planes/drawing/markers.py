"""The models of a plane: markers and lines on its surface, their table below it, and what the markers on several mean.
Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....plotting.layout import LINE, FigureLayout
from ....plotting.style import CHARACTER, COLOURS, GREY, MARKERS, SMALL, shorten_label
from ..basins import Basin, basin_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ....plotting.layout import FigureLayout
    from ..result import Plane, PlaneModel

#: Colours that stand out from the surface's.
SHOWN = (COLOURS[1], COLOURS[3], COLOURS[4], COLOURS[5])
ANCHOR = {"marker": "^", "color": "black", "markeredgecolor": "white", "markersize": 6.0}
MEAN = {"marker": "X", "color": "white", "markeredgecolor": "black", "markersize": 6.5}
#: black, with a halo that shows it on a dark surface, too
MINIMUM: dict[str, Any] = {
    "marker": "+",
    "color": "black",
    "markersize": 5.5,
    "markeredgewidth": 1.0,
    "linestyle": "none",
}
OWNER = {"marker": "^", "color": SHOWN[0], "markeredgecolor": "white", "markersize": 7.5}
#: letters of a label below which it stands above its numbers
FEWEST = 12
#: markers with little area are drawn larger
WIDER = {"P": 6.5, "*": 8.0, "v": 5.8, "D": 4.6}


def looks(plane: Plane) -> list[tuple[PlaneModel, dict[str, Any]]]:
    """Every model with its marker: black triangles, the mean a white cross, the shown ones each their own.

    A path's models are dots in its colour, the first one hollow; the client whose data a surface is measured on
    stands out.
    """
    own = {"anchor": ANCHOR, "mean": MEAN, "origin": MEAN}
    drawn: list[tuple[PlaneModel, dict[str, Any]]] = [
        (m, OWNER if is_owner(plane, m) else own[m.role]) for m in plane.models if m.role in own
    ]
    for models, colour in paths(plane):
        drawn += [(model, _dot(colour, hollow=i == 0)) for i, model in enumerate(models)]
    taken = len(paths(plane))  # a path has the first marker and colour
    for i, model in enumerate([] if is_path(plane) else plane.shown, start=taken):
        shape, colour = MARKERS[i % len(MARKERS)], SHOWN[i % len(SHOWN)]
        size = WIDER.get(shape, 5.0)
        drawn.append((model, {"marker": shape, "color": colour, "markeredgecolor": "white", "markersize": size}))
    return [(model, {"linestyle": "none", "markeredgewidth": 0.6, **look}) for model, look in drawn]


def is_owner(plane: Plane, model: PlaneModel) -> bool:
    """Tell whether the surface is measured on this client's own data.

    Where ``attrs`` name the run whose client it is (``data_run``), the client of that number in another run is not.
    """
    told = plane.attrs
    run = f"{told['data_run']}@" if "data_run" in told else ""
    return "client" in told and model.label.startswith(run) and model.label.endswith(f"/client-{told['client']}")


def _dot(colour: str, *, hollow: bool) -> dict[str, Any]:
    face, edge, width = ("white", colour, 1.2) if hollow else (colour, "white", 0.6)
    return {"marker": "o", "color": face, "markeredgecolor": edge, "markeredgewidth": width, "markersize": 5.0}


def is_path(plane: Plane) -> bool:
    """Tell whether there are so many shown models that they are drawn as one path."""
    return len(plane.shown) + bool(plane.path) > len(MARKERS)


def paths(plane: Plane) -> list[tuple[tuple[PlaneModel, ...], str]]:
    """List the lines with dots, each with its colour: a trajectory, many shown models."""
    lines = [models for models in (plane.path, plane.shown if is_path(plane) else ()) if models]
    return list(zip(lines, SHOWN, strict=False))


def told_apart(plane: Plane) -> bool:
    """Tell whether the anchors have a number and a row each: three models, but not a round's clients."""
    return 0 < len(plane.anchors) <= 3 and plane.span != "clients"


def mark(axes: Axes, plane: Plane, *, numbered: bool) -> None:
    """Draw the models on the surface; ``numbered`` writes 1, 2, 3 next to the anchors, away from their middle."""
    from matplotlib.patheffects import withStroke

    inner: set[int] = set()
    curve = plane.span == "surface"  # its points are no models of their own, and its ends are the anchors
    for models, colour in paths(plane):
        places = [model.a for model in models], [model.b for model in models]
        axes.plot(*places, color=colour, linewidth=0.9, marker="" if curve else "o", markersize=2.0, zorder=4)
        inner |= {id(model) for model in (models if curve else models[1:-1])}
    in_front = sorted(looks(plane), key=lambda drawn: is_owner(plane, drawn[0]))
    for zorder, (model, look) in enumerate(in_front, start=5):
        if id(model) not in inner:
            axes.plot([model.a], [model.b], zorder=zorder, **look)
    if not (numbered and told_apart(plane)):
        return
    halo = [withStroke(linewidth=1.6, foreground="white")]
    middle = np.mean([(model.a, model.b) for model in plane.anchors], axis=0)
    for i, model in enumerate(plane.anchors, start=1):
        away = np.array([model.a, model.b]) - middle
        across, up = 7.5 * away / (np.hypot(*away) or 1.0)
        number: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL, "zorder": 4.5}
        axes.annotate(str(i), (model.a, model.b), (across, up), textcoords="offset points", path_effects=halo, **number)


def mark_minimum(axes: Axes, basin: Basin | None) -> None:
    """Mark the lowest point of the surface, below the models' markers."""
    from matplotlib.patheffects import withStroke

    if basin is not None:
        halo = [withStroke(linewidth=2.4, foreground="white")]
        axes.plot([basin.a], [basin.b], zorder=4.6, clip_on=False, path_effects=halo, **MINIMUM)


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        look: the marker, as on the surface.
        label: what it is.
        loss, error, off_plane: of the model, or the mean over several.
        on_plane: whether it lies on the plane by definition, so that its distance is rounding.
        measured: whether it has numbers of its own; models of another program's surface may have none.
    """

    look: dict[str, Any]
    label: str
    loss: float
    error: float
    off_plane: float
    on_plane: bool
    measured: bool = True

    def numbers(self) -> tuple[str, str, str]:
        """Return the numbers as they are printed."""
        if not self.measured:
            return "", "", ""
        off = "0" if self.on_plane and self.off_plane <= 1e-3 else f"{self.off_plane:.2g}"
        error = "" if np.isnan(self.error) else f"{100 * self.error:.1f} %"
        if not np.isfinite(self.loss):
            return "nan" if np.isnan(self.loss) else "inf", error, off
        return f"{self.loss:#.3g}", error, off


def rows_of(plane: Plane) -> list[Row]:
    """A row a model: three anchors, their mean, those shown; a round's clients and paths in one or two."""
    drawn = looks(plane)
    anchors = [pair for pair in drawn if pair[0].role == "anchor"]
    shown = [pair for pair in drawn if pair[0].role == "shown"]
    rows = []
    if told_apart(plane):
        rows += [_row(plane, look, model, f"{i}  {model.label}") for i, (model, look) in enumerate(anchors, start=1)]
    elif anchors:
        anchors.sort(key=lambda pair: is_owner(plane, pair[0]))  # the first one's marker is for all
        rows.append(_mean_row(anchors, f"{len(anchors)} clients, each alone"))
        rows += [_row(plane, look, model, model.label) for model, look in anchors if is_owner(plane, model)]
    for model, look in drawn:
        if model.role == "mean":
            named = "mean of 1, 2, 3" if told_apart(plane) else "their mean"
            rows.append(_row(plane, look, model, named))
        if model.role == "origin":
            rows.append(_row(plane, look, model, model.label))
    # the points of another program's curve are a line alone
    path = [pair for pair in drawn if pair[0].role == "path" and plane.span != "surface"]
    for models in (path, shown if is_path(plane) else []):
        rows += [
            _row(plane, look, model, f"{word}: {model.label}")
            for word, (model, look) in zip(("first", "last"), (models[0], models[-1]) if models else (), strict=False)
        ]
    rows += [] if is_path(plane) else [_row(plane, look, model, model.label) for model, look in shown]
    basin = basin_of(plane)
    lowest = [] if basin is None else [Row(MINIMUM, "minimum of the surface", basin.loss, float("nan"), 0.0, True)]
    return rows + lowest


def _row(plane: Plane, look: dict[str, Any], model: PlaneModel, label: str) -> Row:
    on_plane = model.role in ("anchor", "mean", "origin")
    measured = plane.span != "surface" or not np.isnan([model.loss, model.error]).all()
    return Row(look, label, model.loss, model.error, model.off_plane, on_plane, measured)


def _mean_row(drawn: Sequence[tuple[PlaneModel, dict[str, Any]]], label: str) -> Row:
    values = np.array([[model.loss, model.error, model.off_plane] for model, _ in drawn])
    loss, error, off = (float(value) for value in values.mean(axis=0))
    return Row(drawn[0][1], label, loss, error, off, False)


def table_height(rows: Sequence[Row], width: float) -> float:
    """Inches, on a figure of ``width``; a head stands above the rows where any has numbers."""
    return LINE * (len(rows) * (1 + _is_narrow(width)) + any(row.measured for row in rows))


def _ends(width: float) -> tuple[float, float, float]:
    """Return where the columns of numbers end, in inches from the left."""
    right = min(width - 0.12, 4.6)
    return right - 1.12, right - 0.58, right


def _letters(width: float) -> int:
    """Count the letters of a label that fit left of the numbers."""
    return int((_ends(width)[0] - 0.42 - 0.46) / CHARACTER)


def _is_narrow(width: float) -> bool:
    """Tell whether labels stand above the numbers, since too little of them fits beside."""
    return _letters(width) < FEWEST


def draw_table(sheet: FigureLayout, top: float, rows: Sequence[Row]) -> None:
    """Draw the models' own losses, errors and distances from the plane, measured exactly."""
    ends, narrow = _ends(sheet.width), _is_narrow(sheet.width)
    style = {"ha": "right", "fontsize": SMALL}
    headed = any(row.measured for row in rows)
    without = all(np.isnan(row.error) for row in rows)  # a task without one
    for end, words in zip(ends, ("loss", "" if without else "error", "off plane") if headed else (), strict=False):
        sheet.text(end, top + LINE / 2, words, color=GREY, **style)
    characters = int((ends[2] - 0.42) / CHARACTER) if narrow else _letters(sheet.width)
    middle = top + (int(headed) - 0.5) * LINE
    for row in rows:
        middle += LINE
        sheet.symbol(0.28, middle, {**row.look, "markersize": 0.8 * row.look["markersize"]})
        sheet.text(0.42, middle, shorten_label(row.label, characters), fontsize=SMALL)
        middle += LINE * narrow
        for end, words in zip(ends, row.numbers(), strict=True):
            sheet.text(end, middle, words, **style)


def keys_of(planes: Sequence[Plane], most: int = 100) -> list[tuple[dict[str, Any], str]]:
    """Explain the markers of panels, a line each.

    A model shown is told with its loss and distance, unless they are others on other panels.

    Args:
        most: the characters of a line. A name is cut to what its numbers leave, since half a number is a wrong one;
            where that is too little for a name, it stands without them.
    """
    keys: list[tuple[dict[str, Any], str]] = []
    numbers: dict[str, set[str]] = {}
    for model in (model for plane in planes for model in plane.shown):
        numbers.setdefault(model.label, set()).add(_numbers(model))
    for plane in planes:
        count = len(plane.anchors)
        own = (
            shorten_label(", ".join(model.label for model in plane.anchors), 60)
            if plane.span == "surface"
            else "the three models"
        )
        roles = {
            "anchor": own if told_apart(plane) else f"the {count} clients",
            "mean": "their mean",
            "origin": _origin_words(plane),
            "path": f"first of {len(plane.path)} models of the run",
        }
        seen = set()
        for model, look in looks(plane):
            if plane.span == "surface" and model.role == "path":
                continue
            if is_owner(plane, model):
                words = "the client whose data they are"
            elif model.role == "shown" and is_path(plane):
                words = f"{len(plane.shown)} models, projected"
            elif model.role == "shown":
                told = f": {_numbers(model)}" if len(numbers[model.label]) == 1 else ""
                told = told if most - len(told) >= min(FEWEST, len(model.label)) else ""
                words = shorten_label(model.label, min(26, max(most - len(told), FEWEST))) + told
            else:
                words = roles[model.role]
            if words not in seen and (look, words) not in keys:
                keys.append((look, words))
            seen.add(words)
    if any(basin_of(plane) is not None for plane in planes):
        keys.append((MINIMUM, "minimum of the loss"))
    return keys


def _origin_words(plane: Plane) -> str:
    """Return the model that random directions begin at; on the same axes the panel's title says which."""
    label = next((model.label for model in plane.models if model.role == "origin"), "")
    return "the model above the panel" if "same_axes" in plane.attrs else shorten_label(label, 40)


def _numbers(model: PlaneModel) -> str:
    return f"loss {model.loss:#.3g}, {model.off_plane:.2g} off the plane"
