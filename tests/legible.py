"""Whether what is written in a figure can be read: all of it lies on the sheet, and no word over another."""

from __future__ import annotations

import itertools
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text


def seen(figure: Figure) -> list[tuple[str, Any]]:
    """Every text that is seen, with its place in pixels: not the labels of ticks outside the axes."""
    figure.draw_without_rendering()
    beyond = set()
    for axis in itertools.chain.from_iterable((axes.xaxis, axes.yaxis) for axes in figure.axes):
        low, high = sorted(axis.get_view_interval())
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            if not low - 1e-9 <= tick.get_loc() <= high + 1e-9:
                beyond |= {tick.label1, tick.label2}
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    return [(text.get_text(), text.get_window_extent()) for text in texts if text not in beyond]


def assert_inside(figure: Figure, width: float) -> list[tuple[str, Any]]:
    """The figure is so wide, and all panels and words lie on it; returns the words."""
    assert figure.get_figwidth() == width
    boxes = seen(figure)
    for words, box in [*boxes, *((axes.get_label(), axes.bbox) for axes in figure.axes)]:
        assert min(box.x0, box.y0) >= -0.5, words
        assert box.x1 <= figure.bbox.x1 + 0.5, words
        assert box.y1 <= figure.bbox.y1 + 0.5, words
    return boxes


def assert_apart(boxes: list[tuple[str, Any]], touch: float = 1.5) -> None:
    """No word lies over another: boxes hold the line's full height, so that a pixel of touch is no overlap of ink."""
    for (words, one), (others, other) in itertools.combinations(boxes, 2):
        shared = min(one.x1, other.x1) - max(one.x0, other.x0), min(one.y1, other.y1) - max(one.y0, other.y0)
        assert min(shared) < touch, (words, others, shared)
