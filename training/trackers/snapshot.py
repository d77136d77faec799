"""What a run has to tell a tracker: its numbers by round, its figures, its settings."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...checkpoints import Run
from ..curves.run_curve import curve_of
from ..curves.tags import tagged, walls_of
from .pictures import picture_files

#: in a tracker's record of a run: which run it is of
IDENTITY = "fedscope.identity"


@dataclass(frozen=True)
class TrackedPoint:
    """A round's numbers.

    Attributes:
        wall: seconds since 1970, as of :func:`~fedscope.training.curves.tags.walls_of`.
        values: by tag; what was not measured is left out.
    """

    round: int
    wall: float
    values: Mapping[str, float]


@dataclass(frozen=True)
class Picture:
    """A figure of a run's folder, by its name without an extension."""

    name: str
    content: bytes

    @property
    def digest(self) -> str:
        """What tells it from another picture of this name."""
        return hashlib.sha256(self.content).hexdigest()[:16]


@dataclass(frozen=True)
class Snapshot:
    """A run as it is now.

    Attributes:
        name: what the tracker calls it.
        identity: tells it from other runs, of the same name too.
        settings: its configuration, by ``section.key``, and :data:`IDENTITY`.
        is_complete: it has all of the rounds that it is to have.
    """

    name: str
    identity: str
    created: str | None
    settings: Mapping[str, str | int | float | bool]
    points: tuple[TrackedPoint, ...]
    pictures: tuple[Picture, ...]
    is_complete: bool

    @property
    def last(self) -> int:
        """The last round with numbers; 0 where there is none."""
        return self.points[-1].round if self.points else 0


def snapshot_of(run: Run, name: str) -> Snapshot:
    """Look at a run; nothing of it is changed."""
    curve, created = curve_of(run), run.info.get("created")
    columns = tagged(curve)
    points = []
    for i, (number, wall) in enumerate(zip(curve.round.tolist(), walls_of(curve, created).tolist(), strict=True)):
        values = {tag: float(column[i]) for tag, column in columns.items() if not math.isnan(column[i])}
        if values:
            points.append(TrackedPoint(number, wall, values))
    identity = identity_of(run)
    settings = {**flattened(run.config or {}), IDENTITY: identity}
    complete = run.planned is not None and bool(run.rounds) and run.rounds[-1] >= run.planned
    return Snapshot(name, identity, created, settings, tuple(points), pictures_in(run.path / "figures"), complete)


def identity_of(run: Run) -> str:
    """What tells a run from others: its own identity; of one that has none, when it was made, and of which models."""
    told = run.identity or json.dumps([run.info.get(name) for name in ("created", "layout", "clients")], default=str)
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def numbers_state(run: Run) -> tuple[object, ...]:
    """What tells that a run may have other numbers than before, without reading them."""
    times = []
    for name in ("run.json", "metrics.csv", "measured.json"):
        with suppress(OSError):
            times.append((name, (run.path / name).stat().st_mtime_ns))
    return run.identity, run.rounds, tuple(times)


def flattened(tables: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """Settings by ``section.key``; lists as JSON.

    >>> flattened({"client": {"lr": 0.1, "hidden": [6, 4]}, "title": "x"})
    {'client.lr': 0.1, 'client.hidden': '[6, 4]', 'title': 'x'}
    """
    flat: dict[str, str | int | float | bool] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{inner}": one for inner, one in flattened(value).items()}
        else:
            flat[key] = value if isinstance(value, str | int | float | bool) else json.dumps(value, default=str)
    return flat


def pictures_in(folder: Path) -> tuple[Picture, ...]:
    """Return the figures of a folder, by name; one that was just removed is seen at the next look, or not."""
    read = [(one.name, one.read()) for one in picture_files(folder)]
    return tuple(Picture(name, content) for name, content in read if content is not None)
