"""Figures at another size of type: laid out for the usual one, then enlarged, so that nothing overlaps that did not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axis import Axis


def enlarge(artists: Iterable[Artist], by: float, letters: float) -> None:
    """Make everything ``by`` times as large that is measured in points, and words ``letters`` times.

    Places are shares of a figure or of axes, and follow by themselves.

    Args:
        artists: figures, axes, or what is in them; each is enlarged with all that it holds.
    """
    if by == letters == 1.0:
        return
    done: set[int] = set()
    for artist in artists:
        for one in _all_in(artist):
            if id(one) not in done:
                done.add(id(one))
                _enlarge_one(one, by, letters, done)


def _all_in(artist: Any) -> Iterator[Any]:
    """An artist and all that it holds, but the ticks of an axis, which are made when they are needed, and legends."""
    from matplotlib.axis import Axis
    from matplotlib.legend import Legend

    yield artist
    if isinstance(artist, Axis):
        yield from (artist.label, artist.offsetText)
    elif not isinstance(artist, Legend):  # one is drawn anew
        for child in artist.get_children():
            yield from _all_in(child)


def _enlarge_one(artist: Any, by: float, letters: float, done: set[int]) -> None:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.collections import Collection
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.text import Annotation, Text

    if isinstance(artist, Text):
        artist.set_fontsize(letters * float(artist.get_fontsize()))
        if isinstance(artist, Annotation) and artist.anncoords == "offset points":
            x, y = artist.xyann
            artist.xyann = (by * x, by * y)
    elif isinstance(artist, Line2D):
        artist.set_linewidth(by * artist.get_linewidth())
        artist.set_markersize(by * artist.get_markersize())
        artist.set_markeredgewidth(by * artist.get_markeredgewidth())
    elif isinstance(artist, Patch):
        artist.set_linewidth(by * artist.get_linewidth())
    elif isinstance(artist, Collection):
        artist.set_linewidth([by * one for one in np.atleast_1d(artist.get_linewidth())])
        many: Any = artist
        if len(sizes := many.get_sizes() if hasattr(many, "get_sizes") else ()):
            many.set_sizes([by**2 * one for one in sizes], many.figure.dpi)
    elif isinstance(artist, Axis):
        _enlarge_axis(artist, by, letters)
    elif isinstance(artist, Axes):
        pad_title(artist, by * title_pad(artist))
    for effect in artist.get_path_effects() or ():
        pen = getattr(effect, "_gc", {})
        if id(effect) not in done and "linewidth" in pen:
            done.add(id(effect))
            pen["linewidth"] *= by


def _enlarge_axis(axis: Axis, by: float, letters: float) -> None:
    import matplotlib

    axis.labelpad *= by
    name = f"{axis.axis_name}tick"  # type: ignore[attr-defined]
    for which, ticks in (("major", axis.majorTicks), ("minor", axis.minorTicks)):
        own = [(text, float(text.get_fontsize())) for tick in ticks for text in (tick.label1, tick.label2)]
        given: Any = axis.get_tick_params(which)  # type: ignore[arg-type]
        usual: Any = matplotlib.rcParams
        axis.set_tick_params(
            which=which,  # type: ignore[arg-type]
            length=by * given.get("length", usual[f"{name}.{which}.size"]),
            width=by * given.get("width", usual[f"{name}.{which}.width"]),
            pad=by * given.get("pad", usual[f"{name}.{which}.pad"]),
            labelsize=letters * points(given.get("labelsize", usual[f"{name}.labelsize"])),
        )
        for text, size in own:
            text.set_fontsize(letters * size)


def points(size: float | str) -> float:
    """A size of type in points, also of ``small``."""
    from matplotlib.font_manager import FontProperties

    return float(FontProperties(size=size).get_size_in_points())


def title_pad(axes: Any) -> float:
    """Points between axes and their title."""
    return 72 * float(axes.titleOffsetTrans._t[1])


def pad_title(axes: Any, pad: float) -> None:
    """Set points between axes and their title."""
    axes._set_title_offset_trans(pad)
