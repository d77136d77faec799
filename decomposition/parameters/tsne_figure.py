"""A map of parameters as a cloud of dots. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import nearest
from ...plotting.color_bar import color_bar
from ...plotting.drawing import drawing
from ...plotting.layout import EDGE, LINE, FigureLayout, legend_rows, wrap_words
from ...plotting.style import COLOURS, GREY, SURFACE, paper_style, shorten_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import ParameterMap

# Inches.
LEFT, RIGHT, BOTTOM, KEY = 0.24, 0.08, 0.2, 0.13
BAR_GAP, BAR, NUMBERS = 0.07, 0.09, 0.44
# The widest cloud.
WIDEST = 5.0
# Dark where skewness is far from 0, and light, not white, at 0, so that every dot is seen.
DIVERGING = ("#5e3c99", "#b2abd2", "#d9d9d9", "#fdb863", "#b35806")


@drawing
def draw(result: ParameterMap, width: float = 3.5, title: str | None = None, colour: str = "layer") -> Figure:
    """Draw the map, coloured by layer, by skewness or by dispersion (cv); ``width`` in inches.

    A dot a parameter; of up to seven layers a colour each, of more shades from the first to the last.

    Raises:
        FedscopeError: another ``colour``.
    """
    if colour not in ("layer", "skewness", "dispersion"):
        known = ["layer", "skewness", "dispersion"]
        raise FedscopeError(
            f"there is no colour by {colour!r}{nearest(colour, known) or '; there are ' + ', '.join(known)}"
        )
    names = list(dict.fromkeys(result.layers))
    by_name = colour == "layer" and len(names) <= len(COLOURS)
    with paper_style(width):
        room = width - LEFT - RIGHT - (0 if by_name else BAR_GAP + BAR + NUMBERS)
        side = min(room, WIDEST)
        labels = [shorten_label(name, 30) for name in names] if by_name else []
        legend = legend_rows(labels, EDGE + 0.04, width, KEY, 0.12)
        said = wrap_words(_remark(result, colour), width - 0.2, 0.9)
        first = EDGE + (0.2 if title else 0.0)
        top = first + legend.height + 0.04
        sheet = FigureLayout(width, top + 0.85 * side + BOTTOM + LINE * len(said) + EDGE, title)
        left = LEFT + (room - side) / 2
        axes = sheet.axes(left, top, side, 0.85 * side)
        dots = _dots(axes, result, colour, names, side)
        if by_name:
            looks = [{"color": colour, "marker": "o", "markersize": 3.5} for colour in COLOURS]
            legend.draw(sheet, first, lambda i, left, middle: sheet.symbol(left + 0.05, middle, looks[i]), KEY)
        else:
            _bar(sheet.bar(left + side + BAR_GAP, top, BAR, 0.85 * side), dots, colour, names)
        return sheet.finished(said)


def _dots(axes: Axes, result: ParameterMap, colour: str, names: list[str], side: float) -> Any:
    from matplotlib.colors import LinearSegmentedColormap, ListedColormap, LogNorm, Normalize

    n = len(result.layers)
    values: Any = np.array([names.index(layer) for layer in result.layers], np.float64)
    order = np.random.default_rng(0).permutation(n)  # no large layer lies above the others, and no small one below
    size = np.full(n, float(np.clip(4000 * (side / 3) ** 2 / n, 0.6, 14)))
    if colour == "layer":
        counts = np.bincount(values.astype(int))[values.astype(int)]
        size = np.where(counts < n / 20, 3 * size, size)
        order = order[np.argsort(-counts[order], kind="stable")]
    if colour == "layer" and len(names) <= len(COLOURS):
        shades: Any = ListedColormap(COLOURS[: len(names)])
        norm: Any = Normalize(-0.5, len(names) - 0.5)
    elif colour == "layer":
        shades, norm = SURFACE, Normalize(0, len(names) - 1)
    elif colour == "skewness":
        values = result.skewness
        greatest = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
        shades = LinearSegmentedColormap.from_list("skewness", DIVERGING)
        norm = Normalize(-greatest, greatest)
    else:
        values = np.where(result.cv > 0, result.cv, np.nan)
        there = values[np.isfinite(values)]
        # the ends would belong to a few means near 0 and a few parameters that nobody moved
        low, high = np.quantile(there, [0.01, 0.99]) if len(there) else (0.1, 1.0)
        shades, norm = SURFACE, LogNorm(low, max(high, 1.01 * low))
    at, values, size = result.at[order], values[order], size[order]
    without = np.isnan(values)
    x, y = at.T
    dot: dict[str, Any] = {"linewidths": 0, "rasterized": True}
    cross: dict[str, Any] = {"marker": "x", "color": GREY, "linewidths": 0.4, "rasterized": True}
    axes.scatter(x[without], y[without], s=size[without], zorder=1, **cross)
    dots = axes.scatter(
        x[~without], y[~without], s=size[~without], c=values[~without], zorder=2, cmap=shades, norm=norm, **dot
    )
    if colour == "dispersion":
        ring: dict[str, Any] = {"facecolors": "none", "edgecolors": "black", "linewidths": 0.5}
        x, y = result.at[result.high].T
        axes.scatter(x, y, s=4 * size.max() + 6, zorder=3, **ring)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.03)
    axes.set(xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2")
    return dots


def _bar(axes: Axes, dots: Any, colour: str, names: list[str]) -> None:
    if colour == "layer":
        color_bar(axes, dots, f"layer, in order ({len(names)})", 6, steps=None, integer=True, labelpad=2)
    else:
        label = "skewness" if colour == "skewness" else r"cv = $\sigma/|\mu|$ (log)"
        color_bar(axes, dots, label, labelpad=2, extend="both" if colour == "dispersion" else "neither")


def _remark(result: ParameterMap, colour: str) -> str:
    size = result.attrs.get("parameters")
    of = f" of {size:,}" if size else ""
    parts = [
        f"t-SNE of {len(result.layers):,}{of} parameters by what {result.clients} clients do to them "
        f"({shorten_label(result.run, 24)}, round {result.round}"
        + (f", perplexity {result.attrs['perplexity']:g})" if "perplexity" in result.attrs else ")")
    ]
    if colour == "dispersion" and result.high.any():
        parts.append("rings: high dispersion in their layer")
    if colour != "layer" and np.isnan(result.skewness if colour == "skewness" else result.cv).any():
        parts.append(f"crosses: without a {colour if colour == 'skewness' else 'cv'}")
    parts.append("distances between groups mean little")
    return "; ".join(parts)
