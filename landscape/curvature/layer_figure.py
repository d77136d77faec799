"""Sharpness of layers in several models as heat maps, a row a layer and a column a round or a model. Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...plotting.layer_maps import LayerHeatmap, draw_layer_maps
from ...plotting.style import shorten_label
from .panels import TITLES, remark_of, unit_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .result import Curvature, Sharpness

#: measures that are drawn; the others are in the table
DRAWN = ("eigenvalue_1", "trace", "worst_case")


def has_maps(models: Sequence[Curvature]) -> bool:
    """Tell whether layers were measured in several models."""
    return all(model.layer for model in models) and len({model.named for model in models}) > 1


def draw_maps(result: Sharpness, width: float, title: str | None) -> Figure:
    """Draw the largest eigenvalue, the trace and the worst rise by layer and model, each a map with a scale of its own;
    ``width`` in inches."""
    layers = list(dict.fromkeys(model.layer for model in result.models))
    columns = list(dict.fromkeys(model.named for model in result.models))
    at = {(model.layer, model.named): model for model in result.models}
    maps = []
    for name in DRAWN:
        values = np.array([[_value(at.get((layer, column)), name) for column in columns] for layer in layers])
        if np.isfinite(values).any():
            signed = bool(np.nanmin(values) < 0)
            unit = unit_of(name, result.attrs)
            maps.append(LayerHeatmap(TITLES[name], unit, values, signed=signed, log=True, written=True))
    names, axis = _names(result.models)
    remark = remark_of(result, False, drawn=DRAWN)
    if axis:  # the global model of a round needs no words
        kinds = {model.round: model.model for model in result.models if model.model != "global"}
        remark = "; ".join(filter(None, [remark, *(f"round {at}: the {kind} model" for at, kind in kinds.items())]))
    return draw_layer_maps(layers, names, maps, axis=axis, remark=remark, width=width, title=title)


def _value(model: Curvature | None, name: str) -> float:
    measure = None if model is None else model.measure(name)
    return float("nan") if measure is None or measure.value is None else measure.value


def _names(models: Sequence[Curvature]) -> tuple[list[str], str]:
    """Names of the columns: rounds, where they are of one run and of one model each."""
    found = list({model.named: model for model in models}.values())
    rounds = {model.round for model in found}
    if len({model.run for model in found}) == 1 and None not in rounds and len(rounds) == len(found):
        return [str(model.round) for model in found], "round"
    return [shorten_label(model.named.removesuffix("/global"), 24) for model in found], ""
