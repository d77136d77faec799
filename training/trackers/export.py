"""A run's numbers and figures brought to a tracker, once or as they come."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...analysis.runs import RunLike, open_run
from ...checkpoints import FedscopeError, Run, expand_home, nearest
from ...checkpoints.io.keywords import speak_keywords
from ...checkpoints.io.locks import HeldError, hold
from ...checkpoints.io.shell_words import command_line
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.runs.folders import refuse_own_place
from ...command_line import answering
from .pictures import picture_files
from .snapshot import Snapshot, identity_of, numbers_state, snapshot_of
from .to_csv import CSVFile
from .to_mlflow import MLflow
from .to_trackio import Trackio
from .to_wandb import open_wandb
from .tracker import Tracker

TRACKERS = ("trackio", "wandb", "mlflow", "csv")
#: seconds between two looks
LOOK = 1.0
#: looks without a run's ``run.json`` after which it is no run any more, and not just being made anew
GONE = 10
#: in the run's folder while it is exported: a lock, so that two exports at a time do not bring the same points
LOCK = ".exporting"
#: of a tracker, where none is given
PROJECT = "fedscope"


@dataclass(frozen=True)
class Exported:
    """What a tracker has of a run.

    Attributes:
        where: the tracker's record, or the file.
        looked_at: the command or address that shows it; "" where there is none.
        rounds: how many have numbers there.
        figures: how many there are.
    """

    where: str
    looked_at: str
    rounds: int
    figures: int


@speak_keywords
def export_metrics(
    run: RunLike,
    to: str,
    *,
    file: Path | str | None = None,
    project: str = PROJECT,
    name: str | None = None,
    follow: bool = False,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Exported:
    """Bring a run's numbers and figures to a tracker: all columns of ``metrics.csv``, and the PNG files of
    ``RUN/figures``.

    The tracker is asked what it has, and gets the rest. So the same call goes on after a kill at any moment, and no
    round comes twice. Nothing leaves this machine unless the tracker's own settings say so. Returns where it is, and
    how many rounds and figures.

    Args:
        run: one; it may be training.
        to: ``trackio``, ``wandb``, ``mlflow`` or ``csv``.
        file: the table that ``csv`` writes.
        project: of the tracker; mlflow calls it an experiment.
        name: what the tracker calls the run; by default its folder's name.
        follow: stay, and bring what comes until the run has all of its rounds.
        force: replace a ``file`` that holds something else.
        progress: told how many rounds are there, and of how many; 0 where that is not known.

    Raises:
        FedscopeError: no run; one without numbers; another word; a ``project`` or ``name`` for ``csv``; the tracker is
            not installed, not logged in or fails; it has another run of this name; another export of the run goes on;
            the run is moved or removed while it is followed.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> fedscope.export_metrics(run, "csv", file=f"{folder.name}/table.csv").rounds
    2
    >>> folder.cleanup()
    """
    opened = open_run(run, "")
    path, called = opened.path, name or opened.name
    if not follow and not opened.rounds:
        opened.round("last")  # says that there is none
    if to == "csv":
        _refuse_of_trackers({"--project": None if project == PROJECT else project, "--name": name})
    tracker = _open(to, file, project, called, force)
    first = identity_of(opened)
    with _alone(path, to), _closed(tracker):
        while True:
            said = snapshot_of(opened, called)
            if said.identity != first:
                raise FedscopeError(
                    f"{path} was made anew while it was exported; export the new run under another --name"
                )
            if said.points:
                tracker.write(said)
            elif not follow or said.is_complete:
                raise FedscopeError(
                    f"{called} has no numbers to export: nothing was measured while it was recorded; measure it: "
                    f"{command_line('measure', path)}"
                )
            if progress is not None:
                progress(opened.rounds[-1] if opened.rounds else 0, opened.planned or 0)
            if not follow or said.is_complete:
                break
            opened = _look_again(opened)
    return _exported(tracker, said, to)


def _exported(tracker: Tracker, said: Snapshot, to: str) -> Exported:
    return Exported(tracker.where, tracker.looked_at, len(said.points), 0 if to == "csv" else len(said.pictures))


def _refuse_of_trackers(given: Mapping[str, str | None]) -> None:
    for flag, value in given.items():
        if value is not None:
            raise FedscopeError(
                f"{flag} {value} is for what goes to a tracker, and --to csv writes a table; leave it out"
            )


def _open(to: str, file: Path | str | None, project: str, name: str, force: bool) -> Tracker:
    if to not in TRACKERS:
        raise FedscopeError(f"--to {to} is unknown{nearest(to, TRACKERS) or ';'} there are {', '.join(TRACKERS)}")
    if (to == "csv") != (file is not None):
        how = "in: fedscope export runs/ima --to csv ima.csv" if answering.get() else "file='ima.csv'"
        raise FedscopeError(
            f"--to csv writes a table; name its file, as {how}"
            if to == "csv"
            else f"--to {to} writes no file; leave {file} out"
        )
    if file is None and force:
        raise FedscopeError(f"--force replaces a file, and --to {to} writes none; leave it out")
    if file is not None:
        path = expand_home(file)
        if path.suffix.lower() != ".csv":
            raise FedscopeError(f"{path} must end in .csv, for --to csv writes a table")
        if not path.absolute().parent.is_dir():
            raise FedscopeError(f"{path.parent} is not a folder; make it, or give another name")
        refuse_own_place(path)
        return CSVFile(path, force=force)
    return {"trackio": Trackio, "wandb": open_wandb, "mlflow": MLflow}[to](project, name)


def _look_again(before: Run) -> Run:
    """Wait until the run has changed; returns it as it is then.

    Raises:
        FedscopeError: it was moved or removed.
    """
    path, known = before.path, _state_of(before)
    missed = 0
    while True:
        time.sleep(LOOK)
        if not (path / "run.json").is_file():  # it may be just being made anew
            missed += 1
            if missed >= GONE:
                raise FedscopeError(
                    f"{path} is no run any more: it was moved or removed while it was exported; if it was moved, "
                    "export it from where it is now, which goes on"
                )
            continue
        missed = 0
        now = Run.open(path)
        if _state_of(now) != known:
            return now


def _state_of(run: Run) -> object:
    """What tells that there may be something new, without reading it: figures are megabytes."""
    return numbers_state(run), picture_files(run.path / "figures")


@contextmanager
def _closed(tracker: Tracker) -> Iterator[None]:
    """Close it, at Ctrl-C too: what it was given is to be there."""
    try:
        yield
    finally:
        tracker.close()


@contextmanager
def _alone(path: Path, to: str) -> Iterator[None]:
    """Be the only one who exports a run.

    Raises:
        FedscopeError: another process does.
    """
    lock = path / LOCK
    try:
        held = hold(lock, "the lock of an export")
    except HeldError as other:
        raise FedscopeError(f"{path} is being exported by {other.by}; {other.remedy or 'wait until it ends'}") from None
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        warn_user(f"{path} cannot be written, so nothing keeps a second export to {to} away; start one at a time")
        yield
        return
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        held.release()
