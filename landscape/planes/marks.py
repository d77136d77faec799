"""The models on a plane's surface: markers, numbers, lines through the models of a path, and what the markers mean
below panels. Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..drawing.paper import CHARACTER, COLOURS, MARKERS, SMALL, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .result import Plane, PlaneModel

#: Colours that stand out from the surface's.
SHOWN = (COLOURS[1], COLOURS[3], COLOURS[4], COLOURS[5])
ANCHOR = {"marker": "^", "color": "black", "markeredgecolor": "white", "markersize": 6.0}
MEAN = {"marker": "X", "color": "white", "markeredgecolor": "black", "markersize": 6.5}
OWNER = {"marker": "^", "color": SHOWN[0], "markeredgecolor": "white", "markersize": 7.5}
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
    """Whether the surface is measured on this client's own data.

    Where ``attrs`` name the run whose client it is (``data_run``), the client of that number in another run is not.
    """
    told = plane.attrs
    run = f"{told['data_run']}@" if "data_run" in told else ""
    return "client" in told and model.label.startswith(run) and model.label.endswith(f"/client-{told['client']}")


def _dot(colour: str, *, hollow: bool) -> dict[str, Any]:
    face, edge, width = ("white", colour, 1.2) if hollow else (colour, "white", 0.6)
    return {"marker": "o", "color": face, "markeredgecolor": edge, "markeredgewidth": width, "markersize": 5.0}


def is_path(plane: Plane) -> bool:
    """Whether there are so many shown models that they are drawn as one path."""
    return len(plane.shown) + bool(plane.path) > len(MARKERS)


def paths(plane: Plane) -> list[tuple[tuple[PlaneModel, ...], str]]:
    """What is drawn as a line with dots, each in its colour: a trajectory, many shown models."""
    lines = [models for models in (plane.path, plane.shown if is_path(plane) else ()) if models]
    return list(zip(lines, SHOWN, strict=False))


def told_apart(plane: Plane) -> bool:
    """Whether the anchors have a number and a row each: three models, but not a round's clients."""
    return 0 < len(plane.anchors) <= 3 and plane.span != "clients"


def mark(axes: Axes, plane: Plane, *, numbered: bool) -> None:
    """The models on the surface; ``numbered`` writes 1, 2, 3 beside the anchors, away from their middle."""
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
        axes.annotate(
            str(i),
            (model.a, model.b),
            (across, up),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=SMALL,
            zorder=4.5,
            path_effects=halo,
        )


def keys_of(planes: Sequence[Plane]) -> list[tuple[dict[str, Any], str]]:
    """What the markers of panels mean, a line each.

    A model shown is told with its loss and distance, unless they are others on other panels.
    """
    keys: list[tuple[dict[str, Any], str]] = []
    numbers: dict[str, set[str]] = {}
    for model in (model for plane in planes for model in plane.shown):
        numbers.setdefault(model.label, set()).add(_numbers(model))
    for plane in planes:
        count = len(plane.anchors)
        own = ", ".join(model.label for model in plane.anchors) if plane.span == "surface" else "the three models"
        roles = {
            "anchor": own if told_apart(plane) else f"the {count} clients",
            "mean": "their mean",
            "origin": next((shortened(model.label, 40) for model in plane.models if model.role == "origin"), ""),
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
                words = shortened(model.label, 26)
                words += f": {_numbers(model)}" if len(numbers[model.label]) == 1 else ""
            else:
                words = roles[model.role]
            if words not in seen and (look, words) not in keys:
                keys.append((look, words))
            seen.add(words)
    return keys


def _numbers(model: PlaneModel) -> str:
    return f"loss {model.loss:#.3g}, {model.off_plane:.2g} off the plane"


def flow(words: Sequence[str], left: float, width: float) -> list[tuple[float, int]]:
    """Where each of several phrases starts (inches, line), as many a line as fit."""
    places, at, line = [], left, 0
    for phrase in words:
        length = CHARACTER * len(phrase) + 0.3
        if at > left and at + length > width:
            at, line = left, line + 1
        places.append((at, line))
        at += length
    return places
