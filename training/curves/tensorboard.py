"""Curves as TensorBoard's event files: a folder a run, and an event a round."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ...checkpoints import FedscopeError, Run, real_path
from ...checkpoints.io.atomic import disk_is_full
from ...checkpoints.io.errors import DiskFullError, list_few
from ...checkpoints.io.locks import HeldError, hold
from .run_curve import Curve, curve_of
from .tags import tagged, timestamp, walls_of

#: always the same name, so that writing again finds what is there; TensorBoard reads what has ``tfevents`` in its name
FILE = "events.out.tfevents.fedscope"
#: what stands for the file's lock where the file system has none: not named like it, or TensorBoard would read it
LOCK = ".fedscope.lock"
#: seconds to wait for another command, which needs no longer than it takes to write a file
PATIENCE = 20.0
#: the first event of a file, which tells readers how to take the others
_VERSION = "brain.Event:2"


def events_of(curve: Curve, created: str | None) -> bytes:
    """Write the event file of a run: what it is, then an event a round with all numbers of that round.

    Steps are rounds. A round's wall time is when the run was created plus the ``seconds`` of all rounds until then, so
    pauses do not count and a copied run gives the same bytes. Values are float32, as of every scalar of TensorBoard. An
    empty cell is no value; an infinite loss stays one. ``deployed/test_loss`` and ``deployed/test_error`` are of the
    model that a user would deploy, as ``curves`` draws them: the averaged one where there is one.

    A run that has more rounds gives the same bytes, and more behind them.

    Args:
        created: UTC, as ``run.json`` says it; without it, time counts from 1970.

    Raises:
        FedscopeError: tensorboard is not installed.
    """
    event, summary, writer = _library()
    columns = tagged(curve)
    walls = walls_of(curve, created)
    content = io.BytesIO()
    records = writer(content)
    records.write(event(wall_time=timestamp(created), file_version=_VERSION).SerializeToString())
    for i, (number, wall) in enumerate(zip(curve.round.tolist(), walls.tolist(), strict=True)):
        measured = {tag: float(values[i]) for tag, values in columns.items() if not math.isnan(values[i])}
        if measured:
            values = [summary.Value(tag=tag, simple_value=value) for tag, value in measured.items()]
            records.write(event(wall_time=wall, step=number, summary=summary(value=values)).SerializeToString())
    return content.getvalue()


def write_events(curve: Curve, created: str | None, folder: Path, *, force: bool = False) -> Path:
    """Write a run's events into its folder, or those that are missing behind those that are there; returns the file.

    What a killed or interrupted call has left is the beginning of what this one writes, so no round comes twice. Two
    calls at a time take turns.

    Args:
        force: whether other events in this file are replaced. Other files of the folder are never touched.

    Raises:
        FedscopeError: tensorboard is not installed; the run has no numbers; the file holds other events; event files of
            another program lie in its folder; the folder cannot be written to; the disk is full.
    """
    if curve.is_empty:
        raise FedscopeError(
            f"{curve.run} has no numbers for TensorBoard: nothing was measured while it was recorded; leave it out"
        )
    content = events_of(curve, created)
    with _open_events(folder) as file:
        there = file.read()
        if not content.startswith(there) and not there.startswith(content):
            if not force:
                raise FedscopeError(
                    f"{folder / FILE} holds other events than those of {curve.run}; give another --tensorboard, or "
                    "--force to replace it"
                )
            there = b""
            file.seek(0)
            file.truncate()
        file.write(content[len(there) :])
    return folder / FILE


@contextmanager
def _open_events(folder: Path) -> Iterator[BinaryIO]:
    """A run's event file, made where there is none, for one writer at a time.

    Raises:
        FedscopeError: as :func:`write_events`.
    """
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for other in sorted(folder.iterdir()):
            if "tfevents" in other.name and other.name != FILE:
                raise FedscopeError(
                    f"{other} was not written by fedscope, and TensorBoard would show both as one run; give another "
                    "--tensorboard"
                )
        held = hold(path, "a file of events", folder / LOCK, wait=PATIENCE)
        try:
            with os.fdopen(held.descriptor, "r+b", closefd=False) as file:
                yield file
        finally:
            held.release()
    except HeldError as other:
        remedy = other.remedy or "wait until it ends"
        raise FedscopeError(f"{path} is being written by {other.by}; {remedy}") from None
    except OSError as error:
        if disk_is_full(error):
            remedy = "make room, and give the same command again"
            raise DiskFullError(f"{path} cannot be written: the disk is full; {remedy}") from error
        raise FedscopeError(f"{path} cannot be written: {error.strerror}; give another --tensorboard") from error


def export_events(runs: Sequence[Run], folder: Path, *, force: bool = False) -> list[Path]:
    """Write the events of runs as they are now; returns the files.

    Raises:
        FedscopeError: as :func:`write_events`; a run without rounds; one that is given twice.
    """
    for run in runs:
        run.round("last")  # says that there is none
    places = folders_of([run.path for run in runs], folder)
    if len(set(places)) < len(places):
        names = list_few(run.path for run in runs)
        raise FedscopeError(f"{names}: a run is given twice; give each once")
    return [
        write_events(curve_of(run), run.info.get("created"), place, force=force)
        for run, place in zip(runs, places, strict=True)
    ]


def folders_of(runs: Sequence[Path], folder: Path) -> list[Path]:
    """Name the folder for the events of each run: a folder of the run's name; of runs of one name, of their paths below
    the folder that all of them share.

    >>> [path.as_posix() for path in folders_of([Path("/runs/fma"), Path("/runs/ima")], Path("events"))]
    ['events/fma', 'events/ima']
    >>> [path.as_posix() for path in folders_of([Path("/a/runs/fma"), Path("/b/runs/fma")], Path("events"))]
    ['events/a/runs/fma', 'events/b/runs/fma']
    """
    names = [path.name if path.name not in ("", "..") else real_path(path).name for path in runs]
    if len(set(names)) < len(names):
        whole = [real_path(path) for path in runs]
        shared = os.path.commonpath([path.parent for path in whole])
        names = [str(path.relative_to(shared)) for path in whole]
    return [folder / name for name in names]


def _library() -> tuple[Any, Any, Callable[[io.BytesIO], Any]]:
    """TensorBoard's own classes of an event, of its values, and of what writes it.

    Raises:
        FedscopeError: tensorboard is not installed.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        raise FedscopeError(
            '--tensorboard takes tensorboard, which is not installed; install it: pip install "fedscope[tensorboard]"'
        ) from None
    return Event, Summary, RecordWriter
