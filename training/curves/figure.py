"""Measures over rounds, a panel each; drawing only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.drawing import drawing
from ...plotting.legends import fitting_columns
from ...plotting.looks import looks_of
from ...plotting.spread import mean_band
from ...plotting.stack import PanelStack
from ...plotting.style import CHARACTER, paper_style, shorten_label
from ...plotting.ticks import crosses, decades, even
from .diverged import rounds_without_number
from .measures import MEANS, CurveMeasure, measure_of, smooth
from .summary import break_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .bands import Band
    from .result import Curves
    from .run_curve import Curve

#: inches of a panel whose label still fits beside it
LOWEST = 1.4
#: of more runs no deviation over clients is drawn as a band: they would hide each other
BANDED = 4

#: marks of bands of one deviation
BANDS = {"band", "seeds"}

#: a mean over clients that is drawn into another panel, dotted: with its deviation as a band, or alone
BESIDE = {
    "test_error": ("client_error_mean", True),
    "client_test_error_mean": ("client_error_mean", False),
    "all_client_test_error_mean": ("client_error_mean", False),
}


@drawing
def draw(curves: Curves, width: float = 3.5, title: str | None = None) -> Figure:
    """A panel a measure over rounds, see :func:`draw_curves`; ``width`` in inches.

    Raises:
        FedscopeError: a measure that does not exist or has no numbers, a run without any of them; a window that is too
            short or longer than what was measured; a target, and no measure that leaves an accuracy.
    """
    return draw_curves(curves, curves.drawable(), width, title, curves.smooth)


def draw_curves(
    curves: Curves, measures: Sequence[CurveMeasure], width: float = 3.5, title: str | None = None, smoothing: int = 0
) -> Figure:
    """A panel a measure, one colour a run.

    Where a run averages over rounds, the line of its test loss and error is the averaged model's from the first
    averaged round on (filled dot), and that of its ``global`` goes on, thin and dark. A mean over clients has a band of
    one deviation. The clients' mean error on the test set is dotted: in the panel of the test error with its band, in
    that of the error on their own test parts without. What has a panel of its own is drawn there alone,
    and of more than four runs there are no bands over clients.

    Runs that differ only in their seed are one line, their mean, in a band of one deviation over the seeds; there is
    no other band then, and nothing dotted. A target is a thin line, with a ring where a run first reaches it. Crosses
    at the axis are rounds of a run that has diverged, whose value is not finite.
    """
    with paper_style(width):
        stack = PanelStack(width, max(0.475 * width, LOWEST) * len(measures) + 0.35, len(measures))
        panels = stack.panels
        marks: set[str] = set()
        alone = {measure.column for measure in measures}
        if len(curves.lines) > BANDED:
            alone |= {f"{name}_std" for name in MEANS}
        for axes, measure in zip(panels, measures, strict=True):
            if _is_logarithmic(curves, measure, smoothing):
                axes.set_yscale("log")  # first, because bands are drawn accordingly
            for i, (curve, look) in enumerate(zip(curves.lines, _looks(curves), strict=True)):
                if curves.bands:
                    marks |= _draw(axes, curve, measure, look, smoothing, alone, curves.bands[i])
                else:
                    marks |= _draw(axes, curve, measure, look, smoothing, alone)
                    marks |= _beside(axes, curve, measure, look, smoothing, alone)
            marks |= _target(axes, curves, measure)
            _scale(axes, measure, curves)
            if axes.get_yscale() == "log" and marks & BANDS:
                marks.add("log")
        panels[-1].set_xlabel("round")
        even(panels[-1].xaxis, "auto", integer=True)
        last = max(int(curve.round[-1]) for curve in curves.lines)
        panels[-1].set_xlim(*((1, last) if last > 1 else (0.5, 1.5)))
        handles = _handles(curves, marks, int((width - 0.5) / CHARACTER))
        return stack.finished(handles, fitting_columns(handles, width), title)


def _draw(
    axes: Axes,
    curve: Curve,
    measure: CurveMeasure,
    look: dict[str, Any],
    smoothing: int,
    alone: Collection[str],
    seeds: Band | None = None,
) -> set[str]:
    """A run's line; returns what has to be explained besides it. What is ``alone`` in a panel is no band here."""
    x, y = _line(curve, measure, smoothing)
    marks: set[str] = set()
    if len(broken := _broken(curve, measure, seeds)):
        crosses(axes, broken, np.full(len(broken), np.nan), 0.04, color=look["color"], clip_on=False, zorder=4)
        marks.add("broken")
    if not len(x):
        return marks
    # one history is one line: dashes above what is whole show both, in whatever order runs are given
    above = 0.0 if look.get("linestyle", "-") == "-" else 0.1
    axes.plot(x, y, zorder=3 + above, marker="." if len(x) == 1 else None, **look)
    if seeds is not None and seeds.seeds > 1:
        _band(axes, curve, seeds.deviation(measure), measure, x, y, look["color"], smoothing)
        marks.add("seeds")
    elif seeds is None and measure.deviation is not None and measure.deviation not in alone:
        _band(axes, curve, curve.deviation(measure), measure, x, y, look["color"], smoothing)
        marks.add("band")
    averaged = curve.averaged(measure.column)
    if averaged is None:
        return marks
    begin = curve.round[~np.isnan(averaged)][0]
    at = int(np.searchsorted(x, begin))
    axes.plot(x[at], y[at], "o", color=look["color"], markersize=3.5, zorder=4)
    # where nothing is averaged yet the two are one; they part a round before the dot, or a window before it
    x, y = _histories(curve, measure, smoothing)[1]
    own = slice(max(int(np.searchsorted(x, begin)) - 1 - smoothing, 0), None)
    axes.plot(x[own], y[own], color=_darker(look["color"]), linewidth=0.6, zorder=3.5)
    return marks | {"dot", "global"}


