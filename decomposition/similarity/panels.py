"""The panels of a figure of similarities. Drawing only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...landscape.drawing.paper import CHARACTER, COLOURS, GREY, SMALL, SURFACE, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import ClientCKA, RoundCKA

# Type smaller than this is left out, points; cells from this side on hold their number, inches.
LEGIBLE, ROOMY = 4.6, 0.3
# More rounds than this are a line without marks.
MARKED = 25
# Of a colour bar, inches: the gap before it, itself, its numbers and label.
GAP, BAR, NUMBERS = 0.07, 0.08, 0.42


def scale_of(matrices: Sequence[np.ndarray]) -> tuple[float, float]:
    """The colour scale of some matrices: 0 to 1, and in steps of 0.05 further where values are outside.

    >>> scale_of([np.array([[1.0, -0.02], [-0.02, 1.0 + 1e-12]])])
    (-0.05, 1.0)
    """
    every = np.concatenate([matrix[np.isfinite(matrix)] for matrix in matrices] or [np.zeros(0)])
    low, high = (float(every.min()), float(every.max())) if every.size else (0.0, 1.0)
    return min(0.0, math.floor(20 * low + 1e-6) / 20), max(1.0, math.ceil(20 * high - 1e-6) / 20)


def heat_map(axes: Axes, matrix: np.ndarray, scale: tuple[float, float], side: float) -> Any:
    """A matrix as a heat map of ``side`` inches, numbers in its cells where they fit; hatched where there is none."""
    axes.patch.set(facecolor="#e4e4e4", edgecolor="#9a9a9a", hatch="//////", linewidth=0)
    image = axes.imshow(np.ma.masked_invalid(matrix), cmap=SURFACE, vmin=scale[0], vmax=scale[1], aspect="auto")
    for spine in axes.spines.values():
        spine.set_visible(True)
    axes.tick_params(length=0, pad=2)
    axes.set_xticks([])
    axes.set_yticks([])
    if side / len(matrix) >= ROOMY:
        for (i, j), value in np.ndenumerate(matrix):
            if np.isfinite(value):
                dark = value < sum(scale) / 2
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", size=6, color="white" if dark else "black")
    return image


def room_for(names: Sequence[str], side: float) -> float:
    """How high names below the columns of a map of ``side`` inches are; 0 where they do not fit."""
    size = min(SMALL, 72 * 0.9 * side / len(names))
    if size < LEGIBLE:
        return 0.0
    return 0.13 if _level(names, side) else 0.05 + max(map(len, names)) * CHARACTER * size / SMALL


def name_columns(axes: Axes, names: Sequence[str], side: float, *, rows: bool = False) -> None:
    """Names below the columns of a map, upright where they are long, and beside its rows if asked."""
    size = min(SMALL, 72 * 0.9 * side / len(names))
    axes.set_xticks(range(len(names)), names, fontsize=size, rotation=0 if _level(names, side) else 90)
    if rows:
        axes.set_yticks(range(len(names)), names, fontsize=size)


def _level(names: Sequence[str], side: float) -> bool:
    size = min(SMALL, 72 * 0.9 * side / len(names))
    return (max(map(len, names)) + 0.8) * CHARACTER * size / SMALL < side / len(names)


def colour_bar(figure: Figure, image: Any, left: float, bottom: float, high: float) -> None:
    """The scale of the maps, at a place in inches."""
    from matplotlib.ticker import MaxNLocator

    width, height = figure.get_size_inches()
    box = (left / width, bottom / height, BAR / width, high / height)
    bar = figure.colorbar(image, cax=figure.add_axes(box))
    bar.set_label("CKA", labelpad=2)
    bar.locator = MaxNLocator(nbins=max(2, min(5, int(high / 0.16))), steps=[1, 2, 5, 10])
    bar.update_ticks()
    bar.outline.set_linewidth(0.6)


def means_over_rounds(axes: Axes, results: Sequence[ClientCKA]) -> None:
    """Mean CKA over rounds, a colour a run or, of one run, a colour a mean; with ``global`` dashed."""
    from matplotlib.ticker import MaxNLocator

    for i, result in enumerate(results):
        rounds = np.array([one.round for one in result.rounds], float)
        name = shortened(result.run, 10) if len(results) > 1 else "between\nclients"
        other = "_" if len(results) > 1 else "with\nglobal"
        colours = COLOURS[i % len(COLOURS)], COLOURS[(i if len(results) > 1 else 1) % len(COLOURS)]
        for kind, label, dash, marker, colour in (
            ("mean", name, "-", "o", colours[0]),
            ("mean_global", other, (0, (4, 1.5)), "s", colours[1]),
        ):
            values = np.array([getattr(one, kind) for one in result.rounds])
            spread = np.array([getattr(one, f"{kind}_stderr") for one in result.rounds])
            if kind == "mean_global" and not np.isfinite(values).any():
                continue
            axes.plot(
                rounds,
                np.ma.masked_invalid(values),
                linestyle=dash,
                color=colour,
                marker=marker if len(rounds) <= MARKED else "",
                markersize=2.4,
                linewidth=0.9,
                label=label,
            )
            axes.errorbar(rounds, values, yerr=spread, fmt="none", ecolor=colour, elinewidth=0.8, label="_bars")
            broken = rounds[~np.isfinite(values)]
            if kind == "mean" and broken.size:
                floor = np.full(len(broken), 0.04)
                across = axes.get_xaxis_transform()
                axes.plot(broken, floor, "x", transform=across, color=GREY, markersize=3, label="_broken")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.margins(x=0.03)
    axes.autoscale_view()  # now, because labels stand where the lines end, which the limits decide
    axes.set_xlabel("round", labelpad=1)
    axes.set_ylabel("mean CKA")


def errors_over_similarity(axes: Axes, results: Sequence[ClientCKA]) -> None:
    """The test error of every round's global model against the mean CKA of its clients, in the order of rounds; a
    colour a run, and of one run alone the numbers of the first and the last round."""
    from matplotlib.ticker import MaxNLocator

    for i, result in enumerate(results):
        known = comparable(result)
        across, up = [one.mean for one in known], [100 * one.test_error for one in known]
        name = shortened(result.run, 10) if len(results) > 1 else "_run"
        look: dict[str, Any] = {"marker": "o", "markersize": 2.4, "linewidth": 0.5, "label": name}
        axes.plot(across, up, color=COLOURS[i % len(COLOURS)], **look)
        for k in {0, len(known) - 1} if known and len(results) == 1 else ():
            axes.annotate(
                str(known[k].round),
                (across[k], up[k]),
                xytext=(3, 2),
                textcoords="offset points",
                size=SMALL,
                color=COLOURS[i % len(COLOURS)],
            )
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
    axes.margins(x=0.06, y=0.12)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("mean CKA between clients", labelpad=1)
    axes.set_ylabel("test error (%)")


def comparable(result: ClientCKA) -> list[RoundCKA]:
    """The rounds with a finite mean CKA and a measured test error."""
    return [one for one in result.rounds if math.isfinite(one.mean) and math.isfinite(one.test_error)]
