"""Colours of the surfaces of planes: those that users choose, and the bands between levels with their colour bar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, isfinite, log10
from typing import TYPE_CHECKING, Literal

import numpy as np

from ....checkpoints import FedscopeError, nearest
from ....plotting.levels import FEWEST, depth, even_depth, even_levels, evenly_within, levels, round_edges, within
from ....plotting.style import CHARACTER, SURFACE, current, word_of
from .fill import quantity

if TYPE_CHECKING:
    from ..result import Plane

#: what colours, and heights of pages, follow: the logarithm of the excess over the least value, or the value
SCALES = ("log", "linear")
#: which panels of a figure share a colour scale: all, those of a row (a run, a set of samples), or none
SHARED = ("figure", "row", "panel")
#: inches from which on the figure of one plane shows the error beside the loss
TWO_PANELS = 6
#: inches that the label of a colour bar, of two lines, takes beside its numbers
BAR_LABEL = 0.32
#: the mean width of a letter of that label, in inches
LETTER = 0.065


@dataclass(frozen=True)
class SurfaceColours:
    """Colours of surfaces, as users choose them.

    Attributes:
        cmap: one of matplotlib's colour maps, ``viridis``, ``cividis``, ``magma``; by default that of the style in use.
        loss_limits: the ends of the loss's scale in nats; None: those of what is drawn.
        error_limits: the same of the error, in per cent.
        colour_scale: ``log``, by which bands grow with the distance to the least value, so that the floor of a valley
            with high walls is seen; or ``linear``, by which all bands are alike, so that a ridge on top is seen. Pages
            have it as the surface's height, too. None: linear of several planes on the same axes, which is how their
            steepness is compared where one lies higher; else logarithmic.

    Raises:
        FedscopeError: no such colour map or scale; limits that do not rise or are not finite.

    Equal limits give equal scales in different figures. Values beyond them have the colour at that end, and the colour
    bar an arrow there.

    >>> SurfaceColours(loss_limits=(0.0, 2.0)).limits("loss")
    (0.0, 2.0)
    """

    cmap: str = field(default_factory=lambda: current().surface or SURFACE)
    loss_limits: tuple[float, float] | None = None
    error_limits: tuple[float, float] | None = None
    colour_scale: str | None = None

    def __post_init__(self) -> None:
        if self.colour_scale is not None and self.colour_scale not in SCALES:
            raise FedscopeError(
                f"--colour-scale {self.colour_scale} is no scale of colours"
                f"{nearest(str(self.colour_scale), SCALES) or f'; give {SCALES[0]} or {SCALES[1]}'}"
            )
        for option, limits in (("--loss-limits", self.loss_limits), ("--error-limits", self.error_limits)):
            if limits is not None and not _is_scale(*limits):
                raise FedscopeError(
                    f"{option} {limits[0]:g} {limits[1]:g} is no scale; give two numbers, the lower one first"
                )
        if self.cmap != SURFACE:
            import matplotlib

            if self.cmap not in matplotlib.colormaps:
                hint = nearest(self.cmap, list(matplotlib.colormaps)) or "; viridis, cividis and magma are three"
                raise FedscopeError(f"--cmap {self.cmap} is no colour map of matplotlib{hint}")

    def refuse_unused(self, width: float, *, has_error: bool = True) -> None:
        """Refuse limits of an error whose surface a figure of one plane would not show.

        Args:
            width: of the figure, in inches.
            has_error: whether the plane has one.

        Raises:
            FedscopeError: says from which width on it does, or that there is no error.
        """
        if self.error_limits is None or (width >= TWO_PANELS and has_error):
            return
        said = f"--error-limits {self.error_limits[0]:g} {self.error_limits[1]:g}"
        if not has_error:
            raise FedscopeError(f"{said} is about the error, and nothing here has one; leave it out")
        raise FedscopeError(
            f"{said} needs the error's surface, and a figure of one plane shows it from {TWO_PANELS} inches on; leave "
            f"it out, or give --width {TWO_PANELS}"
        )

    def limits(self, name: str) -> tuple[float, float] | None:
        """Return the limits of ``loss`` or ``error``."""
        return self.loss_limits if name == "loss" else self.error_limits


def _is_scale(low: float, high: float) -> bool:
    """Tell whether bands fit between two numbers: they rise, are finite, and are not the same but for rounding."""
    return isfinite(high - low) and high - low > max(1e-9 * max(abs(low), abs(high)), 1e-300)


@dataclass(frozen=True, eq=False)
class Scale:
    """One colour scale: bands between ``edges``, whose distance from the lowest one grows by about the same factor, or
    that are evenly spaced.

    Attributes:
        edges: in the quantity's units, rising.
        below, above: values beyond the first or the last edge exist, and share the colour at that end.
        label: of the colour bar.
        cmap: its colours.
        base: of a logarithmic scale above what it is, ``the minimum`` or a limit of the user's own; "" of a linear one.
    """

    edges: np.ndarray
    above: bool
    label: str
    below: bool = False
    cmap: str = SURFACE
    base: str = ""

    @property
    def kind(self) -> str:
        """The scale in words, for a colour bar and an axis of heights."""
        return f"log scale above {self.base}" if self.base else "linear scale"

    @property
    def short_kind(self) -> str:
        """The scale in fewer words."""
        return f"log above {self.base.removeprefix('the ')}" if self.base else "linear"

    def label_within(self, height: float) -> str:
        """Return the label of a colour bar so many inches high: what is measured, and below it by which scale."""
        words = [
            self.kind,
            self.short_kind,
            self.short_kind.replace("minimum", "min."),
            self.kind.partition(" above")[0],
        ]
        return f"{self.label}\n{next((kind for kind in words if len(kind) * LETTER <= height), words[-1])}"

    def numbers_within(self, height: float) -> tuple[list[float], list[str]]:
        """Return the edges that are labelled on a colour bar so many inches high, and their labels."""
        every = max(1, ceil(len(self.edges) / max(2.0, height / 0.17)))
        at = [float(self.edges[i]) for i in space_evenly(len(self.edges), every)]
        return at, distinct(at)

    def height(self, values: np.ndarray) -> np.ndarray:
        """Place values between the edges, counted in edges; beyond them it goes on."""
        return depth(values, self.edges) if self.base else even_depth(values, self.edges)

    @property
    def extend(self) -> Literal["neither", "min", "max", "both"]:
        """The ends at which the colour bar has an arrow, in matplotlib's word."""
        if self.below:
            return "both" if self.above else "min"
        return "max" if self.above else "neither"


