"""The share of high entries of each layer, the clients' similarities and how they group, the micro-classes and the
clusters' weights. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.color_bar import color_bar
from ...plotting.drawing import drawing
from ...plotting.heatmaps import heat_map, name_cells
from ...plotting.layout import LINE, FigureLayout, wrap_words
from ...plotting.style import CHARACTER, COLOURS, GREY, SMALL, SURFACE, literal, paper_style, shorten_label
from ...plotting.ticks import decades, even
from .figure_panels import cluster_colour, draw_maps, draw_tree, has_tree, height_of_maps, shown_masks
from .result import broken, by_definition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import Synergy

# Inches.
EDGE, LEFT, RIGHT = 0.06, 0.5, 0.1
# Up to so many layers each has a line with its name, beyond they are numbered.
NAMED, BAR, NUMBERED = 16, 0.135, 1.0
# Letters of a name, at most; what stands behind the bars, and the least that is left for these.
LETTERS, BEHIND, SHORTEST = 26, 0.85, 0.4
BAR_GAP, COLOUR_BAR, BAR_LABELS = 0.07, 0.09, 0.5
# Up to so many clients each has its id beside the matrix.
IDS = 30
# The dendrogram, the strip of clusters below it, the room for ids; from WIDE on it stands beside the matrix.
TREE, STRIP, NAMES, WIDE = 0.8, 0.1, 0.42, 5.5


@drawing
def draw(result: Synergy, width: float = 3.5, title: str | None = None) -> Figure:
    """Bars above, the matrix with its clients sorted by cluster and their dendrogram below; ``width`` in inches.

    Where the masks were kept, the micro-classes of the clients and the weights of the clusters follow.
    """
    with paper_style(width):
        named = len(result.layers) <= NAMED
        longest = max((len(layer.name) for layer in result.layers), default=0)
        letters = min(LETTERS, max(1, int((width - SHORTEST - BEHIND - 0.12) / CHARACTER)))
        names = min(longest, letters) * CHARACTER + 0.12 if named else LEFT
        bars = max(len(result.layers), 1) * BAR if named else NUMBERED
        side = min(width - LEFT - RIGHT - BAR_GAP - COLOUR_BAR - BAR_LABELS, 2.6)
        top = EDGE + (0.2 if title else 0.04)
        matrix = top + bars + 0.62
        said = _remarks(result, width)
        after = matrix + side + 0.4
        tree, aside = has_tree(result), width >= WIDE
        under = after
        if tree and not aside:
            after += TREE + STRIP + NAMES
        maps = after
        of_maps = (LEFT, width - LEFT - BAR_GAP - COLOUR_BAR - BAR_LABELS - RIGHT)
        order, spans = _sorted_clients(result)
        masks = shown_masks(result, order, of_maps[1])
        if masks is not None:
            after += height_of_maps(masks)
        sheet = FigureLayout(width, after + LINE * len(said) + EDGE, title, EDGE)
        wide = width - names - (BEHIND if named else RIGHT)
        axes = sheet.axes(names, top, wide, bars)
        _draw_shares(axes, result, letters if named else 0, wide, wide if named else 2 * bars)
        axes = sheet.axes(LEFT, matrix, side, side)
        _draw_similarity(axes, sheet.bar(LEFT + side + BAR_GAP, matrix, COLOUR_BAR, side), result, side)
        if tree:
            left = LEFT + side + BAR_GAP + COLOUR_BAR + BAR_LABELS + LEFT if aside else LEFT
            wide = min(width - left - RIGHT, 2.6) if aside else side
            begins, high = (matrix, side - STRIP) if aside else (under, TREE)
            leaves = sheet.axes(left, begins, wide, high, ylabel=0.36)
            draw_tree(leaves, sheet.axes(left, begins + high + 0.02, wide, STRIP), result, wide, IDS)
        if masks is not None:
            draw_maps(sheet, masks, maps, of_maps, result.classes, [last for _, _, last in spans[:-1]])
        return sheet.finished(said, EDGE + 0.04)


def _draw_shares(axes: Axes, result: Synergy, named: int, wide: float, long: float) -> None:
    """Layers have names of so many letters at most, or numbers; ``wide`` is the panel, and ``long`` the axis of shares,
    both in inches."""
    shares = np.array([100 * layer.high_share for layer in result.layers])
    at = np.arange(1, len(shares) + 1)
    if named:
        axes.barh(at, shares, height=0.72, color=COLOURS[0])
        axes.set_ylim(len(shares) + 0.5, 0.5)
        axes.set_yticks(at, [shorten_label(layer.name, named) for layer in result.layers])
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("high-dispersion entries (%)" if long > 1.3 else "high entries (%)")
        behind = axes.get_yaxis_transform()
        for i, layer in enumerate(result.layers, start=1):
            words = f"{layer.high_count:,} of {_short(layer.entries)}"
            axes.text(1.02, i, words, transform=behind, fontsize=SMALL, va="center")
    else:
        axes.bar(at, shares, width=0.8, color=COLOURS[0])
        axes.set_xlim(0, len(shares) + 1)
        axes.set_xticks([1, *range(10, len(shares) + 1, 10 * (1 + len(shares) // 100))])
        axes.set(xlabel="layer, in the order of the model" if wide > 1.8 else "layer", ylabel="high entries (%)")
    axis = axes.xaxis if named else axes.yaxis
    drawn = shares[shares > 0]
    if drawn.size and drawn.max() > 20 * drawn.min():
        # it begins below the least share, whose bar would have no length otherwise
        (axes.set_xscale if named else axes.set_yscale)("log")
        axis.set_label_text(f"{axis.get_label_text()}, log")
        (axes.set_xlim if named else axes.set_ylim)(drawn.min() / 2, 1.6 * drawn.max())
        decades(axis, numticks=max(2, min(6, int(long / 0.3))))
    else:
        (axes.set_xlim if named else axes.set_ylim)(0, 1.08 * drawn.max() if drawn.size else 1.0)
        even(axis, max(2, min(4, int(long / 0.3))), quarters=True)


def _draw_similarity(axes: Axes, bar: Axes, result: Synergy, side: float) -> None:
    from matplotlib.patches import Rectangle

    order, spans = _sorted_clients(result)
    similarity = result.mean_similarity[np.ix_(order, order)]
    count = len(order)
    others = similarity[~np.eye(count, dtype=bool)]
    others = others[np.isfinite(others)]
    low, high = (float(others.min()), float(others.max())) if others.size else (0.0, 1.0)
    if high - low < 1e-9:
        low = min(low, high - 0.01)
    # the diagonal is 1 by definition and would set the scale
    np.fill_diagonal(similarity, np.nan)
    if not result.high_share and count > 1:
        similarity[:] = np.nan
        axes.text(0.5, 0.5, "nothing\ncompared", transform=axes.transAxes, ha="center", va="center", fontsize=SMALL)
    image = heat_map(axes, similarity, SURFACE, vmin=low, vmax=high)
    above = -0.5 - 0.09 * count / side
    for name, first, last in spans:
        if name:
            # inside its cells, so that neighbours and the frame leave it whole
            inset = 0.016 * count / side
            corner, size = first - 0.5 + inset, last - first + 1 - 2 * inset
            for colour, wide in (("white", 2.4), (cluster_colour(int(name) - 1), 1.3)):
                axes.add_patch(
                    Rectangle((corner, corner), size, size, fill=False, edgecolor=colour, linewidth=wide, zorder=4)
                )
        look: dict[str, Any] = {"fontsize": SMALL, "ha": "center", "va": "center"}
        look["color"] = cluster_colour(int(name) - 1) if name else GREY
        if (last - first + 1) * side / count >= len(name or "–") * CHARACTER + 0.02:  # else its neighbours' lie on it
            axes.text((first + last) / 2, above, name or "–", **look)
    if spans:
        axes.text(-0.5 - 0.08 * count / side, above, "cluster", ha="right", va="center", fontsize=SMALL)
    if count <= IDS:
        name_cells(axes, [str(result.client_ids[k]) for k in order], side)
    else:
        axes.set_xticks([])
        axes.set_yticks([])
    axes.set_xlabel("client")
    if result.high_share:
        color_bar(bar, image, "similarity", 5, steps=None)
    else:
        bar.set_axis_off()


def _sorted_clients(result: Synergy) -> tuple[list[int], list[tuple[str, int, int]]]:
    """Rows in the order they are drawn, and (cluster's number, first place, last place); "" for those in none."""
    if result.scope == "layer" or not result.clusters[0]:
        return list(range(len(result.client_ids))), []
    groups = [(str(s + 1), members) for s, members in enumerate(result.clusters[0])]
    groups += [("", result.left_out[0])] if result.left_out[0] else []
    order: list[int] = []
    spans = []
    for name, members in groups:
        spans.append((name, len(order), len(order) + len(members) - 1))
        order += members
    return order, spans


def _remarks(result: Synergy, width: float) -> list[str]:
    count = sum(layer.high_count for layer in result.layers)
    everything = sum(layer.entries for layer in result.layers)
    said = [f"{count:,} of {everything:,} entries are of high dispersion ({100 * result.high_share:.2g} %)"]
    if result.scope == "model" and result.left_out[0] and result.clusters[0]:
        said.append("– or no outline: in no cluster")
    if has_tree(result):
        said.append("dendrogram: average linkage")
    if result.masks() is not None and count:
        said.append("MIC: class of a client's squared deviation, clients as above")
        said.append("α: weight of a cluster; strokes above: where a layer ends")
    if result.scope == "layer":
        said.append("similarity: mean over layers with high entries; each layer has its own clusters")
    said += [line for line in (broken(result, 6), by_definition(result)) if line]
    if "source" in result.attrs:
        said.append(literal(str(result.attrs["source"])))
    return [row for line in said for row in wrap_words(line, width - 2 * EDGE, 0.88)]


def _short(count: int) -> str:
    for limit, unit in ((1_000_000, "M"), (10_000, "k")):
        if count >= limit:
            return f"{count / (1000 if unit == 'k' else 1_000_000):.3g}{unit}"
    return f"{count:,}"
