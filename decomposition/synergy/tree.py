"""How clients group by average linkage, beside their clusters. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...landscape.drawing.paper import CHARACTER, COLOURS, SMALL
from .classes import cluster_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .result import Synergy


def cluster_colour(s: int) -> str:
    """Of the s-th cluster, counted from 0; black stays for what belongs to none."""
    return COLOURS[s % (len(COLOURS) - 1)]


def has_tree(result: Synergy) -> bool:
    """Whether there is anything to group: three clients, and pairs that are not all equally similar."""
    similarity = result.mean_similarity
    others = similarity[~np.eye(len(similarity), dtype=bool)]
    return len(similarity) >= 3 and bool(np.ptp(others) > 1e-12)


def draw_tree(axes: Axes, strip: Axes, result: Synergy, side: float, named: int) -> None:
    """The dendrogram of 1 − similarity by average linkage, and below each leaf its MAC cluster and its id.

    An independent grouping of the same similarities: where leaves of one cluster lie side by side, both agree.

    Args:
        strip: the axes below, for the clusters; side: the width of both, inches.
        named: ids are written for at most so many clients.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.ticker import MaxNLocator
    from scipy.cluster.hierarchy import dendrogram, linkage
    from scipy.spatial.distance import squareform

    distance = 1 - result.mean_similarity
    np.fill_diagonal(distance, 0)
    tree = dendrogram(linkage(squareform(distance, checks=False), "average", optimal_ordering=True), no_plot=True)
    # scipy sets leaves at 5, 15, 25, ...
    links = [np.column_stack([(np.array(x) - 5) / 10, y]) for x, y in zip(tree["icoord"], tree["dcoord"], strict=True)]
    axes.add_collection(LineCollection(links, colors="black", linewidths=0.7))
    leaves, count = list(tree["leaves"] or ()), len(distance)
    axes.set_xlim(-0.5, count - 0.5)
    axes.set_ylim(0, 1.05 * max(link[:, 1].max() for link in links))
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
    axes.set_ylabel("1 − similarity")
    # where every layer has its own, a client has none
    cluster = cluster_of(result.clusters[0] if result.scope == "model" else (), count)
    for place, k in enumerate(leaves):
        s = cluster[k]
        face = cluster_colour(s) if s >= 0 else "#d9d9d9"
        strip.bar(place, 1, width=0.92, color=face)
        if side / count >= 0.09 and result.scope == "model":
            words = str(s + 1) if s >= 0 else "–"
            look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 5.5}
            strip.text(place, 0.48, words, color="white" if s >= 0 else "black", **look)
    strip.set_xlim(-0.5, count - 0.5)
    strip.set_ylim(0, 1)
    for spine in strip.spines.values():
        spine.set_visible(False)
    strip.set_yticks([])
    strip.tick_params(length=0, pad=1.5)
    strip.set_xticks([])
    if count <= named:
        ids = [str(result.client_ids[k]) for k in leaves]
        upright = (max(map(len, ids)) + 0.8) * CHARACTER > side / count
        size = min(SMALL, 72 * 0.85 * side / count)
        strip.set_xticks(range(count), ids, fontsize=size, rotation=90 if upright else 0)
    strip.set_xlabel("client")
