"""Grouping of clients by average linkage, their micro-classes in the entries of high dispersion, and the weights of
their clusters. Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.color_bar import color_bar
from ...plotting.heatmaps import LEGIBLE, frame, heat_map, name_cells
from ...plotting.layout import FigureLayout
from ...plotting.style import COLOURS, GREY, SMALL, SURFACE
from ...plotting.ticks import even
from ...training.methods.shared.micro_classes import cluster_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .result import Synergy

# Columns an inch: more cannot be told apart on paper. Beyond so many layers their borders are not marked.
FINE, BORDERS = 150, 16
# Inches: a client's and a cluster's row, what a map takes at least and at most, between the maps and below them; the
# gap before a colour bar and the bar.
ROW, CLUSTER, LEAST, MOST, BETWEEN, BELOW, GAP, BAR = 0.075, 0.12, 0.42, 1.3, 0.1, 0.22, 0.07, 0.09


def cluster_colour(s: int) -> str:
    """Return the colour of the s-th cluster, counted from 0; black stays for what belongs to none."""
    return COLOURS[s % (len(COLOURS) - 1)]


def has_tree(result: Synergy) -> bool:
    """Tell whether there is anything to group: three clients, and pairs that are not all equally similar."""
    similarity = result.mean_similarity
    others = similarity[~np.eye(len(similarity), dtype=bool)]
    return len(similarity) >= 3 and bool(np.ptp(others) > 1e-12)


def draw_tree(axes: Axes, strip: Axes, result: Synergy, side: float, named: int) -> None:
    """Draw the dendrogram of 1 − similarity by average linkage, and below each leaf its MAC cluster and its id.

    An independent grouping of the same similarities: where leaves of one cluster lie side by side, both agree.

    Args:
        strip: the axes below, for the clusters; side: the width of both, inches.
        named: ids are written for at most so many clients.
    """
    from matplotlib.collections import LineCollection
    from scipy.cluster.hierarchy import dendrogram, linkage
    from scipy.spatial.distance import squareform

    distance = 1 - result.mean_similarity
    np.fill_diagonal(distance, 0)
    tree = dendrogram(linkage(squareform(distance, checks=False), "average", optimal_ordering=True), no_plot=True)
    # scipy sets leaves at 5, 15, 25, ...
    links = [np.column_stack([(np.array(x) - 5) / 10, y]) for x, y in zip(tree["icoord"], tree["dcoord"], strict=True)]
    axes.add_collection(LineCollection(links, colors="black", linewidths=0.7))
    leaves, count = list(tree["leaves"] or ()), len(distance)
    axes.set(xlim=(-0.5, count - 0.5), ylim=(0, 1.05 * max(link[:, 1].max() for link in links)))
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    even(axes.yaxis, 4, quarters=True)
    axes.set_ylabel("1 − similarity")
    # where every layer has its own, a client has none
    cluster = cluster_of(result.clusters[0] if result.scope == "model" else (), count)
    for place, k in enumerate(leaves):
        s = cluster[k]
        face = cluster_colour(s) if s >= 0 else "#d9d9d9"
        strip.bar(place, 1, width=0.92, color=face)
        if side / count >= 0.09 and result.scope == "model":
            words = str(s + 1) if s >= 0 else "–"
            look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": LEGIBLE}
            strip.text(place, 0.48, words, color="white" if s >= 0 else "black", **look)
    strip.set(xlim=(-0.5, count - 0.5), ylim=(0, 1))
    for spine in strip.spines.values():
        spine.set_visible(False)
    strip.set_yticks([])
    strip.tick_params(length=0, pad=1.5)
    strip.set_xticks([])
    if count <= named:
        name_cells(strip, [str(result.client_ids[k]) for k in leaves], side, rows=False)
    strip.set_xlabel("client")


@dataclass(frozen=True, eq=False)
class ShownMasks:
    """High entries as the maps show them.

    Attributes:
        mic: [K, m], its clients as in the matrix; alpha: [S, m].
        borders: between which columns a layer ends and the next one begins.
        count: of all high entries, m of which are shown.
    """

    mic: np.ndarray
    alpha: np.ndarray
    borders: tuple[float, ...]
    count: int


def shown_masks(result: Synergy, order: Sequence[int], wide: float) -> ShownMasks | None:
    """Return the masks of a result as maps of ``wide`` inches show them, clients in the given order; None where they
    were not kept or nothing is high."""
    masks = result.masks()
    if masks is None or not masks[0].size:
        return None
    columns = shown_columns(len(masks[0]), int(FINE * wide))
    ends = np.cumsum([layer.high_count for layer in result.layers])[:-1]
    inside = {int(at) for at in np.searchsorted(columns, ends)} - {0, len(columns)}
    borders = tuple(at - 0.5 for at in sorted(inside)) if len(result.layers) <= BORDERS else ()
    return ShownMasks(masks[1][np.ix_(np.array(order), columns)], masks[2][:, columns], borders, len(masks[0]))


def shown_columns(count: int, most: int) -> np.ndarray:
    """Choose the columns that a map shows: all, or evenly spaced ones.

    >>> shown_columns(3, 400).tolist(), shown_columns(9, 3).tolist()
    ([0, 1, 2], [0, 4, 8])
    """
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def height_of_maps(masks: ShownMasks) -> float:
    """Return the height of both maps, inches."""
    rows, weights = _heights(masks)
    return rows + (BETWEEN + weights if weights else 0) + BELOW


def draw_maps(
    sheet: FigureLayout, masks: ShownMasks, top: float, across: tuple[float, float], classes: int, ends: Sequence[int]
) -> None:
    """Draw the MIC map, and the clusters' weights below it in the same columns.

    Args:
        across: the left edge and the width of the maps, inches.
        ends: the last row of each cluster but the last one.
    """
    left, wide = across
    rows, weights = _heights(masks)
    axes = sheet.axes(left, top, wide, rows)
    _draw_classes(axes, sheet.bar(left + wide + GAP, top, BAR, rows), masks.mic, classes)
    for last in ends:
        axes.axhline(last + 0.5, color="white", linewidth=0.7)
    for at in masks.borders:
        axes.plot([at, at], [1, 1.05], transform=axes.get_xaxis_transform(), color=GREY, linewidth=0.6, clip_on=False)
    sheet.text(left - 0.1, top + rows / 2, "client", rotation=90, ha="center", fontsize=SMALL)
    below = top + rows
    if weights:
        below += BETWEEN
        axes = sheet.axes(left, below, wide, weights)
        _draw_weights(axes, sheet.bar(left + wide + GAP, below, BAR, weights), masks.alpha, weights)
        sheet.text(left - 0.24, below + weights / 2, "cluster", rotation=90, ha="center", fontsize=SMALL)
        below += weights
    some = f" ({masks.mic.shape[1]:,} of {masks.count:,})" if masks.mic.shape[1] < masks.count else ""
    sheet.text(left + wide / 2, below + 0.1, f"high entries{some}", ha="center", fontsize=SMALL)


def _heights(masks: ShownMasks) -> tuple[float, float]:
    rows = min(max(len(masks.mic) * ROW, LEAST), MOST)
    return rows, min(max(len(masks.alpha) * CLUSTER, LEAST), MOST) if len(masks.alpha) else 0.0


def _draw_classes(axes: Axes, bar: Axes, mic: np.ndarray, classes: int) -> None:
    """Micro-classes 1..C of the clients (rows) in high entries (columns)."""
    import matplotlib
    from matplotlib.colors import BoundaryNorm, ListedColormap

    colours = ListedColormap(matplotlib.colormaps[SURFACE](np.linspace(0, 1, classes)))
    norm = BoundaryNorm(np.arange(0.5, classes + 1), classes)
    image = axes.imshow(mic, cmap=colours, norm=norm, aspect="auto", interpolation="nearest")
    frame(axes, bare=True)
    numbers = color_bar(bar, image, "MIC", 4, steps=None, integer=True, min_n_ticks=1).ax
    numbers.minorticks_off()
    numbers.tick_params(length=0)


def _draw_weights(axes: Axes, bar: Axes, alpha: np.ndarray, high: float) -> None:
    """Draw the clusters' weights in the same entries, [S, columns]; cells without a cluster are grey."""
    image = heat_map(axes, alpha, "cividis", bare=True, vmin=0)
    for s in range(len(alpha)):
        if high / len(alpha) >= 0.08:
            look: dict[str, Any] = {"color": cluster_colour(s), "fontsize": SMALL, "ha": "right", "va": "center"}
            axes.text(-0.012, s, str(s + 1), transform=axes.get_yaxis_transform(), **look)
    color_bar(bar, image, "α", 2, quarters=True)
