"""Events of runs that still train, kept up to date: the runs are read, and whatever trains them knows nothing of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ...checkpoints import Run
from .run_curve import curve_of
from .tensorboard import folders_of, write_events

#: seconds between two looks; TensorBoard itself looks every 5
LOOK = 1.0


def follow(
    runs: Mapping[Path, int | None],
    folder: Path,
    *,
    force: bool = False,
    report: Callable[[int, int], None] = lambda done, of: None,
    look: float = LOOK,
) -> list[Path]:
    """Write events as rounds come, until every run has all of its rounds; returns the files.

    A run that is not there yet is waited for. What was written stays whatever ends this, and the same call goes on.

    Args:
        runs: how many rounds each is to have; None where its own configuration says it. A run of another program does
            not say it, so with one of these this ends by Ctrl-C alone.
        force: as of :func:`~fedscope.training.curves.tensorboard.write_events`, for what is there when this begins.
        report: is told how many rounds are there, and of how many; 0 where that is not known.
        look: seconds between two looks at the runs.

    Raises:
        FedscopeError: as :func:`~fedscope.training.curves.tensorboard.write_events`; a damaged run; one that was made
            anew meanwhile.
        KeyboardInterrupt: passed on.
    """
    places = dict(zip(runs, folders_of(list(runs), folder), strict=True))
    planned, written, files = dict(runs), dict.fromkeys(runs, (0, 0)), {}
    while True:
        for path in runs:
            if not (path / "run.json").is_file():
                continue
            run = Run.open(path)
            if planned[path] is None:
                planned[path] = run.planned
            if not run.rounds or written[path] == (len(run.rounds), run.rounds[-1]):
                continue
            curve = curve_of(run)
            # of a run of another program, numbers may come with a later round
            if not curve.is_empty or _is_complete(run.rounds[-1], planned[path]):
                files[path] = write_events(
                    curve, run.info.get("created"), places[path], force=force and path not in files
                )
            written[path] = len(run.rounds), run.rounds[-1]
        known = [rounds for rounds in planned.values() if rounds is not None]
        report(sum(last for _, last in written.values()), sum(known) if len(known) == len(runs) else 0)
        if all(_is_complete(last, planned[path]) for path, (_, last) in written.items()):
            return [files[path] for path in runs]
        time.sleep(look)


def _is_complete(last: int, planned: int | None) -> bool:
    return planned is not None and last >= planned
