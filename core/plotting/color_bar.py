"""The colour bar of an image: of heat maps, and of planes with a scale of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from .drawing import size_of
from .style import SMALL
from .ticks import even

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class BarScale(Protocol):
    """A scale that knows the colour bar it needs, such as the bands of a plane."""

    @property
    def extend(self) -> str:
        """The ends at which the bar has an arrow, in matplotlib's word."""

    def label_within(self, height: float) -> str:
        """Return the label of a bar so many inches high."""

    def numbers_within(self, height: float) -> tuple[list[float], list[str]]:
        """Return the values that are labelled on a bar so many inches high, and their labels."""


def color_bar(
    axes: Axes,
    image: Any,
    label: str = "",
    most: int | None = None,
    *,
    labelpad: float = 3.0,
    extend: str = "neither",
    scale: BarScale | None = None,
    height: float = 0.0,
    labelled: bool = True,
    **ticks: Any,
) -> Any:
    """Draw the colour bar of an image into ``axes``; returns it.

    Args:
        most: so many numbers at most (see :func:`even`, which takes ``ticks``).
        scale: says itself which numbers and which label a bar of ``height`` inches has, and at which end an arrow;
            without the label if not ``labelled``.
    """
    _, height = size_of(axes, 0.0, height)
    if scale is not None:
        label, extend = scale.label_within(height) if labelled else "", scale.extend
    bar = axes.figure.colorbar(image, cax=axes, extend=extend)
    bar.set_label(label, labelpad=labelpad)
    if most is not None:
        even(bar.ax.yaxis, most, **ticks)
    bar.outline.set_linewidth(0.6)
    if scale is not None:
        at, texts = scale.numbers_within(height)
        bar.set_ticks(at, labels=texts, minor=False)
        bar.ax.minorticks_off()
        bar.ax.tick_params(length=1.5, labelsize=SMALL)
    return bar
