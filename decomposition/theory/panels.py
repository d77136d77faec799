"""The panels of a figure of Lemma 1 and Theorem 2. Drawing only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...landscape.drawing.paper import GREY, SMALL, SURFACE
from .bounds import VARIANCES
from .gaps import without_gaps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from .result import Theory

NAMES = {"gp_variance": "GP variance", "replay_variance": "replay variance"}
MARKS = dict(zip(VARIANCES, ("o", "s"), strict=True))
# Of the colour map: its yellow end does not read on white.
USED = 0.88


@dataclass(frozen=True)
class Colours:
    """A colour a round, from the first to the last."""

    first: int
    last: int

    @classmethod
    def of(cls, result: Theory) -> Colours:
        """Of all rounds in a result."""
        rounds = [*(one.round for one in result.gaps), *(one.round for one in result.bounds)] or [1]
        return cls(min(rounds), max(rounds))

    @property
    def several(self) -> bool:
        """Whether there is more than one."""
        return self.last > self.first

    def __call__(self, round: int) -> Any:
        """The colour of a round."""
        return self._map()((round - self.first) / (self.last - self.first) if self.several else 0.3)

    def bar(self, figure: Figure, box: tuple[float, float, float, float]) -> None:
        """A bar that says which is which."""
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize
        from matplotlib.ticker import MaxNLocator

        shown = ScalarMappable(Normalize(self.first, self.last), self._map())
        bar = figure.colorbar(shown, cax=figure.add_axes(box))
        bar.set_label("round", labelpad=2)
        bar.locator = MaxNLocator(nbins=4, integer=True, steps=[1, 2, 5, 10])
        bar.update_ticks()
        bar.outline.set_linewidth(0.6)

    def _map(self) -> Any:
        import matplotlib
        from matplotlib.colors import ListedColormap

        return ListedColormap(matplotlib.colormaps[SURFACE](np.linspace(0, USED, 256)))


def draw_gaps(axes: Axes, result: Theory, colours: Colours, inches: tuple[float, float]) -> None:
    """The gap against Δ², both logarithmic: rounds, the line fitted to them, shrunk clients.

    ``inches`` of the axes decide on how many numbers they have.
    """
    rounds = [one for one in result.rounds if one.counts]
    axes.set_xlabel("Δ² (squared L2 distance)", labelpad=1)
    axes.set_ylabel(f"gap ({result.attrs.get('outputs', 'outputs')})")
    shrunk = [one for path in result.shrunk.values() for one in path if one.counts]
    if not rounds and not shrunk:
        axes.set(xticks=[], yticks=[])
        words = without_gaps(result.gaps).replace(": ", ":\n")
        axes.text(0.5, 0.5, words, ha="center", va="center", color=GREY, transform=axes.transAxes)
        return
    for number, path in result.shrunk.items():
        own = [one for one in path if one.counts]
        across, up = [one.distance**2 for one in own], [one.gap for one in own]
        axes.plot(
            *(across, up, "s-"),
            **{"color": colours(number), "markerfacecolor": "white", "markersize": 3.2, "linewidth": 0.8, "zorder": 3},
        )
    for one in rounds:
        axes.plot(one.distance**2, one.gap, "o", color=colours(one.round), markersize=3.2, zorder=4)
    slope = result.slope
    if slope is not None:
        ends = [min(one.distance**2 for one in rounds), max(one.distance**2 for one in rounds)]
        axes.plot(ends, [slope.at(end) for end in ends], color=GREY, linestyle=(0, (5, 1.5)), linewidth=0.9, zorder=5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(0.06)
    for axis, room in zip((axes.xaxis, axes.yaxis), (inches[0] / 0.36, inches[1] / 0.25), strict=True):
        _logarithmic(axis, int(room))


def draw_variance(axes: Axes, result: Theory, variance: str, colours: Colours) -> None:
    """Each client's variance against its prediction, of the Gaussian process with its upper bound as a dash; the
    correlation of every round where they are few."""
    unit = "units of K" if variance == "gp_variance" else f"{result.attrs.get('outputs', 'outputs')}²"
    drawn = [one for one in result.bounds if getattr(one, variance) is not None]
    across, x_unit = _scaled([one.predicted for one in drawn], "units of K")
    bounded = drawn if variance == "gp_variance" else []
    scaled, y_unit = _scaled([*(getattr(one, variance) for one in drawn), *(one.bound for one in bounded)], unit)
    up, bounds = scaled[: len(drawn)], scaled[len(drawn) :]
    for one, x, y in zip(bounded, across, bounds, strict=False):
        axes.plot(x, y, "_", color=colours(one.round), markersize=4.5, markeredgewidth=0.9, label="_bound")
    for one, x, y in zip(drawn, across, up, strict=True):
        axes.plot(
            *(x, y, MARKS[variance]),
            **{"color": colours(one.round), "markersize": 3.4, "markeredgecolor": "white", "markeredgewidth": 0.3},
        )
    lines = [NAMES[variance]]
    found = [one for one in result.correlations if one.variance == variance]
    if len(found) == 1:
        lines.append(f"r = {found[0].pearson:.2f}, n = {found[0].clients}")
    elif found:
        every = [one.pearson for one in found]
        lines.append(f"r = {min(every):.2f} to {max(every):.2f}")
    axes.set_title("\n".join(lines).replace("-", "−"), fontsize=SMALL, loc="left", pad=3)
    axes.set_xlabel(f"predicted ({x_unit})", fontsize=SMALL, labelpad=1)
    axes.set_ylabel(y_unit, fontsize=SMALL, labelpad=2)
    axes.margins(0.1)
    _plain(axes.xaxis)
    _plain(axes.yaxis)


def _scaled(values: list[float], unit: str) -> tuple[np.ndarray, str]:
    """Values between 0.1 and 100, and their unit with the power of ten that was taken out."""
    every = np.array(values, dtype=np.float64)
    finite = np.abs(every[np.isfinite(every)])
    greatest = float(finite.max()) if finite.size else 0.0
    power = math.floor(math.log10(greatest)) if greatest > 0 else 0
    if -1 <= power <= 1:
        return every, unit
    return every / 10.0**power, rf"$10^{{{power}}}$ {unit}"


def _plain(axis: Axis) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))


def _logarithmic(axis: Axis, ticks: int) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    few = high < 300 * low
    subs = (1.0, 2.0, 5.0) if high < 10 * low else (1.0, 3.0) if few else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=max(3, ticks)))
    if few:  # 0.03 and 0.1 rather than powers of ten
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
