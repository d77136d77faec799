"""Updates by layer and round as two heat maps: how far they agree, and what the mean keeps of them. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...plotting.drawing import drawing
from ...plotting.layer_maps import LayerHeatmap, draw_layer_maps
from ...plotting.style import literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .layer_result import LayerUpdates


@drawing
def draw_layers(result: LayerUpdates, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw the mean cosine, white at 0, and below it the length kept, a row a layer and a column a round; ``width`` in
    inches."""
    maps = [
        LayerHeatmap("mean cosine between clients' updates", "cosine", result.values("cosine_mean"), signed=True),
        LayerHeatmap("length kept by the mean update", "length kept", result.values("cancellation")),
    ]
    rounds = [str(number) for number in result.rounds]
    return draw_layer_maps(
        result.layers, rounds, maps, axis="round", remark=_remark(result, maps), width=width, title=title
    )


def _remark(result: LayerUpdates, maps: list[LayerHeatmap]) -> str:
    parts = [
        "Δ: a client's model less the one it was sent, in the layer of a row",
        "length kept: ‖Σ\u00a0p\u00a0Δ‖\u00a0/\u00a0Σ\u00a0p\u00a0‖Δ‖",
    ]
    if not all(np.isfinite(one.values).all() for one in maps):
        parts.append("hatched: no client moved there, or one diverged")
    return "; ".join([*parts, *map(literal, result.attrs.get("left_out", ()))])