def _broken(curve: Curve, measure: CurveMeasure, seeds: Band | None) -> np.ndarray:
    """Return the rounds in which a value is not finite; of a mean over seeds, that of one of them is not."""
    members = (curve,) if seeds is None else seeds.members
    rounds = np.unique(np.concatenate([rounds_without_number(one, measure) for one in members]))
    return rounds[np.isin(rounds, curve.round[~np.isfinite(curve.series(measure))])]


def _darker(colour: str) -> tuple[float, float, float]:
    """Seen in front of a line of ``colour``."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return red / 2, green / 2, blue / 2


def _target(axes: Axes, curves: Curves, measure: CurveMeasure) -> set[str]:
    """Return the target, in a panel whose curves can reach it."""
    if curves.target is None or not measure.is_reachable:
        return set()
    level = 100 * (curves.target if measure.is_accuracy else 1 - curves.target)
    axes.axhline(level, color="0.4", linestyle=(0, (4, 2)), linewidth=0.6, zorder=1.5)
    marks = {"target"}
    for curve, look in zip(curves.lines, _looks(curves), strict=True):
        first = curve.reach(measure, curves.target).round
        if first is not None:
            at = 100 * curve.series(measure)[curve.round == first]
            axes.plot([first], at, "o", mfc="white", mec=look["color"], markersize=4, zorder=5)
            marks.add("reached")
    return marks


def _beside(
    axes: Axes, curve: Curve, measure: CurveMeasure, look: dict[str, Any], smoothing: int, alone: Collection[str]
) -> set[str]:
    """Return the clients' mean error on the test set, in the panel of another error, unless it is ``alone`` in one."""
    name, band = BESIDE.get(measure.column, ("", False))
    if not name or name in alone:
        return set()
    clients = measure_of(name.replace("error", "accuracy") if measure.is_accuracy else name)
    x, y = _line(curve, clients, smoothing)
    if not len(x):
        return set()
    axes.plot(x, y, color=look["color"], linestyle=":", linewidth=0.8, zorder=2)
    if band and clients.deviation not in alone:
        _band(axes, curve, curve.deviation(clients), clients, x, y, look["color"], smoothing)
        return {"clients and band"}
    return {"clients alone"} if band else {"clients"}


def _band(
    axes: Axes,
    curve: Curve,
    deviation: np.ndarray,
    measure: CurveMeasure,
    x: np.ndarray,
    y: np.ndarray,
    colour: str,
    smoothing: int,
) -> None:
    """One deviation about a line; ``deviation`` is over the curve's rounds, as it was measured."""
    around = (100 if measure.is_share else 1) * deviation[np.isin(curve.round, x)]
    if smoothing and len(x) >= smoothing:
        around = smooth(around, smoothing)
    mean_band(axes, x, y, around, colour, 0.15, log=axes.get_yscale() == "log")


def _looks(curves: Curves) -> list[dict[str, Any]]:
    """Colour and dashes of each line: its method's."""
    names = [band.label for band in curves.bands] or [curve.run for curve in curves.runs]
    return [{name: look[name] for name in ("color", "linestyle")} for look in looks_of(names)]


