"""Curvature over rounds, a colour a run, or a row a model; spectral densities below. Drawing only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...plotting.drawing import drawing
from ...plotting.layout import EDGE, LINE, FigureLayout, legend_rows, wrap_words
from ...plotting.looks import looks_of
from ...plotting.spread import mean_bars
from ...plotting.style import CHARACTER, COLOURS, MARKERS, SMALL, look_of, paper_style, shorten_label
from ...plotting.ticks import crosses, decades, even, from_zero
from .distance_figure import draw_distances
from .layer_figure import draw_maps, has_maps
from .panels import (
    DENSITY,
    LABEL,
    LABELS,
    LEFT,
    NARROWEST,
    NUMBERS,
    OVER_ROUNDS,
    RIGHT,
    ROW,
    SPREAD,
    TITLE,
    TITLES,
    kinds_of,
    remark_of,
    scale_of,
    set_ticks,
    unit_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import Curvature, CurvatureMeasure, Sharpness


@drawing
def draw(result: Sharpness, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw the figure of a result, ``width`` in inches: a panel a measure, bars of one standard error where there is
    one.

    Over rounds where a run has several, a colour a run; else a row a model. Densities below, of the last round. Where
    models were measured on all clients' data and on each client's, local against global instead, a dot a client. Where
    layers were measured in several models, heat maps of layers over rounds.

    Raises:
        FedscopeError: nothing to draw.
    """
    names = [name for name in TITLES if any(model.measure(name) is not None for model in result.models)]
    if not names:
        raise FedscopeError("the result has no measure to draw; compute it again with --force")
    if result.distances:
        return draw_distances(result, width, title)
    if has_maps(result.models):
        return draw_maps(result, width, title)
    lines = _by_run(result.models)
    labels = list(lines) if lines else _labels(result.models)
    last = [models[-1] for models in lines.values()] if lines else list(result.models)
    spectra = {i: model for i, model in enumerate(last) if model.spectrum is not None}
    with paper_style(width):
        margin = LEFT if lines else min(LABELS, max(map(len, labels)) * CHARACTER + 0.12)
        between = LEFT if lines else 0.16
        wide, columns = (width - margin - between - RIGHT) / 2, 2
        if wide < NARROWEST:
            wide, columns = width - margin - RIGHT, 1
        high = OVER_ROUNDS if lines else ROW * len(labels) + 0.08
        each = TITLE + high + (0.06 if lines else NUMBERS + LABEL)
        named = len(labels) > 1 and bool(lines or spectra)
        legend = legend_rows([shorten_label(label, 40) for label in labels] if named else [], 0.08, width, 0.45)
        remark = wrap_words(remark_of(result, bool(lines)), width - 0.16, 0.85)
        first = EDGE + (0.2 if title else 0.02)
        top = first + legend.height
        body = -(-len(names) // columns) * each + (NUMBERS + LABEL if lines else 0.0)
        below = 0.06 + TITLE + DENSITY + NUMBERS + LABEL if spectra else 0.0
        sheet = FigureLayout(width, top + body + below + 0.08 + LINE * len(remark) + EDGE, title)
        looks = _looks(labels) if lines else [look_of(i) for i in range(len(labels))]
        legend.draw(sheet, first, lambda i, left, middle: sheet.line(left, middle, 0.26, looks[i]), 0.31)
        for i, name in enumerate(names):
            across, down = margin + (i % columns) * (wide + between), top + (i // columns) * each + TITLE
            axes = sheet.axes(across, down, wide, high, ylabel=0.37 if lines else None)
            axes.set_title(TITLES[name], fontsize=SMALL, loc="left", pad=3)
            if lines:
                _over_rounds(axes, name, lines, unit_of(name, result.attrs))
                lowest = i + columns >= len(names)
                axes.tick_params(labelbottom=lowest)
                axes.set_xlabel("round" if lowest else "", labelpad=1)
            else:
                _rows(axes, name, result.models, len(labels) if spectra else 1, unit_of(name, result.attrs))
                room = int((margin - 0.12) / CHARACTER)
                shown = [shorten_label(label, room) if i % columns == 0 else "" for label in labels]
                axes.set_yticks(range(len(labels)), shown)
        if spectra:
            axes = sheet.axes(LEFT, top + body + 0.06 + TITLE, width - LEFT - RIGHT, DENSITY)
            unit = " ($w^2$/nat)" if unit_of("trace", result.attrs) else ""
            axes.set_title(f"spectral density{unit}, log scale", fontsize=SMALL, loc="left", pad=3)
            _densities(axes, spectra, result, looks)
        return sheet.finished(remark, 0.08)


def _labels(models: Sequence[Curvature]) -> list[str]:
    """Names of rows: of the layers of one model theirs alone."""
    alone = all(model.layer for model in models) and len({model.named for model in models}) == 1
    return [model.layer if alone else model.label for model in models]


def _by_run(models: Sequence[Curvature]) -> dict[str, list[Curvature]]:
    """Each run's models by round; nothing where no run has several rounds, or one has several models of a round."""
    runs: dict[str, list[Curvature]] = {}
    for model in models:
        if model.round is None:
            return {}
        runs.setdefault(model.run, []).append(model)
    rounds = [[model.round for model in of_run] for of_run in runs.values()]
    if max(map(len, rounds)) < 2 or any(len(set(of_run)) < len(of_run) for of_run in rounds):
        return {}
    return {run: sorted(of_run, key=lambda model: model.round or 0) for run, of_run in runs.items()}


def _looks(runs: Iterable[str]) -> list[dict[str, Any]]:
    """Return colour and dashes of each run: its method's."""
    return [{name: look[name] for name in ("color", "linestyle")} for look in looks_of(list(runs))]


def _over_rounds(axes: Axes, name: str, lines: Mapping[str, Sequence[Curvature]], base: str) -> None:
    """A measure over rounds, a colour a run, a marker a kind of model."""
    drawn = [_numbers(name, [model.measure(name) for model in models]) for models in lines.values()]
    log, scale, unit = scale_of(np.concatenate([values for values, _ in drawn]), base)
    kinds = kinds_of([model for models in lines.values() for model in models])
    for look, models, (values, spread) in zip(_looks(lines), lines.values(), drawn, strict=True):
        colour = look["color"]
        rounds = np.array([model.round for model in models], dtype=float)
        axes.plot(rounds, np.ma.masked_invalid(values / scale), **look, linewidth=0.9, zorder=3)
        mean_bars(axes, rounds, values / scale, spread / scale, colour, zorder=3)
        for kind, marker in zip(kinds, MARKERS, strict=False):
            of = np.array([model.model == kind for model in models])
            axes.plot(rounds[of], values[of] / scale, marker, color=colour, markersize=2.6, zorder=4)
        crosses(axes, rounds, values, 0.04, color=colour)
    set_ticks(axes, axes.yaxis, log)
    every = np.concatenate([values[np.isfinite(values)] for values, _ in drawn])
    if not log and (every >= 0).all():
        from_zero(axes)
    even(axes.xaxis, 4, integer=True)
    axes.margins(x=0.05)
    axes.set_ylabel(unit, fontsize=SMALL, labelpad=2)


def _rows(axes: Axes, name: str, models: Sequence[Curvature], colours: int, base: str) -> None:
    """A measure, a row a model, in as many ``colours``."""
    values, spread = _numbers(name, [model.measure(name) for model in models])
    log, scale, unit = scale_of(values, base)
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
    set_ticks(axes, axes.xaxis, log)
    finite = values[np.isfinite(values)]
    if not log and finite.size and finite.min() >= 0:
        greatest = float(np.nanmax(values + np.nan_to_num(spread))) / scale
        axes.set_xlim(0, 1.1 * greatest if greatest > 0 else 1)
    axes.set_xlabel(unit, fontsize=SMALL, labelpad=1)


def _densities(
    axes: Axes, spectra: Mapping[int, Curvature], result: Sharpness, looks: Sequence[Mapping[str, Any]]
) -> None:
    """Spectral densities on a logarithmic axis, down to a tenth of what one eigenvalue alone makes."""
    floors, peaks = [], []
    for i, model in spectra.items():
        assert model.spectrum is not None
        grid, density = model.spectrum.eigenvalue, model.spectrum.density
        deviation = 0.675 / (result.attrs["density"] - 1) * (grid[-1] - grid[0]) / 2
        floors.append(0.1 / (result.attrs["parameters"] * deviation * math.sqrt(2 * math.pi)))
        peaks.append(float(density.max()))
        axes.plot(grid, np.ma.masked_less_equal(density, 0), **looks[i], linewidth=0.9)
    axes.set_yscale("log")
    axes.set_ylim(min(floors), 3 * max(peaks))
    decades(axes.yaxis, numticks=6, plain=False)
    axes.margins(x=0.01)
    unit = unit_of("eigenvalue_1", result.attrs)
    axes.set_xlabel(f"eigenvalue of the Hessian{f' ({unit})' if unit else ''}", labelpad=1)


def _numbers(name: str, measures: Sequence[CurvatureMeasure | None]) -> tuple[np.ndarray, np.ndarray]:
    """Values and standard errors, NaN where there is none."""
    values = [math.nan if measure is None or measure.value is None else measure.value for measure in measures]
    spread = [math.nan if measure is None or measure.stderr is None else measure.stderr for measure in measures]
    return np.array(values), np.array(spread) if name in SPREAD else np.full(len(values), math.nan)
