"""The gap of Lemma 1 above the variances of Theorem 2. Drawing only."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from ...landscape.drawing.paper import CHARACTER, GREY, SMALL, measured_on, new_figure, paper_style
from .bounds import VARIANCES
from .gaps import left_out, local_slopes
from .panels import Colours, draw_gaps, draw_variance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .result import Theory

# Inches. Below this width the lower panels stand one above the other.
NARROW = 3.0
LEFT, RIGHT, EDGE, LINE, BETWEEN = 0.55, 0.1, 0.05, 0.135, 0.52
GAPS, VARIANCE, TITLE, LABELS, BAR = 1.6, 1.1, 0.3, 0.36, 0.07
# Right of the colour bar, for its numbers.
NUMBERS = 0.28


def draw_theory(result: Theory, width: float = 3.5, title: str | None = None) -> Figure:
    """The figure of a result, ``width`` in inches.

    Above: the gap against Δ², both logarithmic; discs are rounds, coloured from the first to the last, the dashed line
    is fitted to them, squares are the shrunk clients of a round. Below, where Theorem 2 was asked for: each client's
    variance against what the theorem predicts, of the Gaussian process (dashes: its upper bound) and over replays.
    """
    from matplotlib.lines import Line2D

    shown = [name for name in VARIANCES if any(getattr(one, name) is not None for one in result.bounds)]
    colours = Colours.of(result)
    with paper_style(width):
        legend = _legend_of(result)
        remark = textwrap.wrap(_remark(result), int((width - 0.16) / (0.87 * CHARACTER)))
        columns = 1 if width < NARROW or len(shown) == 1 else 2
        rows = -(-len(shown) // columns)
        top = EDGE + (0.2 if title else 0.02) + LINE * len(legend) + 0.05
        height = top + GAPS + LABELS + rows * (TITLE + VARIANCE + LABELS) + 0.06 + LINE * len(remark) + EDGE
        figure = new_figure(width, height)
        if title:
            figure.text(0.5, 1 - (EDGE + 0.08) / height, title, ha="center", va="center")
        bar = BAR + NUMBERS + 0.06 if colours.several else 0.0
        wide = width - LEFT - RIGHT - bar
        axes = figure.add_axes((LEFT / width, 1 - (top + GAPS) / height, wide / width, GAPS / height))
        draw_gaps(axes, result, colours, (wide, GAPS))
        if colours.several:
            left = (LEFT + wide + 0.06) / width
            colours.bar(figure, (left, 1 - (top + GAPS) / height, BAR / width, GAPS / height))
        begin = 0.12 if width < NARROW else LEFT + 0.05
        for row, (mark, words) in enumerate(legend):
            y = 1 - (top - 0.05 - LINE * (len(legend) - row - 0.5)) / height
            inside = "white" if mark == "s" else GREY
            figure.add_artist(Line2D([begin / width], [y], color=GREY, marker=mark, markersize=3.2, mfc=inside))
            figure.text((begin + 0.1) / width, y, words.replace("-", "−"), fontsize=SMALL, va="center")
        each = (width - LEFT - RIGHT - BETWEEN * (columns - 1)) / columns
        for i, name in enumerate(shown):
            row, column = divmod(i, columns)
            bottom = top + GAPS + LABELS + row * (TITLE + VARIANCE + LABELS) + TITLE + VARIANCE
            box = (LEFT + column * (each + BETWEEN)) / width, 1 - bottom / height, each / width, VARIANCE / height
            draw_variance(figure.add_axes(box), result, name, colours)
        for row, words in enumerate(reversed(remark)):
            y = (EDGE + LINE * (row + 0.5)) / height
            figure.text(0.08 / width, y, words, color=GREY, fontsize=SMALL, va="center")
    return figure


def _legend_of(result: Theory) -> list[tuple[str, str]]:
    """A marker and its words."""
    slope = result.slope
    words = f"rounds: slope {slope.value:.2f} ± {slope.stderr:.2f}" if slope else "rounds"
    entries = [("o", words)]
    for number, path in result.shrunk.items():
        steps = local_slopes(path)
        ending = f": slope → {steps[-1]:.2f}" if steps else ""
        entries.append(("s", f"round {number} shrunk{ending}"))
    return entries


def _remark(result: Theory) -> str:
    """What the numbers are of, and what they cannot show."""
    parts = []
    for why, count in left_out(result.rounds).items():
        parts.append(f"{count} of {len(result.rounds)} rounds left out ({why})")
    if "data" in result.attrs:
        parts.append(measured_on(result.attrs))
    if result.bounds:
        dimension, size = result.attrs.get("dimension"), result.attrs.get("parameters")
        projected = f", gradients in {dimension:,} dimensions" if dimension and size and dimension < size else ""
        parts.append(
            f"below: a client each; K: neural tangent kernel{projected}; predicted: n/(2λ) MMD², λ the mean of K's "
            "diagonal; dashes: upper bound by K's greatest eigenvalue; Theorem 2 is about the variance of "
            "kernel-regime solutions (GP: Gaussian process), not of replays"
        )
    return "; ".join(parts)
