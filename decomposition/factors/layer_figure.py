"""Locality by layer and round as a heat map, above how far the clients are from their average there. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...plotting.drawing import drawing
from ...plotting.layer_maps import LayerHeatmap, draw_layer_maps
from ...plotting.style import describe_accepted, literal, shorten_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .layer_result import LayerDecomposition


@drawing
def draw_layers(result: LayerDecomposition, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw the locality, white at 0, and below it the mean distance of clients to their average, a row a layer and a
    column a round; ``width`` in inches."""
    errors = result.values("locality", "stderr_draws")
    maps = [
        LayerHeatmap(
            "locality, if only this layer is averaged",
            "squared error",
            result.values("locality"),
            signed=True,
            written=True,
            errors=errors,
        ),
        LayerHeatmap(
            "distance of clients to their average there", "$L_2$", result.values("delta_mean"), log=True, written=True
        ),
    ]
    columns, axis = _columns(result)
    remark = _remark(result, maps)
    return draw_layer_maps(result.layers, columns, maps, axis=axis, remark=remark, width=width, title=title)


def _columns(result: LayerDecomposition) -> tuple[list[str], str]:
    """Names of the columns: rounds, of several runs or models with their name."""
    if len(result.runs) == 1:
        return [str(one.round) for _, one in result.rounds()], "round"
    names = [f"{run.run}@{one.round}/{run.model}" for run, one in result.rounds()]
    return [shorten_label(name.removesuffix("/global"), 24) for name in names], ""


def _remark(result: LayerDecomposition, maps: list[LayerHeatmap]) -> str:
    parts = ["locality: loss of the ensemble with a row's layer averaged in all clients, less that without"]
    parts.append(f"draws: {literal(result.draws)}")
    if not all(np.isfinite(one.values).all() for one in maps):
        parts.append("hatched: not finite")
    counts = " to ".join(f"{n:,}" for n in sorted({one.samples for _, one in result.rounds()}))
    parts.append(f"{result.split}, {counts} samples{describe_accepted(result.attrs)}")
    return "; ".join(parts)
