"""How the surfaces of planes are coloured, as users choose it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from ....checkpoints import FedscopeError, nearest
from ....plotting.style import SURFACE

#: what colours, and heights of pages, follow: the logarithm of the excess over the least value, or the value
SCALES = ("log", "linear")
#: which panels of a figure share a colour scale: all, those of a row (a run, a set of samples), or none
SHARED = ("figure", "row", "panel")


@dataclass(frozen=True)
class Colours:
    """How surfaces are coloured.

    Attributes:
        cmap: one of matplotlib's colour maps, ``viridis``, ``cividis``, ``magma``.
        loss_limits: the ends of the loss's scale in nats; None: those of what is drawn.
        error_limits: the same of the error, in per cent.
        colour_scale: ``log``, by which bands grow with the distance to the least value, so that the floor of a valley
            with high walls is seen; or ``linear``, by which all bands are alike, so that a ridge on top is seen. Pages
            have it as the surface's height, too.

    Raises:
        FedscopeError: no such colour map or scale; limits that do not rise or are not finite.

    Equal limits give equal scales in different figures. Values beyond them have the colour at that end, and the colour
    bar an arrow there.

    >>> Colours(loss_limits=(0.0, 2.0)).limits("loss")
    (0.0, 2.0)
    """

    cmap: str = SURFACE
    loss_limits: tuple[float, float] | None = None
    error_limits: tuple[float, float] | None = None
    colour_scale: str = SCALES[0]

    def __post_init__(self) -> None:
        if self.colour_scale not in SCALES:
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

    def limits(self, name: str) -> tuple[float, float] | None:
        """Of ``loss`` or ``error``."""
        return self.loss_limits if name == "loss" else self.error_limits


def _is_scale(low: float, high: float) -> bool:
    """Whether bands fit between two numbers: they rise, are finite, and are not the same but for rounding."""
    return isfinite(high - low) and high - low > max(1e-9 * max(abs(low), abs(high)), 1e-300)
