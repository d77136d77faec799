"""The legend below panels: what their markers mean. Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..drawing.paper import CHARACTER, shortened
from .marks import is_owner, is_path, looks, told_apart

if TYPE_CHECKING:
    from .result import Plane, PlaneModel


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
