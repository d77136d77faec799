"""``fedscope ls --check``: are these runs as they were written?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..training.checking import Soundness


def check(paths: Sequence[Path], as_json: bool) -> None:
    """Check runs, and those below folders, and say of each what is wrong with it, all of it.

    Raises:
        FedscopeError: nothing to check; a run that is not sound.
    """
    from ..checkpoints import FedscopeError
    from ..training.checking import check_run
    from .progress import progress

    runs = list(dict.fromkeys(run for path in paths or [Path()] for run in runs_at(path)))
    if not runs:
        raise FedscopeError(f"there are no runs below {', '.join(map(str, paths)) or Path().resolve()}; give a run")
    broken, rows = [], []
    for run in runs:
        with progress(f"checking {run}") as report:
            found = check_run(run, report)
        if found.faults:
            broken.append(run)
        rows.append(row_of(run, found))
        if not as_json:
            click.echo("\n".join(lines_of(run, found)))
    if as_json:
        click.echo(json.dumps(rows))
    if broken:
        which = f"{broken[0]} is" if len(runs) == 1 else f"{len(broken)} of {len(runs)} runs are"
        raise FedscopeError(
            f"{which} damaged; restore what is named from a copy, or train again from the last sound round: "
            f"fedscope train --from {broken[0]}@ROUND"
        )


def runs_at(path: Path) -> list[Path]:
    """A run, or all runs below a folder as ``ls`` finds them, and those with a damaged ``run.json``.

    Raises:
        FedscopeError: no such folder.
    """
    from ..checkpoints import FedscopeError, find_run_folders

    if not path.is_dir():
        raise FedscopeError(f"{path} is neither a run nor a folder; give a run, or a folder that holds runs")
    return [path] if (path / "run.json").is_file() else find_run_folders(path)


def lines_of(run: Path, found: Soundness) -> Iterator[str]:
    """What the command prints of a run."""
    rounds = f"{found.rounds} round{'s' if found.rounds != 1 else ''}"
    if not found.faults:
        yield f"{run}  sound: {rounds}, {words_of(found)}"
        return
    count = len(found.faults)
    yield f"{run}  damaged: {rounds}, {words_of(found)}, {count} fault{'s' if count != 1 else ''}"
    for file, what in found.faults:
        yield f"  {file}: {what}"


def words_of(found: Soundness) -> str:
    """How much could be verified."""
    from ..checkpoints.errors import spans

    sums = f"{found.checksums:,} checksums"
    if not found.without:
        return sums
    if len(found.without) == found.rounds:
        return "no checksums (recorded without them: only sizes, types and sums were looked at)"
    return f"{sums}, none of rounds {spans(found.without)} (recorded without them)"


def row_of(run: Path, found: Soundness) -> dict[str, Any]:
    """A run for ``--json``."""
    return {
        "run": str(run),
        "sound": not found.faults,
        "rounds": found.rounds,
        "checksums": found.checksums,
        "without checksums": list(found.without),
        "faults": [{"file": file, "what": what} for file, what in found.faults],
    }
