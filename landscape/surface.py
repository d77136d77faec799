"""What all figures of a plane share: levels, fill, colour bar and markers. Drawing only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import TYPE_CHECKING, Any

import numpy as np

from .paper import CHARACTER, COLOURS, MARKERS, SMALL, SURFACE, measured_on

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import MaxNLocator

    from .planes import Plane, PlaneModel

#: By how much a band's excess grows over the one below, and how few and how many bands there may be.
RATIO, FEWEST, MOST = 1.4, 10, 32


@dataclass(frozen=True, eq=False)
class Scale:
    """One colour scale: bands between ``edges``, whose distance from the least value grows by a constant factor.

    Attributes:
        edges: in the quantity's units, rising.
        above: values above the last edge exist, and share the last colour.
        label: of the colour bar.
    """

    edges: np.ndarray
    above: bool
    label: str


def quantity(plane: Plane, name: str) -> np.ndarray:
    """``loss`` in nats or ``error`` in per cent, [b, a]."""
    return plane.loss if name == "loss" else 100 * plane.error


def scale_of(planes: Iterable[Plane], name: str) -> Scale:
    """The levels all these planes are drawn with: logarithmic in the excess over the least value on any of them.

    The lowest band holds about a fiftieth of all points. Where few points tower over the rest, the bands end below
    them, and the colour bar with an arrow.
    """
    planes = list(planes)
    unit = 1.0 if name == "loss" else 100.0
    grid = np.concatenate([quantity(plane, name).ravel() for plane in planes])
    models = np.array([unit * getattr(model, name) for plane in planes for model in plane.models])
    grid = grid[np.isfinite(grid)]
    split = str(planes[0].attrs.get("split", "")).strip()
    label = f"{split} {'loss (nats)' if name == 'loss' else 'error (%)'}".strip()
    if not grid.size:
        return Scale(np.array([0.0, 1.0]), False, label)
    least = float(min(grid.min(), np.min(models[np.isfinite(models)], initial=np.inf)))
    excess = grid - least
    top = float(excess.max())
    end = min(top, 20 * float(np.quantile(excess, 0.9))) or top
    end = max(end, 1e-9, 1e-6 * abs(least))
    # an error moves in steps of one sample; bands finer than half of one would draw the stairs, not the surface
    step = 50.0 / max(int(plane.attrs.get("samples", 0) or 10**9) for plane in planes) if name == "error" else 0.0
    start = float(np.clip(np.quantile(excess, 0.02), max(1e-4 * end, step), max(end / 8, step)))
    end = max(end, 2 * start)
    bands = int(np.clip(np.log(end / start) / np.log(RATIO), FEWEST if name == "loss" else 3, MOST))
    return Scale(np.concatenate([[least], least + np.geomspace(start, end, bands)]), top > end * (1 + 1e-9), label)


def fill(axes: Axes, plane: Plane, name: str, scale: Scale) -> Any:
    """Filled contours and thin lines between them; grey hatching shows where values are not finite."""
    import matplotlib
    from matplotlib.colors import BoundaryNorm

    axes.patch.set(facecolor="#d9d9d9", edgecolor="#8c8c8c", hatch="//////", linewidth=0)
    values = np.ma.masked_invalid(quantity(plane, name))
    colours = matplotlib.colormaps[SURFACE]
    norm = BoundaryNorm(scale.edges, colours.N, extend="max" if scale.above else "neither")
    filled = None
    if values.count():
        # the highest value lies on the last edge, which floating point may put just outside
        edges = scale.edges.copy()
        if not scale.above:
            edges[-1] += 1e-9 * (edges[-1] - edges[0])
        filled = axes.contourf(
            plane.a, plane.b, values, levels=edges, cmap=colours, norm=norm, extend="max" if scale.above else "neither"
        )
        filled.set_rasterized(True)
        axes.contour(plane.a, plane.b, values, levels=scale.edges[1:-1], colors="white", linewidths=0.25, alpha=0.6)
    axes.set_xlim(plane.a[0], plane.a[-1])
    axes.set_ylim(plane.b[0], plane.b[-1])
    axes.set_aspect("equal")
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    return matplotlib.cm.ScalarMappable(norm, colours)


def bar_labels(scale: Scale, height: float) -> tuple[list[float], list[str]]:
    """Which edges are labelled on a colour bar so many inches high, and with what."""
    every = max(1, ceil(len(scale.edges) / max(2.0, height / 0.17)))
    at = [float(edge) for edge in scale.edges[::every]]
    return at, distinct(at)


def bar_room(scales: Iterable[Scale], height: float) -> float:
    """Inches that a colour bar's labels and its own label need at its right."""
    return 0.26 + CHARACTER * max(len(text) for scale in scales for text in bar_labels(scale, height)[1])


def colour_bar(axes: Axes, mappable: Any, scale: Scale, *, height: float) -> None:
    """The colour bar in ``axes``, labelled in the quantity's own units; ``height`` in inches sets how many labels."""
    bar = axes.figure.colorbar(mappable, cax=axes, extend="max" if scale.above else "neither", spacing="uniform")
    at, texts = bar_labels(scale, height)
    bar.set_ticks(at, labels=texts, minor=False)
    bar.ax.minorticks_off()
    bar.outline.set_linewidth(0.6)
    bar.ax.tick_params(length=1.5, labelsize=SMALL)
    bar.set_label(scale.label, labelpad=3)


