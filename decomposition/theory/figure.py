"""The gap of Lemma 1 above the variances of Theorem 2. Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.color_bar import color_bar
from ...plotting.drawing import drawing
from ...plotting.layout import EDGE, LINE, FigureLayout, legend_rows, wrap_words
from ...plotting.style import GREY, SMALL, SURFACE, describe_data, paper_style, word_of
from ...plotting.ticks import decades, even, power_of_ten
from .lemma1 import left_out, local_slopes, without_gaps
from .theorem2 import PREDICTIONS, VARIANCES, VarianceCorrelation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from .result import Theory

# Inches. Below this width the lower panels stand one above the other.
NARROW = 3.0
LEFT, RIGHT, BETWEEN = 0.55, 0.1, 0.14
GAPS, VARIANCE, TITLE, LABELS, BAR = 1.6, 0.9, 0.3, 0.36, 0.07
# Below a panel with a quantity and its unit in lines of their own.
TWO_LINES = 0.46
# Right of the colour bar, for its numbers.
NUMBERS = 0.28

NAMES = {"gp_variance": "GP variance", "replay_variance": "replay variance"}
MARKS = dict(zip(VARIANCES, ("o", "s"), strict=True))
#: what a variance is drawn against: its name, its unit, and what the paper has to do with it
AGAINST = {
    "equation_3": ("equation 3", "K", "the theorem"),
    "mmd2": ("MMD² alone", "K²", "paper's reading"),
    "predicted": ("first term alone", "K", "neither of them"),
}
# Of the colour map: its yellow end does not read on white.
USED = 0.88


@dataclass(frozen=True)
class RoundColours:
    """A colour a round, from the first to the last."""

    first: int
    last: int

    @classmethod
    def of(cls, result: Theory) -> RoundColours:
        """Take the range of all rounds in a result."""
        rounds = [*(gap.round for gap in result.gaps), *(bound.round for bound in result.bounds)] or [1]
        return cls(min(rounds), max(rounds))

    @property
    def several(self) -> bool:
        """True if there is more than one."""
        return self.last > self.first

    def __call__(self, round: int) -> Any:
        """Return the colour of a round."""
        return self._map()((round - self.first) / (self.last - self.first) if self.several else 0.3)

    def bar(self, axes: Axes) -> None:
        """A bar that says which is which."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        shown = ScalarMappable(Normalize(self.first, self.last), self._map())
        color_bar(axes, shown, "round", 4, integer=True, labelpad=2)

    def _map(self) -> Any:
        import matplotlib
        from matplotlib.colors import ListedColormap

        return ListedColormap(matplotlib.colormaps[SURFACE](np.linspace(0, USED, 256)))


