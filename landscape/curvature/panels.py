"""The panels of a figure of curvature. Drawing only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..drawing.paper import COLOURS, DASHES, MARKERS, SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from .result import Curvature, Measure, Sharpness

# Whose stderr is one; an eigenvalue's is a bound, too small to be seen.
SPREAD = ("trace", "ball_mean", "filter_mean")


def over_rounds(axes: Axes, name: str, lines: Mapping[str, Sequence[Curvature]], nats: str) -> None:
    """A measure over rounds, a colour a run, a marker a kind of model."""
    from matplotlib.ticker import MaxNLocator

    drawn = [_numbers(name, [model.measure(name) for model in own]) for own in lines.values()]
    log, scale, unit = _scale(np.concatenate([values for values, _ in drawn]), nats)
    kinds = kinds_of([model for own in lines.values() for model in own])
    for i, (own, (values, spread)) in enumerate(zip(lines.values(), drawn, strict=True)):
        colour, dash = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
        rounds = np.array([model.round for model in own], dtype=float)
        axes.plot(rounds, np.ma.masked_invalid(values / scale), color=colour, linestyle=dash, linewidth=0.9, zorder=3)
        axes.errorbar(rounds, values / scale, yerr=spread / scale, fmt="none", ecolor=colour, elinewidth=0.8, zorder=3)
        for kind, marker in zip(kinds, MARKERS, strict=False):
            of = np.array([model.model == kind for model in own])
            axes.plot(rounds[of], values[of] / scale, marker, color=colour, markersize=2.6, zorder=4)
        broken = rounds[~np.isfinite(values)]
        axes.plot(
            broken, np.full(len(broken), 0.04), "x", transform=axes.get_xaxis_transform(), color=colour, markersize=3
        )
    _ticks(axes, axes.yaxis, log)
    every = np.concatenate([values[np.isfinite(values)] for values, _ in drawn])
    if not log and (every >= 0).all():
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True, steps=[1, 2, 5, 10]))
    axes.margins(x=0.05)
    axes.set_ylabel(unit, fontsize=SMALL, labelpad=2)


def kinds_of(models: Sequence[Curvature]) -> list[str]:
    """``global`` first, so that it is a circle everywhere."""
    return sorted({model.model for model in models}, key=lambda kind: (kind != "global", kind))


def rows(axes: Axes, name: str, models: Sequence[Curvature], colours: int, nats: str) -> None:
    """A measure, a row a model, in as many ``colours``."""
    values, spread = _numbers(name, [model.measure(name) for model in models])
    log, scale, unit = _scale(values, nats)
    for i, value in enumerate(values / scale):
        colour = COLOURS[i % min(colours, len(COLOURS))]
        if np.isfinite(value):
            bar = spread[i] / scale if np.isfinite(spread[i]) else None
            axes.errorbar(value, i, xerr=bar, fmt="o", color=colour, markersize=3, elinewidth=0.8)
        elif models[i].measure(name) is not None:
            axes.plot(0.03, i, "x", transform=axes.get_yaxis_transform(), color=colour, markersize=3)
    axes.set_ylim(len(models) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.5, zorder=0)
    axes.set_axisbelow(True)
    _ticks(axes, axes.xaxis, log)
    finite = values[np.isfinite(values)]
    if not log and finite.size and finite.min() >= 0:
        greatest = float(np.nanmax(values + np.nan_to_num(spread))) / scale
        axes.set_xlim(0, 1.1 * greatest if greatest > 0 else 1)
    axes.set_xlabel(unit, fontsize=SMALL, labelpad=1)


def densities(axes: Axes, spectra: Mapping[int, Curvature], result: Sharpness) -> None:
    """Spectral densities on a logarithmic axis, down to a tenth of what one eigenvalue alone makes."""
    from matplotlib.ticker import LogLocator, NullFormatter

    floors, peaks = [], []
    for i, model in spectra.items():
        assert model.spectrum is not None
        grid, density = model.spectrum.eigenvalue, model.spectrum.density
        deviation = 0.675 / (result.attrs["density"] - 1) * (grid[-1] - grid[0]) / 2
        floors.append(0.1 / (result.attrs["parameters"] * deviation * math.sqrt(2 * math.pi)))
        peaks.append(float(density.max()))
        shown = np.ma.masked_less_equal(density, 0)
        axes.plot(grid, shown, color=COLOURS[i % len(COLOURS)], linestyle=DASHES[i % len(DASHES)], linewidth=0.9)
    axes.set_yscale("log")
    axes.set_ylim(min(floors), 3 * max(peaks))
    axes.yaxis.set_major_locator(LogLocator(numticks=6))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.01)
    nats = " (nats)" if result.attrs.get("loss_units", "nat") == "nat" else ""
    axes.set_xlabel(f"eigenvalue of the Hessian{nats}", labelpad=1)


def _numbers(name: str, measures: Sequence[Measure | None]) -> tuple[np.ndarray, np.ndarray]:
    """Values and standard errors, NaN where there is none."""
    values = [math.nan if one is None or one.value is None else one.value for one in measures]
    spread = [math.nan if one is None or one.stderr is None else one.stderr for one in measures]
    return np.array(values), np.array(spread) if name in SPREAD else np.full(len(values), math.nan)


def _scale(values: np.ndarray, nats: str) -> tuple[bool, float, str]:
    """Whether the axis is logarithmic, the power of ten that stands in its unit, and the unit."""
    finite = values[np.isfinite(values)]
    greatest = float(np.abs(finite).max()) if finite.size else 0.0
    if finite.size and finite.min() > 0 and greatest > 20 * finite.min():
        return True, 1.0, nats
    power = math.floor(math.log10(greatest)) if greatest > 0 else 0
    return (False, 1.0, nats) if -1 <= power <= 3 else (False, 10.0**power, rf"$10^{{{power}}}$ {nats}".strip())


def _ticks(axes: Axes, axis: Axis, log: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    if log:
        if axis is axes.yaxis:
            axes.set_yscale("log")
        else:
            axes.set_xscale("log")
        low, high = axis.get_view_interval()
        few = high < 300 * low
        axis.set_major_locator(LogLocator(subs=(1.0, 3.0) if few else (1.0,), numticks=8))
        if few:  # 0.03 and 0.1 rather than powers of ten
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))