def distinct(values: Sequence[float]) -> list[str]:
    """Numbers with two significant digits, or as many more as tell each from its neighbours.

    >>> distinct([0.1, 0.104, 0.31, 2.0, 15.2])
    ['0.100', '0.104', '0.31', '2.0', '15']
    >>> distinct([0.5, 3e17])
    ['0.50', '3.0e17']
    """
    texts = []
    for i, value in enumerate(values):
        if abs(value) >= 1e5:  # a diverged model's loss
            texts.append(f"{value:.1e}".replace("e+", "e"))
            continue
        gaps = [abs(value - other) for other in (*values[max(0, i - 1) : i], *values[i + 1 : i + 2]) if other != value]
        to_tell = ceil(-log10(min(gaps))) if gaps else 0
        to_read = 1 - floor(log10(abs(value))) if value else 0
        texts.append(f"{value:.{min(max(0, to_tell, to_read), 6)}f}")
    return texts


def ticks(axes: Axes, width: float, height: float) -> None:
    """Round numbers, as many as fit a panel of so many inches."""
    for axis, room in ((axes.xaxis, width), (axes.yaxis, height)):
        axis.set_major_locator(_locator(room))


def tick_room(planes: Iterable[Plane], height: float) -> float:
    """Inches that tick labels and a label need at the left of panels so many inches high."""
    longest = 0
    for plane in planes:
        at = _locator(height).tick_values(plane.b[0], plane.b[-1])
        decimals = max(0, -floor(log10(at[1] - at[0]) + 1e-9))
        inside = at[(at >= plane.b[0]) & (at <= plane.b[-1])]
        # matplotlib takes a power of ten out of longer numbers
        longest = max(longest, *(min(7, len(f"{value:.{decimals}f}")) for value in inside), 0)
    return 0.31 + CHARACTER * longest


def _locator(room: float) -> MaxNLocator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=round(np.clip(room / 0.34, 2, 7)), steps=[1, 2, 5, 10])


def looks(plane: Plane) -> list[tuple[PlaneModel, dict[str, Any]]]:
    """Every model with its marker: black triangles, the mean a white cross, the shown ones each their own."""
    anchor = {"marker": "^", "color": "black", "markeredgecolor": "white", "markersize": 6.0}
    mean = {"marker": "X", "color": "white", "markeredgecolor": "black", "markersize": 6.5}
    looks: list[tuple[PlaneModel, dict[str, Any]]] = [(model, anchor) for model in plane.anchors]
    looks.append((plane.mean, mean))
    for i, model in enumerate(plane.shown):
        shape, colour = ("o", SHOWN[0]) if is_path(plane) else (MARKERS[i % len(MARKERS)], SHOWN[i % len(SHOWN)])
        size = WIDER.get(shape, 5.0)
        looks.append((model, {"marker": shape, "color": colour, "markeredgecolor": "white", "markersize": size}))
    return [(model, {"linestyle": "none", "markeredgewidth": 0.6, **look}) for model, look in looks]


#: Colours that stand out from the surface's.
SHOWN = (COLOURS[1], COLOURS[3], COLOURS[4], COLOURS[5])
#: markers with little area are drawn larger
WIDER = {"P": 6.5, "*": 8.0, "v": 5.8, "D": 4.6}


def is_path(plane: Plane) -> bool:
    """Whether there are so many shown models that they are drawn as one path."""
    return len(plane.shown) > len(MARKERS)


def mark(axes: Axes, plane: Plane, *, numbered: bool) -> None:
    """The models on the surface; ``numbered`` writes 1, 2, 3 beside the anchors, away from their mean."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=1.6, foreground="white")]
    drawn = looks(plane)
    if is_path(plane):
        axes.plot(
            [model.a for model in plane.shown],
            [model.b for model in plane.shown],
            color=SHOWN[0],
            linewidth=0.9,
            marker="o",
            markersize=2.0,
            zorder=4,
        )
        drawn = drawn[:4] + drawn[-1:]
    for zorder, (model, look) in enumerate(drawn, start=5):
        axes.plot([model.a], [model.b], zorder=zorder, **look)
    if not numbered:
        return
    for i, model in enumerate(plane.anchors, start=1):
        away = np.array([model.a - plane.mean.a, model.b - plane.mean.b])
        across, up = 7.5 * away / (np.hypot(*away) or 1.0)
        axes.annotate(
            str(i),
            (model.a, model.b),
            (across, up),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=SMALL,
            zorder=4.5,
            path_effects=halo,
        )


def remarks(planes: Sequence[Plane], broken_are: str = "hatched") -> str:
    """The caption line: the data, and what the surface does not show."""
    first = planes[0]
    parts = []
    if "data" in first.attrs:
        parts.append(measured_on(first.attrs))
    broken = sum(int(np.count_nonzero(~np.isfinite(plane.loss))) for plane in planes)
    if broken:
        points = sum(plane.loss.size for plane in planes)
        parts.append(f"{broken:,} of {points:,} points not finite ({broken_are})")
    outside = sum(not _inside(plane, model) for plane in planes for model in plane.models)
    if outside:
        parts.append(f"{outside} {'model' if outside == 1 else 'models'} outside the range")
    return "; ".join(parts)


def _inside(plane: Plane, model: PlaneModel) -> bool:
    return bool(plane.a[0] <= model.a <= plane.a[-1] and plane.b[0] <= model.b <= plane.b[-1])
