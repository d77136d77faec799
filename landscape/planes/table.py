"""The table below a plane: its models, many of one kind as one row. Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..drawing.paper import CHARACTER, GREY, SMALL, shortened
from .marks import is_owner, is_path, looks, told_apart

if TYPE_CHECKING:
    from ..drawing.sheet import Sheet
    from .result import Plane, PlaneModel

#: inches that a line of small type takes
LINE = 0.135


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
        """As they are printed."""
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
    return rows + ([] if is_path(plane) else [_row(plane, look, model, model.label) for model, look in shown])


def _row(plane: Plane, look: dict[str, Any], model: PlaneModel, label: str) -> Row:
    on_plane = model.role in ("anchor", "mean", "origin")
    measured = plane.span != "surface" or not np.isnan([model.loss, model.error]).all()
    return Row(look, label, model.loss, model.error, model.off_plane, on_plane, measured)


def _mean_row(drawn: Sequence[tuple[PlaneModel, dict[str, Any]]], label: str) -> Row:
    values = np.array([[model.loss, model.error, model.off_plane] for model, _ in drawn])
    loss, error, off = (float(value) for value in values.mean(axis=0))
    return Row(drawn[0][1], label, loss, error, off, False)


def table_height(rows: Sequence[Row]) -> float:
    """Inches; a head stands above the rows where any has numbers."""
    return LINE * (len(rows) + any(row.measured for row in rows))


def draw_table(sheet: Sheet, top: float, rows: Sequence[Row]) -> None:
    """The models' own losses, errors and distances from the plane, measured exactly."""
    right = min(sheet.width - 0.12, 4.6)
    ends = (right - 1.12, right - 0.58, right)
    style = {"ha": "right", "fontsize": SMALL}
    headed = any(row.measured for row in rows)
    without = all(np.isnan(row.error) for row in rows)  # a task without one
    for end, words in zip(ends, ("loss", "" if without else "error", "off plane") if headed else (), strict=False):
        sheet.text(end, top + LINE / 2, words, color=GREY, **style)
    characters = int((ends[0] - 0.42 - 0.46) / CHARACTER)
    for i, row in enumerate(rows, start=int(headed)):
        middle = top + (i + 0.5) * LINE
        sheet.key(0.28, middle, {**row.look, "markersize": 0.8 * row.look["markersize"]})
        sheet.text(0.42, middle, shortened(row.label, characters), fontsize=SMALL)
        for end, words in zip(ends, row.numbers(), strict=True):
            sheet.text(end, middle, words, **style)
