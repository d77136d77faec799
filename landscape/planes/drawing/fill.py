"""Common parts of all figures of a plane: fill, axes and caption. Drawing only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor, isclose, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....plotting.drawing import size_of
from ....plotting.style import (
    CHARACTER,
    describe_accepted,
    describe_alignment,
    describe_data,
    describe_statistics,
    shorten_label,
    word_of,
)
from ..rises import in_a_row
from ..summary import alignment_words, meets_aim

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.ticker import MaxNLocator

    from ..result import Plane, PlaneModel
    from .color_scales import Scale

DISTANCE = "distance ($L_2$)"


def quantity(plane: Plane, name: str) -> np.ndarray:
    """``loss`` in nats or ``error`` in per cent, [b, a]."""
    return plane.loss if name == "loss" else 100 * plane.error


def quantities(planes: Iterable[Plane]) -> list[str]:
    """List the quantities to draw: the loss, and the error where any plane has one."""
    surfaces = [(plane.loss, plane.error) for plane in planes]
    lacking = all(np.isnan(error).all() and np.isfinite(loss).any() for loss, error in surfaces)
    return ["loss"] if lacking else ["loss", "error"]


def is_metric(plane: Plane) -> bool:
    """Tell whether coordinates are L2 distances, and not lengths of directions that another program chose."""
    return str(plane.attrs.get("units", "L2 distance")) == "L2 distance"


def has_own_reaches(plane: Plane) -> bool:
    """Tell whether each axis reaches once the length of its own random direction, and these have two lengths."""
    lengths = plane.attrs.get("direction_lengths")
    if plane.span != "random" or not lengths or isclose(*lengths, rel_tol=1e-6):
        return False
    ends = zip((*plane.a[[0, -1]], *plane.b[[0, -1]]), np.repeat(lengths, 2) * [-1, 1, -1, 1], strict=True)
    return all(isclose(end, length, rel_tol=1e-6) for end, length in ends)


def has_equal_scales(plane: Plane) -> bool:
    """Tell whether distances are equally long along both axes: not where another program chose their units, nor where
    each axis has the unit of its own direction, whose ratio is as it may be."""
    return is_metric(plane) and not has_own_reaches(plane)


def axis_labels(plane: Plane) -> tuple[list[str], list[str]]:
    """List labels of the a and the b axis, the longest words first, with the share that a principal component shows."""
    if not is_metric(plane):
        first, second = ([f"{name} ({word_of(plane.attrs, 'units')})", name] for name in "xy")
        return first, second
    shares = plane.attrs.get("explained")
    if not shares:
        return [DISTANCE, "$L_2$"], [DISTANCE, "$L_2$"]
    told = [f"component {i}: {100 * share:.0f} %" for i, share in enumerate(shares, start=1)]
    first, second = ([f"{DISTANCE}, {words}", words] for words in told)
    return first, second


def fill(axes: Axes, plane: Plane, name: str, scale: Scale) -> Any:
    """Filled contours and thin lines between them; grey hatching shows where values are not finite.

    Returns what a colour bar is of; it has the colours that the surface gets by ``set_cmap``, too.
    """
    import matplotlib
    from matplotlib.colors import BoundaryNorm

    axes.patch.set(facecolor="#d9d9d9", edgecolor="#8c8c8c", hatch="//////", linewidth=0)
    values = np.ma.masked_invalid(quantity(plane, name))
    colours = matplotlib.colormaps[scale.cmap]
    if len(scale.edges) + 1 > colours.N:  # a map of few colours, as tab10, has none for each band
        colours = colours.resampled(256)
    norm = BoundaryNorm(scale.edges, colours.N, extend=scale.extend)
    bar = matplotlib.cm.ScalarMappable(norm, colours)
    if values.count():
        # the highest value lies on the last edge, which floating point may put just outside
        edges = scale.edges.copy()
        if not scale.above:
            edges[-1] += 1e-9 * (edges[-1] - edges[0])
        filled = axes.contourf(plane.a, plane.b, values, levels=edges, cmap=colours, norm=norm, extend=scale.extend)
        filled.set_rasterized(True)
        filled.callbacks.connect("changed", lambda changed: bar.set_cmap(changed.get_cmap()))
        axes.contour(plane.a, plane.b, values, levels=scale.edges[1:-1], colors="white", linewidths=0.25, alpha=0.6)
    axes.set(xlim=(plane.a[0], plane.a[-1]), ylim=(plane.b[0], plane.b[-1]))
    axes.set_aspect("equal" if has_equal_scales(plane) else "auto")
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    return bar


def ticks(axes: Axes, width: float, height: float) -> None:
    """Round numbers, as many as fit a panel of so many inches."""
    width, height = size_of(axes, width, height)
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


def remarks(planes: Sequence[Plane], broken_are: str = "hatched") -> str:
    """Return the caption line: the data, what the axes are, and what the surface does not show."""
    first = planes[0]
    parts = []
    if "data" in first.attrs:
        parts.append(_data_words(planes))
    elif "file" in first.attrs:
        parts.append(f"{shorten_label(Path(first.attrs['file']).name, 40)} ({word_of(first.attrs, 'program')})")
    told = list(dict.fromkeys(describe_statistics(plane.attrs, plane.normalization_policy) for plane in planes))
    if len(told) > 1 and all(plane.normalization_policy == "keep" for plane in planes):
        what = "buffers" if any("other_buffers" in plane.attrs for plane in planes) else "normalization statistics"
        told = [f"{what} of one model a plane"]
    parts += [words for words in told if words]
    ordered = list(
        dict.fromkeys(
            filter(None, (alignment_words(plane, lambda label: shorten_label(label, 40)) for plane in planes))
        )
    )
    if len(ordered) > 1:
        ordered = list(dict.fromkeys(describe_alignment(plane.attrs, "each panel's first model") for plane in planes))
    parts += [words for words in ordered if words]
    points = sum(plane.loss.size for plane in planes)
    holes = sum(int(plane.attrs.get("holes", 0)) for plane in planes)
    broken = sum(int(np.count_nonzero(~np.isfinite(plane.loss))) for plane in planes) - holes
    counts = [f"{count:,} {what}" for count, what in ((holes, "not computed"), (broken, "not finite")) if count]
    if counts:
        parts.append(f"{', '.join(counts).replace(' ', f' of {points:,} points ', 1)} ({broken_are})")
    interpolated = sum(int(np.count_nonzero(~plane.computed)) for plane in planes if plane.computed is not None)
    if interpolated:
        worst, low = (_greatest(planes, name) for name in ("held_out_loss_error", "held_out_loss_low"))
        checked = f"loss checked to {100 * worst:.2g} % of its range"
        checked += "" if np.isnan(low) else f", near its minimum to {100 * low:.2g} % of itself"
        if all("held_out_beyond" in plane.attrs for plane in planes if plane.computed is not None):
            checked += ", within the aim" if all(map(meets_aim, planes)) else ", more than the aim"
        parts.append(f"{interpolated:,} of {points:,} points interpolated, {checked}")
    lengths = " and ".join(dict.fromkeys(str(len(plane.path)) for plane in planes if plane.path))
    if lengths:
        parts.append(f"line: the curve ({lengths} points)" if first.span == "surface" else f"line: {lengths} models")
    outside = sum(not _inside(plane, model) for plane in planes for model in plane.models)
    if outside:
        parts.append(f"{outside} {'model' if outside == 1 else 'models'} outside the range")
    return "; ".join([*parts, *_left_out_words(planes), *_axes_words(planes), *_same_axes_words(planes)])


def _greatest(planes: Sequence[Plane], name: str) -> float:
    """Return the greatest of what planes have in their provenance; NaN where none has a number."""
    values = [float(plane.attrs.get(name, np.nan)) for plane in planes]
    return max((value for value in values if not np.isnan(value)), default=np.nan)


def _data_words(planes: Sequence[Plane]) -> str:
    """Describe the data of all planes: one set, several, or each client's own."""
    sizes = [int(plane.attrs["samples"]) for plane in planes if "client" in plane.attrs]
    if len(sizes) == len(planes) and len({plane.attrs["client"] for plane in planes}) > 1:
        least, most = f"{min(sizes):,}", f"{max(sizes):,}"
        each = least if least == most else f"{least} to {most}"
        name = describe_data(planes[0].attrs).rpartition(", ")[0]
        return f"{name}, each client's own {each} samples{describe_accepted(planes[0].attrs)}"
    return " and ".join(dict.fromkeys(describe_data(plane.attrs) for plane in planes if "data" in plane.attrs))


