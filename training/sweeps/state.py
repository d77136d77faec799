"""The state of a sweep: the rounds of its runs that are there, and why some failed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError, Run, write_durably
from ...checkpoints.io.shell_words import command_line
from ...checkpoints.io.untrusted import read_json
from ...checkpoints.runs.run import visible_rounds
from ...results import plain
from ..config.recipes import Tables
from ..settings.values import format_value
from ..user_code.kept_imports import other_import
from ..user_code.kept_source import sources_in
from .own_task import planned_imports
from .plan import Plan, PlannedRun
from .printed_commands import resuming
from .same_settings import is_same_setting
from .schedule import RUNS

FAILURES = "failures.json"


def rounds_of(folder: Path, planned: PlannedRun, directory: Path | None = None) -> int | None:
    """Return the last recorded round of a run of a sweep, 0 where there is none yet; None where there is no run.

    Args:
        directory: that relative paths of the plan begin at, by default this process's.

    Raises:
        FedscopeError: a damaged run, or another one in its place.
    """
    path = folder / RUNS / planned.name
    if not (path / "run.json").exists():
        return None
    run = Run.open(path)
    _refuse_other(run, planned, directory)
    return run.rounds[-1] if run.rounds else 0


def rounds_in(folder: Path, name: str) -> int:
    """Return the same by the names of files alone, of a run that trains."""
    rounds: Sequence[int] = visible_rounds(folder / RUNS / name)
    return max(rounds, default=0)


def _refuse_other(run: Run, planned: PlannedRun, directory: Path | None) -> None:
    """Refuse a run with other settings than the plan's.

    Raises:
        FedscopeError: names the first of them.
    """
    for (kind, own), sources in sources_in(run).items():
        name = f"{kind}={own}"
        source, imported = planned.code.get(name), planned_imports(planned.code, name)
        if source and any(entry.get("sha256", "") != source or other_import(entry, imported) for entry in sources):
            raise FedscopeError(
                f"{run.path} was trained with another source of {name.replace('=', ' ', 1)} than the sweep began with; "
                "move it elsewhere, restore the source, and it is trained again"
            )
    if _plainly_equal(run.config or {}, planned.tables, directory):
        return
    from ..build import config_of  # loads torch, which a table does not need

    recorded, meant = config_of(run).tables(), planned.config.tables()
    for section, table in meant.items():
        # what depends on the method comes after it
        for key in sorted({*table, *recorded[section]}, key=lambda key: (key not in ("method", "name"), key)):
            old, new = recorded[section].get(key), table.get(key)
            if not is_same_setting((section, key), old, new, directory, planned.config.data.name):
                raise FedscopeError(
                    f"{run.path} is not the run that the sweep's plan has there: its {section}.{key} is "
                    f"{format_value(old)}, not {format_value(new)}; move it elsewhere, and it is trained again"
                )


def _plainly_equal(recorded: Tables, meant: Tables, directory: Path | None) -> bool:
    """Check whether a run's file has what the plan has, value by value; older versions wrote less."""

    def said(tables: Tables) -> dict[tuple[str, str], Any]:
        found = {(section, key): value for section, table in plain(tables).items() for key, value in table.items()}
        return {place: value for place, value in found.items() if value is not None}

    one, other = said(recorded), said(meant)
    data = str(other.get(("data", "name"), ""))
    places = one.keys() | other.keys()
    return all(is_same_setting(place, one.get(place), other.get(place), directory, data) for place in places)


def failures_in(folder: Path, plan: Plan) -> dict[str, str]:
    """Return the sentences with which runs of a sweep failed when they were trained last, by name.

    Raises:
        FedscopeError: a damaged file of them.
    """
    path = folder / FAILURES
    if not path.is_file():
        return {}
    remedy = f"remove it, and train again: {command_line(*resuming(plan, folder))}"
    said = read_json(path, "the failures of a sweep", remedy)
    if not isinstance(said, dict):
        raise FedscopeError(f"{path} is damaged: it is no JSON object; {remedy}")
    known = {run.name for run in plan.runs}
    return {str(name): str(text) for name, text in said.items() if name in known}


def keep_failures(folder: Path, failures: Mapping[str, str]) -> None:
    """Write them down, or remove the file where there is none."""
    if not failures:
        (folder / FAILURES).unlink(missing_ok=True)
        return
    with write_durably(folder / FAILURES) as temporary:
        temporary.write_text(json.dumps(dict(failures), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
