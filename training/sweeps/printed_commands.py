"""Commands of a sweep as they are printed: whoever pastes one may stand elsewhere than where the sweep was begun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...checkpoints import expand_home, real_path
from ...checkpoints.io.shell_words import command_line, quoted
from ..config.recipes import Tables
from .own_code import given_with, own_names, planned_code_words
from .schedule import commands_of

if TYPE_CHECKING:
    from .plan import Plan, PlannedRun


def printed_commands(
    plan: Plan, folder: Path, rounds: Mapping[str, int | None], given: Path | None = None
) -> Iterator[str]:
    """Yield all commands that are left, see :func:`~.schedule.commands_of`, each in the folder that its paths begin at
    where that is not this process's."""
    place = next((place for run in plan.runs if (place := place_of(plan, run)) is not None), None)
    out = folder if place is None else real_path(folder)
    for words in commands_of(plan, out, rounds, given):
        yield line_in(place, words)


def place_of(plan: Plan, run: PlannedRun) -> Path | None:
    """Return the folder that a run's command is to be given in; None where it does the same here."""
    directory = plan.directory
    if directory is None or directory.samefile(Path.cwd()):
        return None
    return directory if _is_relative(run.tables) or any(own_names(run)) else None


def line_in(place: Path | None, words: Sequence[object]) -> str:
    """Write a command of fedscope, given in a folder.

    >>> line_in(Path("/my runs"), ["train", "--resume", "a"])
    "(cd '/my runs' && fedscope train --resume a)"
    """
    line = command_line(*words)
    return line if place is None else f"(cd {quoted(place)} && {line})"


def _is_relative(tables: Tables) -> bool:
    """Check whether settings have a path that begins at the folder of the process.

    >>> _is_relative({"data": {"name": "npz:a.npz"}}), _is_relative({"data": {"name": "npz:/a.npz"}})
    (True, False)
    """
    data, model = tables.get("data", {}), tables.get("model", {})
    kind, _, places = str(data.get("name", "")).partition(":")
    paths = [part for part in (places.split("@") if kind == "text" else [places]) if part]
    paths += [str(model["weights"])] if model.get("weights") else []
    name = str(model.get("name", ""))
    paths += [name.removeprefix("hf:")] if name.startswith("hf:") else []
    return not all(expand_home(path).is_absolute() for path in paths)


def resuming(plan: Plan, folder: Path, typed: Plan | None = None) -> tuple[str, ...]:
    """Return the words that go on with a sweep, with all code of one's own that its plan names.

    Args:
        typed: a plan that has the code, where ``plan`` is from a file; by default ``plan``.
    """
    given = given_with(typed or plan, Path.cwd())
    words = [planned_code_words(run, given) for run in plan.runs]
    pairs = dict.fromkeys(pair for own in words for pair in zip(own[::2], own[1::2], strict=True))
    return ("sweep", "--resume", str(folder), *(word for pair in pairs for word in pair))