def _handles(curves: Curves, marks: set[str], letters: int) -> list[Any]:
    """Return the legend: the runs, each in so many letters at most, then what else is drawn."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    names = [band.printed for band in curves.bands] or [curve.run for curve in curves.runs]
    handles: list[Any] = [
        Line2D([], [], **look, label=shorten_label(name, letters))
        for name, look in zip(names, _looks(curves), strict=True)
    ]
    grey, factor = "0.4", " (log: a factor)" if "log" in marks else ""
    others = {
        "dot": Line2D([], [], color=grey, marker="o", markersize=3.5, linestyle="none", label="average begins"),
        "global": Line2D([], [], color=_darker(grey), linewidth=0.6, label="its global"),
        "clients and band": Line2D([], [], color=grey, linestyle=":", linewidth=0.8, label="clients, ± 1 s.d."),
        "clients alone": Line2D([], [], color=grey, linestyle=":", linewidth=0.8, label="clients"),
        "clients": Line2D([], [], color=grey, linestyle=":", linewidth=0.8, label="on the common test set"),
        "broken": Line2D([], [], color=grey, marker="x", markersize=3, linestyle="none", label="not finite"),
        "band": Patch(facecolor=grey, alpha=0.3, linewidth=0, label=f"± 1 s.d.{factor}"),
        "seeds": Patch(facecolor=grey, alpha=0.3, linewidth=0, label=f"± 1 s.d. over seeds{factor}"),
        "target": Line2D([], [], color=grey, linestyle=(0, (4, 2)), linewidth=0.6, label="target accuracy"),
        "reached": Line2D([], [], mfc="white", mec=grey, marker="o", markersize=4, linestyle="none", label="reached"),
    }
    return handles + [handle for mark, handle in others.items() if mark in marks]


def _line(curve: Curve, measure: CurveMeasure, smoothing: int) -> tuple[np.ndarray, np.ndarray]:
    rounds, values = curve.measured(measure)
    return _smooth(rounds, 100 * values if measure.is_share else values, smoothing)


def _convert_column(measure: CurveMeasure, values: np.ndarray) -> np.ndarray:
    """A column as it is drawn: in per cent, an accuracy for an error."""
    values = 1 - values if measure.is_accuracy else values
    return 100 * values if measure.is_share else values


def _smooth(rounds: np.ndarray, values: np.ndarray, smoothing: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the measured rounds, smoothed where asked and where there are enough of them."""
    there = ~np.isnan(values)
    x, y = rounds[there], values[there]
    return x, smooth(y, smoothing) if smoothing and len(y) >= smoothing else y


def _is_logarithmic(curves: Curves, measure: CurveMeasure, smoothing: int) -> bool:
    """Tell whether nothing that is drawn of a loss is below 0, where a logarithmic axis would hide it.

    A loss of exactly 0 among others stands on no such axis either, but the others need it.
    """
    if not measure.is_loss:
        return False
    drawn = [values for curve in curves.lines for _, values in _histories(curve, measure, smoothing)]
    every = np.concatenate(drawn)
    every = every[np.isfinite(every)]
    return bool((every >= 0).all() and (every > 0).any())


def _histories(curve: Curve, measure: CurveMeasure, smoothing: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return a run's line, and where it averages over rounds that of its ``global``."""
    lines = [_line(curve, measure, smoothing)]
    if curve.averaged(measure.column) is not None:
        lines.append(_smooth(curve.round, _convert_column(measure, curve.column(measure.column)), smoothing))
    return lines


def _scale(axes: Axes, measure: CurveMeasure, curves: Curves) -> None:
    label = measure.label_in(curves.attrs.get("tasks", ()))
    axes.set_ylabel(break_label(label))
    if axes.get_yscale() == "log":
        axes.set_ylabel(break_label(f"{label}, log"))
        low, high = axes.get_ylim()
        decades(axes.yaxis, (1.0,) if low > 0 and np.log10(high / low) > 2 else (1.0, 2.0, 5.0))
    elif measure.is_accuracy:
        if axes.get_ylim()[1] > 100:  # a mean and its deviation may be more
            axes.set_ylim(top=100)
    elif not measure.is_loss and (measure.is_share or not axes.dataLim.y0 < 0):  # a cosine or a reward may be negative
        axes.set_ylim(bottom=0)