def scale_of(planes: Iterable[Plane], name: str, colours: SurfaceColours | None = None) -> Scale:
    """Return the levels all these planes are drawn with: logarithmic in the excess over the least value on any of them,
    or evenly spaced where the user wants them so.

    Where few points tower over the rest, the bands end below them, and the colour bar with an arrow; see
    :func:`levels`. Limits of the user's own are taken in place of both ends.
    """
    colours = colours or SurfaceColours()
    planes = list(planes)
    unit = 1.0 if name == "loss" else 100.0
    grid = np.concatenate([quantity(plane, name).ravel() for plane in planes])
    models = np.array([unit * getattr(model, name) for plane in planes for model in plane.models])
    grid = grid[np.isfinite(grid)]
    splits = {word_of(plane.attrs, "split") for plane in planes}
    split = splits.pop() if len(splits) == 1 else ""
    nats = " (nats)" if all(plane.attrs.get("loss_units", "nat") == "nat" for plane in planes) else ""
    label = f"{split} {f'loss{nats}' if name == 'loss' else 'error (%)'}".strip()
    # an error moves in steps of one sample; bands finer than half of one would draw the stairs, not the surface
    step = 50.0 / max(int(plane.attrs.get("samples", 0) or 10**9) for plane in planes) if name == "error" else 0.0
    compared = len(planes) > 1 and all("same_axes" in plane.attrs for plane in planes)
    limits, linear = colours.limits(name), (colours.colour_scale or SCALES[compared]) == "linear"
    base = "" if linear else "the minimum" if limits is None else f"{limits[0]:g}"
    if limits is not None:
        edges = evenly_within(*limits, step=step) if linear else round_edges(within(*limits, step=step), last=True)
        below, above = bool((grid < limits[0]).any()), bool((grid > limits[1]).any())
        return Scale(edges, above, label, below, colours.cmap, base)
    if not grid.size:
        return Scale(np.array([0.0, 1.0]), False, label, cmap=colours.cmap, base=base)
    least = float(min(grid.min(), np.min(models[np.isfinite(models)], initial=np.inf)))
    if linear:
        edges, above = even_levels(grid, least, step=step)
        return Scale(edges, above and bool((grid > edges[-1]).any()), label, cmap=colours.cmap)
    edges, above = levels(grid, least, fewest=FEWEST if name == "loss" else 3, step=step)
    edges = round_edges(edges)
    return Scale(edges, above and bool((grid > edges[-1]).any()), label, cmap=colours.cmap, base=base)


def space_evenly(count: int, every: int) -> list[int]:
    """Places from the first to the last of some, evenly and not closer than every so many.

    >>> space_evenly(10, 3), space_evenly(14, 3), space_evenly(2, 5)
    ([0, 3, 6, 9], [0, 3, 6, 10, 13], [0, 1])
    """
    return [round(at) for at in np.linspace(0, count - 1, max(2, 1 + (count - 1) // every))]


def bar_room(scales: Iterable[Scale], height: float) -> float:
    """Inches that a colour bar's labels and its own label need at its right."""
    return 0.07 + BAR_LABEL + CHARACTER * max(len(text) for scale in scales for text in scale.numbers_within(height)[1])


def distinct(values: Sequence[float]) -> list[str]:
    """Numbers with two significant digits, or as many more as tell each from its neighbours, without zeros at the end;
    one that six digits do not tell from the one before is left out.

    >>> distinct([0.1, 0.104, 0.31, 2.0, 15.2])
    ['0.1', '0.104', '0.31', '2', '15']
    >>> distinct([0.0, 3e-9, 0.5, 3e17, 3.04e17])
    ['0', '3.0e−9', '0.5', '3.00e17', '3.04e17']
    """
    texts: list[str] = []
    told = ""
    for i, value in enumerate(values):
        gaps = [abs(value - other) for other in (*values[max(0, i - 1) : i], *values[i + 1 : i + 2]) if other != value]
        to_tell = ceil(-log10(min(gaps))) if gaps else 0
        first = floor(log10(abs(value))) if value else 0
        if abs(value) >= 1e5 or 0 < abs(value) < 1e-4:  # a diverged model's loss; one that has nearly nothing left
            text = f"{value:.{min(max(1, first + to_tell), 5)}e}".replace("e+", "e").replace("e-0", "e-")
        else:
            text = f"{value:.{min(max(0, to_tell, 1 - first if value else 0), 6)}f}"
            text = text.rstrip("0").rstrip(".") if "." in text else text
        text = text.replace("-", "\N{MINUS SIGN}")
        texts.append("" if text == told else text)
        told = text
    return texts