def _left_out_words(planes: Sequence[Plane]) -> list[str]:
    """Say which clients are left out because they are not finite; of panels that lack different ones, how many."""
    said = [tuple(plane.attrs.get("left_out", ())) for plane in planes]
    if len(set(said)) == 1:
        return list(said[0])
    return [f"clients that are not finite are left out in {sum(map(bool, said))} of {len(said)} panels"]


def _axes_words(planes: Sequence[Plane]) -> list[str]:
    """Describe axes that are components, with the share of the models' differences that they show, and those that are
    drawn in two scales."""
    if any(map(has_own_reaches, planes)):
        return ["each axis to the length of its direction"]
    shown = [100 * sum(plane.attrs["explained"]) for plane in planes if plane.attrs.get("explained")]
    if not shown:
        return []
    if max(shown) - min(shown) < 1:
        return [f"the components show {shown[0]:.0f} % of the models' variance"]
    return [f"the two components show {min(shown):.0f} to {max(shown):.0f} % of the models' variance"]


def _same_axes_words(planes: Sequence[Plane]) -> list[str]:
    """Describe planes along the same directions: how far their clients are off them, on average, in their order."""
    if len(planes) < 2 or not all("same_axes" in plane.attrs for plane in planes):
        return []
    rounds = {tuple(model.label for model in plane.anchors): plane for plane in planes if plane.anchors}
    off = [f"{np.mean([model.off_plane for model in plane.anchors]):.2g}" for plane in rounds.values()]
    told = f", the clients on average {in_a_row(off)} off their plane" if off else ""
    return [f"the same two directions in all panels{told}"]


def _inside(plane: Plane, model: PlaneModel) -> bool:
    return bool(plane.a[0] <= model.a <= plane.a[-1] and plane.b[0] <= model.b <= plane.b[-1])
