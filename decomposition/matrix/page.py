"""The matrix as a web page that tells each cell's numbers and goes through the rounds. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.static_fallback import still_of
from ...plotting.style import SURFACE
from ...plotting.web_page import as_page, heading, label_text

if TYPE_CHECKING:
    from .result import LossCell, Matrix, RoundMatrix


def draw_page(result: Matrix, title: str | None = None) -> str:
    """Write the page as HTML with plotly.js inside, the same text for the same matrix.

    Pointing at a cell tells the model, whose data they are, how many samples, and loss and error with their standard
    errors; the slider goes through the rounds.
    """
    import plotly.graph_objects as go

    title = title or f"Every model on every client's data: {result.run}"
    low, high = _scale(result)
    last = len(result.rounds) - 1
    figure = go.Figure()
    for i, one in enumerate(result.rounds):
        figure.add_heatmap(**_map(one), zmin=low, zmax=high, visible=i == last, coloraxis="coloraxis")
    unit = "error (%)" if result.rounds[-1].measure == "error" else "loss"
    steps = [
        {
            "label": str(one.round),
            "method": "update",
            "args": [{"visible": [k == i for k in range(last + 1)]}],
        }
        for i, one in enumerate(result.rounds)
    ]
    figure.update_layout(
        template="plotly_white",
        title=heading(title, f"rows: models; columns: on whose data{_order_words(result)}"),
        coloraxis={"colorscale": SURFACE, "cmin": low, "cmax": high, "colorbar": {"title": {"text": unit}}},
        xaxis={"title": {"text": "data of"}, "type": "category"},
        yaxis={"title": {"text": "model"}, "type": "category", "autorange": "reversed"},
        sliders=[{"active": last, "currentvalue": {"prefix": "round: "}, "pad": {"t": 50}, "steps": steps}]
        if last
        else [],
        margin={"l": 90, "r": 20, "t": 90, "b": 60},
    )
    return as_page(figure, title, "matrix", still_of(result))


def _order_words(result: Matrix) -> str:
    """Say what the clients' order is by, where it is not that of their numbers, as it is where there are no labels."""
    by_number = all(list(one.clients) == sorted(one.clients) for one in result.rounds)
    return "" if by_number else "; clients with similar labels are neighbours"


def _scale(result: Matrix) -> tuple[float, float]:
    every = np.concatenate([one.shown().ravel() for one in result.rounds])
    finite = every[np.isfinite(every)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _map(one: RoundMatrix) -> dict[str, Any]:
    cells = {(cell.model, cell.place): cell for cell in one.cells}
    values = [[float(x) if np.isfinite(x) else None for x in row] for row in one.shown()]
    words = [[_words(cells[model, place]) for place in one.places] for model in one.models]
    return {
        "z": values,
        "x": list(one.places),
        "y": list(one.models),
        "text": words,
        "hovertemplate": "%{text}<extra></extra>",
        "xgap": 1,
        "ygap": 1,
    }


def _words(cell: LossCell) -> str:
    loss = _number("loss", cell.loss, cell.loss_stderr, 1, "")
    error = _number("error", cell.error, cell.error_stderr, 100, " %")
    told = "<br>".join(part for part in (loss, error) if part)
    told += "<br>± one standard error over samples" if " ± " in told else ""
    return f"{label_text(cell.model)} on {label_text(cell.place)}, {cell.samples:,} samples<br>{told}"


def _number(name: str, value: float | None, stderr: float | None, scale: float, unit: str) -> str:
    if value is None:
        return ""
    if not np.isfinite(value):
        return f"{name} not finite"
    spread = "" if stderr is None or not np.isfinite(stderr) else f" ± {scale * stderr:.2g}"
    return f"{name} {scale * value:.3g}{spread}{unit}"