@drawing
def draw(result: Theory, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw the figure of a result, ``width`` in inches.

    Above: the gap against Δ², both logarithmic; discs are rounds, coloured from the first to the last, the dashed line
    is fitted to them, squares are the shrunk clients of a round. Below, where Theorem 2 was asked for: each client's
    variance, of the Gaussian process (dashes: its upper bound) and over replays, against equation 3, which is the
    theorem, MMD² alone, which is the paper's reading of it, and the first term alone, which is neither.
    """
    shown, against = (
        [name for name in names if any(getattr(one, name) is not None for one in result.bounds)]
        for names in (VARIANCES, PREDICTIONS)
    )
    colours = RoundColours.of(result)
    with paper_style(width):
        entries = _legend_of(result)
        remark = wrap_words(_remark(result), width - 0.16, 0.87)
        columns = 1 if width < NARROW else max(1, len(against))
        panels = [(name, prediction) for name in shown for prediction in against]
        high = TITLE + VARIANCE + TWO_LINES
        first = EDGE + (0.2 if title else 0.02)
        top = first + LINE * len(entries) + 0.05
        height = top + GAPS + LABELS + len(panels) // columns * high + 0.06 + LINE * len(remark) + EDGE
        sheet = FigureLayout(width, height, title)
        bar = BAR + NUMBERS + 0.06 if colours.several else 0.0
        wide = width - LEFT - RIGHT - bar
        _draw_gaps(sheet.axes(LEFT, top, wide, GAPS), result, colours, (wide, GAPS))
        if colours.several:
            colours.bar(sheet.bar(LEFT + wide + 0.06, top, BAR, GAPS))
        begin = 0.12 if width < NARROW else LEFT + 0.05
        legend = legend_rows([words.replace("-", "−") for words, _ in entries], begin, 0.0, 0.1)  # a row each
        legend.draw(sheet, first, lambda i, left, middle: sheet.symbol(left, middle, entries[i][1]), 0.1)
        each = (width - LEFT - RIGHT - BETWEEN * (columns - 1)) / columns
        for i, (name, prediction) in enumerate(panels):
            row, column = divmod(i, columns)
            panel = top + GAPS + LABELS + row * high + TITLE
            axes = sheet.axes(LEFT + column * (each + BETWEEN), panel, each, VARIANCE)
            _draw_variance(axes, result, name, prediction, colours)
            if column:
                axes.set_ylabel("")
                axes.tick_params(labelleft=False)
        return sheet.finished(remark, 0.08)


def _legend_of(result: Theory) -> list[tuple[str, dict[str, Any]]]:
    """Words, and how their marker looks."""
    slope = result.slope
    words = f"rounds: slope {slope.value:.2f} ± {slope.stderr:.2f} (dashed)" if slope else "rounds"
    look: dict[str, Any] = {"color": GREY, "markersize": 3.2}
    entries = [(words, {**look, "marker": "o"})]
    for number, path in result.shrunk.items():
        steps = local_slopes(path)
        ending = f": slope → {steps[-1]:.2f}" if steps else ""
        entries.append((f"round {number} shrunk{ending}", {**look, "marker": "s", "markerfacecolor": "white"}))
    return entries


def _draw_gaps(axes: Axes, result: Theory, colours: RoundColours, inches: tuple[float, float]) -> None:
    """Draw the gap against Δ², both logarithmic: rounds, the line fitted to them, shrunk clients.

    ``inches`` of the axes decide on how many numbers they have.
    """
    rounds = [gap for gap in result.rounds if gap.counts]
    axes.set_xlabel("Δ² (squared $L_2$ distance), log", labelpad=1)
    axes.set_ylabel(f"gap ({word_of(result.attrs, 'outputs', 'outputs')}), log")
    shrunk = {number: [gap for gap in path if gap.counts] for number, path in result.shrunk.items()}
    if not rounds and not any(shrunk.values()):
        axes.set(xticks=[], yticks=[])
        words = without_gaps(result.gaps).replace(": ", ":\n")
        axes.text(0.5, 0.5, words, ha="center", va="center", color=GREY, transform=axes.transAxes)
        return
    for number, path in shrunk.items():
        across, up = [gap.distance**2 for gap in path], [gap.gap for gap in path]
        look: dict[str, Any] = {"color": colours(number), "markerfacecolor": "white", "markersize": 3.2}
        axes.plot(across, up, "s-", linewidth=0.8, zorder=3, **look)
    for gap in rounds:
        axes.plot(gap.distance**2, gap.gap, "o", color=colours(gap.round), markersize=3.2, zorder=4)
    slope = result.slope
    if slope is not None:
        ends = [min(gap.distance**2 for gap in rounds), max(gap.distance**2 for gap in rounds)]
        axes.plot(ends, [slope.at(end) for end in ends], color=GREY, linestyle=(0, (5, 1.5)), linewidth=0.9, zorder=5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(0.06)
    for axis, room in zip((axes.xaxis, axes.yaxis), (inches[0] / 0.36, inches[1] / 0.25), strict=True):
        _logarithmic(axis, int(room))


def _draw_variance(axes: Axes, result: Theory, variance: str, prediction: str, colours: RoundColours) -> None:
    """Each client's variance against a prediction, of the Gaussian process with its upper bound as a dash; the
    correlation of every round where they are few."""
    unit = "K" if variance == "gp_variance" else f"{word_of(result.attrs, 'outputs', 'outputs')}²"
    quantity, x_unit, role = AGAINST[prediction]
    drawn = [client for client in result.bounds if getattr(client, variance) is not None]
    bounded = drawn if variance == "gp_variance" else []
    # of all, so that the panels of a row have one scale
    scaled, y_unit = _scale(
        [*(getattr(client, variance) for client in drawn), *(client.bound for client in bounded)], unit
    )
    there = [getattr(client, prediction) is not None for client in drawn]
    across, x_unit = _scale([getattr(client, prediction) for client in _where(there, drawn)], x_unit)
    for client, x, y in zip(_where(there, bounded), across, _where(there, scaled[len(drawn) :]), strict=False):
        axes.plot(x, y, "_", color=colours(client.round), markersize=4.5, markeredgewidth=0.9, label="_bound")
    look: dict[str, Any] = {"markersize": 3.4, "markeredgecolor": "white", "markeredgewidth": 0.3}
    for client, x, y in zip(_where(there, drawn), across, _where(there, scaled[: len(drawn)]), strict=True):
        axes.plot(x, y, MARKS[variance], color=colours(client.round), **look)
    lines = [role]
    found = [one for one in result.correlations if (one.variance, one.prediction) == (variance, prediction)]
    if found:
        every = [f"{one.pearson:.2f}" for one in (min(found, key=_pearson), max(found, key=_pearson))]
        lines.append(("r = " if len(found) == 1 else "r ") + " to ".join(dict.fromkeys(every)))
    axes.set_title("\n".join(lines).replace("-", "−"), fontsize=SMALL, loc="left", pad=3)
    axes.set_xlabel(f"{quantity}\n({x_unit})", fontsize=SMALL, labelpad=1)
    axes.set_ylabel(f"{NAMES[variance]}\n({y_unit})", fontsize=SMALL, labelpad=2)
    axes.margins(0.1)
    even(axes.xaxis, 3)
    even(axes.yaxis, 4)


def _pearson(one: VarianceCorrelation) -> float:
    return one.pearson


def _where(there: Sequence[bool], values: Sequence[Any] | np.ndarray) -> list[Any]:
    """Select the values of the clients that have what is drawn."""
    return list(compress(values, there))


def _scale(values: list[float], unit: str) -> tuple[np.ndarray, str]:
    """Values between 0.1 and 100, and their unit with the power of ten that was taken out."""
    every = np.array(values, dtype=np.float64)
    power = power_of_ten(every, 1)
    return (every / 10.0**power, rf"$10^{{{power}}}$ {unit}") if power else (every, unit)


def _logarithmic(axis: Axis, ticks: int) -> None:
    low, high = axis.get_view_interval()
    few = high < 300 * low  # then 0.03 and 0.1 rather than powers of ten
    subs = (1.0, 2.0, 5.0) if high < 10 * low else (1.0, 3.0) if few else (1.0,)
    decades(axis, subs, max(3, ticks), plain=few)


def _remark(result: Theory) -> str:
    parts = ["±: one standard error, of dependent rounds"] if result.slope else []
    for why, count in left_out(result.rounds).items():
        parts.append(f"{count} of {len(result.rounds)} rounds left out ({why})")
    if "data" in result.attrs:
        parts.append(describe_data(result.attrs))
    if result.bounds:
        dimension, size = result.attrs.get("dimension"), result.attrs.get("parameters")
        projected = f", gradients in {dimension:,} dimensions" if dimension and size and dimension < size else ""
        parts.append(
            f"below: a client each; K: neural tangent kernel{projected}; equation 3: n/(2λ) MMD² (its first term) + "
            "λ_D − n/(2λ) β_D, λ the mean of K's diagonal; dashes: upper bound by K's greatest eigenvalue; Theorem 2 "
            "is about the variance of kernel-regime solutions (GP: Gaussian process), not of replays"
        )
    return "; ".join(parts)
