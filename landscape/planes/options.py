"""How a plane is measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from ..evaluation.compute import Compute
from ..evaluation.samples import Samples
from ..evaluation.visiting import Progress
from .result import Plane

Range = tuple[float, float]
#: asked for a picture of what there is, it makes one: None before there is anything to see
SoFar = Callable[[], Plane | None]


class Options(TypedDict, total=False):
    """How a plane is measured.

    Attributes:
        grid: points a side, or (points along a, points along b); default 51.
        margin: room round all the models, as a share of their greater extent; the default range is a square.
        ranges: ((a from, a to), (b from, b to)) instead.
        adaptive: measure at most so great a share of the points, and interpolate the others; see :func:`refine`.
        normalization: ``interpolate``, ``re-estimate`` or ``keep``; see :class:`Normalization`.
        calibration: the samples on which statistics are re-estimated.
        compute: device, precision and workers.
        progress: called with (points done, points in all).
        preview: called after every point with a function that returns what there is so far, on the finest grid of
            which every point has been measured (of the first data set).
        partial: where finished points are kept; the same call goes on from there. The caller removes the file once
            the result is saved.
    """

    grid: int | tuple[int, int]
    margin: float
    ranges: tuple[Range, Range] | None
    adaptive: float | None
    normalization: str
    calibration: Samples | None
    compute: Compute
    progress: Progress | None
    preview: Callable[[SoFar], None] | None
    partial: Path | None
