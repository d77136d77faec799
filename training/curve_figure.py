"""Loss above error over rounds; drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..landscape.paper import COLOURS, DASHES, literal, paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .curves import Curve, Curves


def draw_curves(curves: Curves, width: float = 3.5, title: str | None = None, smoothing: int = 0) -> Figure:
    """Test loss above test error, one colour a run; the clients' mean error dotted, with a band of one deviation.

    Where a run averages over rounds its line is the averaged model's from the first averaged round on (filled dot), and
    its ``global`` goes on thin behind it.
    """
    with paper_style(width):
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D

        figure = Figure(figsize=(width, 0.95 * width + 0.35), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        for i, curve in enumerate(curves.runs):
            look = {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]}
            _draw(upper, curve, "test_loss", 1, look, smoothing)
            _draw(lower, curve, "test_error", 100, look, smoothing)
            _spread(lower, curve, look["color"], smoothing)
        upper.set_ylabel("test loss (nats)")
        lower.set_ylabel("test error (%)")
        lower.set_xlabel("round")
        lower.set_ylim(bottom=0)
        if any((np.isfinite(line.get_ydata()) & (np.asarray(line.get_ydata()) > 0)).any() for line in upper.lines):
            upper.set_yscale("log")
            _plain_decades(upper)
        lower.set_xlim(1, max(int(curve.round[-1]) for curve in curves.runs))
        handles = [
            Line2D([], [], color=COLOURS[i % len(COLOURS)], linestyle=DASHES[i % len(DASHES)], label=literal(curve.run))
            for i, curve in enumerate(curves.runs)
        ]
        if any(not np.isnan(curve.values["averaged_test_error"]).all() for curve in curves.runs):
            handles.append(Line2D([], [], color="0.4", linewidth=0.5, label="its global"))
        if any(not np.isnan(curve.values["client_error_mean"]).all() for curve in curves.runs):
            handles.append(Line2D([], [], color="0.4", linestyle=":", label="clients, ± 1 s.d."))
        figure.legend(handles=handles, loc="outside upper center", ncols=min(4, len(handles)), frameon=False)
        if title:
            figure.suptitle(title)
        return figure


def _draw(axes: Axes, curve: Curve, measure: str, scale: float, look: dict[str, Any], smoothing: int) -> None:
    deployed = scale * curve.deployed(measure)
    x, y = _line(curve.round, deployed, smoothing)
    axes.plot(x, y, zorder=3, **look)
    averaged = ~np.isnan(curve.values[f"averaged_{measure}"])
    if averaged.any():
        axes.plot(
            *_line(curve.round, scale * curve.values[measure], smoothing), color=look["color"], linewidth=0.5, zorder=2
        )
        first = int(np.searchsorted(x, curve.round[averaged][0]))
        axes.plot(x[first], y[first], "o", color=look["color"], markersize=3, zorder=4)


def _spread(axes: Axes, curve: Curve, colour: str, smoothing: int) -> None:
    x, mean = _line(curve.round, 100 * curve.values["client_error_mean"], smoothing)
    if not len(x):
        return
    _, deviation = _line(curve.round, 100 * curve.values["client_error_std"], smoothing)
    axes.plot(x, mean, color=colour, linestyle=":", linewidth=0.8, zorder=2)
    axes.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.15, linewidth=0, zorder=1)


def _line(rounds: np.ndarray, values: np.ndarray, smoothing: int) -> tuple[np.ndarray, np.ndarray]:
    """The measured rounds, smoothed where asked and where there are enough of them."""
    there = ~np.isnan(values)
    x, y = rounds[there], values[there]
    if smoothing and len(y) >= smoothing:
        from scipy.signal import savgol_filter

        y = savgol_filter(y, smoothing, polyorder=2)
    return x, y


def _plain_decades(axes: Axes) -> None:
    """0.1 and 1 rather than powers of ten, also between decades where fewer than two decades are seen."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_ylim()
    decades = np.log10(high / low) if low > 0 else 1
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if decades > 2 else (1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
