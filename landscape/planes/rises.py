"""How far the loss rises about the origins of planes on the same axes: which of them is flatter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .many_planes import Panel

#: points within the circle below which nothing is said
FEWEST = 9
#: a rise is called less than another below this share of it: the error of the sample is not known here
APART = 0.9
#: how much larger one origin's norm must be than another's to be said
LARGER = 1.1


@dataclass(frozen=True)
class Rise:
    """The loss about the origins of planes on one grid.

    Attributes:
        radius: of the circle about the origin, L2: half of the largest that lies within the grid, whose rim is often
            far above all models.
        labels: of the planes.
        rises: the mean over the grid's points within the circle of their loss less that of the origin, in nats.
        origins: the losses of the origins, measured themselves.
        norms: of the origins' parameters.
    """

    radius: float
    labels: tuple[str, ...]
    rises: tuple[float, ...]
    origins: tuple[float, ...]
    norms: tuple[float, ...]

    def findings(self) -> dict[str, Any]:
        """Return its numbers by their names."""
        return asdict(self)


def rise_of(panels: Sequence[Panel]) -> Rise | None:
    """Measure how far the loss rises on planes that share their grid.

    None where the grid has the origin on its edge or outside, or too few points about it.
    """
    first = panels[0].plane
    radius = float(min(-first.a[0], first.a[-1], -first.b[0], first.b[-1])) / 2
    a, b = np.meshgrid(first.a, first.b)
    within = np.hypot(a, b) <= radius * (1 + 1e-9)
    if radius <= 0 or np.count_nonzero(within) < FEWEST:
        return None
    origins = [next(model.loss for model in panel.plane.models if model.role in ("mean", "origin")) for panel in panels]
    rises = [float(np.mean(panel.plane.loss[within] - origin)) for panel, origin in zip(panels, origins, strict=True)]
    norms = [float(panel.plane.attrs["origin_norm"]) for panel in panels]
    return Rise(radius, tuple(panel.heading for panel in panels), tuple(rises), tuple(origins), tuple(norms))


def rise_words(panels: Sequence[Panel]) -> str:
    """Say it in a sentence, with the flattest; "" where there is nothing to say."""
    rise = rise_of(panels)
    if rise is None:
        return ""
    where = f"{panels[0].data}, within" if panels[0].data else "within"
    told = in_a_row([f"{value:.3g} ({label})" for label, value in zip(rise.labels, rise.rises, strict=True)])
    words = (
        f"{where} {rise.radius:.3g} of the origin, along the same two directions, the loss rises on average by {told}"
    )
    least, next_one = sorted(rise.rises)[:2]
    if np.isfinite(rise.rises).all() and 0 <= least < APART * next_one:
        flattest = "the flatter one" if len(rise.rises) == 2 else "the flattest"
        words += f", so {rise.labels[rise.rises.index(least)]} is {flattest}"
    if max(rise.norms) > LARGER * min(rise.norms):
        norms = in_a_row([f"{norm:.3g}" for norm in rise.norms])
        words += f"; the origins have norms of {norms}, and the same distance is a smaller change of a larger one"
    return words[:1].upper() + words[1:]


def in_a_row(words: Sequence[str]) -> str:
    """List words in a sentence.

    >>> in_a_row(["0.9", "0.8", "1"]), in_a_row(["0.9"])
    ('0.9, 0.8 and 1', '0.9')
    """
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
