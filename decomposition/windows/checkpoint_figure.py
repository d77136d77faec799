"""What means of checkpoints gain against the window, a line a weighting. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...plotting.drawing import drawing
from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.spread import mean_band
from ...plotting.style import CHARACTER, describe_data, paper_style, run_look
from ...plotting.ticks import even, label_ends
from .figure import BELOW, HIGH, LEFT, RIGHT, labels_apart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .checkpoint_result import CheckpointMean, CheckpointWindows

# Inches: room of the numbers left of the panel, which have more digits than a share of errors.
WIDER = 0.14


@drawing
def draw_checkpoints(result: CheckpointWindows, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw the loss gained against the window on a logarithmic axis, a line a weighting with a band of 1.96 standard
    errors over samples; 0 is the newest checkpoint. ``width`` in inches."""
    with paper_style(width):
        said = wrap_words(_remark(result), width - 0.2, 0.86)
        longest = max(map(len, result.weightings))
        across = (width - LEFT - WIDER - RIGHT - CHARACTER * longest) / 1.06
        top = EDGE + (0.2 if title else 0.06)
        sheet = FigureLayout(width, top + HIGH + BELOW + LINE * len(said) + EDGE, title)
        axes = sheet.axes(LEFT + WIDER, top, across, HIGH, ylabel=0.34 + WIDER)
        for i, weights in enumerate(result.weightings):
            own = result.of(weights)
            windows, gained, spread = ([_number(one, name) for one in own] for name in ("window", "gained", "spread"))
            look = run_look(i, linewidth=1.0, markersize=2.5)
            axes.plot(windows, gained, label=weights, **look)
            mean_band(axes, windows, np.array(gained), np.array(spread), look["color"], 0.1)
        axes.axhline(0, color="0.6", linewidth=0.6, zorder=0, label="_newest")
        axes.set_xscale("log")
        ticks = sorted({one.window for one in result.means[1:]})
        axes.set_xticks(ticks, labels_apart(ticks, across))
        axes.minorticks_off()
        even(axes.yaxis, 5, quarters=True)
        axes.autoscale_view()
        unit = " (nats)" if result.attrs.get("loss_units", "nat") == "nat" else ""
        axes.set_ylabel(f"loss gained{unit}")
        axes.set_xlabel("$W$, newest checkpoints in the mean (log)", labelpad=1)
        label_ends(axes, HIGH)
        return sheet.finished(said)


def _number(one: CheckpointMean, name: str) -> float:
    value = one.gained_stderr if name == "spread" else getattr(one, name)
    return np.nan if value is None else float(value) * (1.96 if name == "spread" else 1)


def _remark(result: CheckpointWindows) -> str:
    parts = ["loss of the newest checkpoint less that of the mean; bands: ±1.96 standard errors over samples"]
    if "data" in result.attrs:
        parts.append(describe_data(result.attrs))
    return "; ".join(parts)
