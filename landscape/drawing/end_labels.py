"""Names at the ends of lines, instead of a legend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .paper import SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def label_ends(ax: Axes, height: float) -> None:
    """Write each line's label right of its last finite point, in its colour; labels that would overlap are moved apart
    and tied to their lines. `height` is the panel's, in inches. Lines whose label begins with "_" are left out."""
    places = []
    for line in ax.lines:
        label = str(line.get_label())
        values = np.asarray(line.get_ydata(orig=True), dtype=np.float64)
        finite = np.flatnonzero(np.isfinite(values))
        if label.startswith("_") or not finite.size:
            continue
        # transScale first: on a logarithmic axis the place on paper is not linear in the value.
        _, at = (ax.transScale + ax.transLimits).transform((0.0, values[finite[-1]]))
        places.append((float(at), label, str(line.get_color())))
    places.sort(key=lambda place: place[0])
    sizes = [(label.count("\n") + 1) * SMALL * 1.12 / 72 / height for _, label, _ in places]
    for (at, label, color), y in zip(places, spread([at for at, _, _ in places], sizes), strict=True):
        ax.plot([1.01, 1.05], [at, y], transform=ax.transAxes, color=color, linewidth=0.5, clip_on=False, label="_tie")
        ax.text(1.06, y, label, color=color, size=SMALL, va="center", linespacing=0.95, transform=ax.transAxes)


def spread(places: list[float], sizes: list[float]) -> list[float]:
    """Move intervals of `sizes` apart that are centred on ascending `places`, as little as needed: groups that touch
    are centred on the mean of their places.

    >>> spread([0.0, 0.5, 3.0], [1.0, 1.0, 1.0])
    [-0.25, 0.75, 3.0]
    """
    groups: list[list[int]] = []
    starts: list[float] = []
    for index in range(len(places)):
        group = [index]
        while True:
            # The lower edge at which the group's members are nearest to their own places.
            offset, wanted = 0.0, []
            for member in group:
                wanted.append(places[member] - offset - sizes[member] / 2)
                offset += sizes[member]
            start = sum(wanted) / len(wanted)
            if not groups or starts[-1] + sum(sizes[member] for member in groups[-1]) <= start:
                break
            group = groups.pop() + group
            starts.pop()
        groups.append(group)
        starts.append(start)
    centres = list(places)
    for start, group in zip(starts, groups, strict=True):
        for member in group:
            centres[member] = start + sizes[member] / 2
            start += sizes[member]
    return centres
