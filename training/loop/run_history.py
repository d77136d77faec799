"""The history of a run, which configuration made which rounds: its own, or, where it branches from another, first the
history's; and the history's files, which never change."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError, Run, real_path, write_durably
from ...checkpoints.rounds.run_identity import identities_upto
from ..build import config_of
from ..config.config import Config
from ..settings.registry import method_name
from ..user_code.provided_code import with_code

SECTIONS = ("client", "server", "average")


def branch_of(run: Run) -> Mapping[str, Any]:
    """Read what ``run.json`` says of a branch: the ``run`` and ``round`` that it branches from, and its ``history``.

    ``history`` is a list of [last round, configuration], oldest first.
    """
    return {"run": "", "round": 0, "created": "", "history": [], **run.info.get("branch", {})}


def segments(run: Run) -> list[tuple[float, Config]]:
    """Return the last round that each configuration made, and the configuration, oldest first; the run's own has no
    end."""
    try:
        tables = [(float(last), with_code(tables, run.code)) for last, tables in branch_of(run)["history"]]
        history = [(last, Config.recorded(known)) for last, known in tables]
    except FedscopeError as error:
        raise FedscopeError(f"{run.path / 'run.json'}, the history of the branch: {error}") from None
    return [*history, (inf, config_of(run))]


def config_at(run: Run, round: int) -> Config:
    """Return the configuration that made a round."""
    return next(config for last, config in segments(run) if round <= last)


def history_upto(run: Run, round: int) -> list[list[Any]]:
    """Return the history of a branch from a round of a run, as ``run.json`` holds it."""
    parts: list[list[Any]] = []
    for last, config in segments(run):
        if last >= round:
            return [*parts, [round, config.tables()]]
        parts.append([int(last), config.tables()])
    return parts


def goes_on(section: str, before: Config, after: Config) -> bool:
    """Check whether a method goes on with the state that the method before it left.

    A client's or a server's does where it is the same method, whatever its settings. An average's state depends on its
    settings: it is worked out from the history unless all are the same.
    """
    one, other = getattr(before, section), getattr(after, section)
    return one == other if section == "average" else method_name(one) == method_name(other)


def fresh_sections(run: Run, round: int, config: Config) -> list[str]:
    """Return the methods of a configuration that do not go on with the state that a run has after a round."""
    before = config_at(run, round)
    return [section for section in SECTIONS if not goes_on(section, before, config)]


def method_start(run: Run, section: str, round: int) -> int:
    """Return the round after which the method that made a round began: 0, or where the history changed to it."""
    start, parts = 0, segments(run)
    for (last, before), (_, after) in pairwise(parts):
        if last < round and not goes_on(section, before, after):
            start = int(last)
    return start


def copy_history(source: Run, round: int, out: Path) -> None:
    """Bring a run's first rounds into another run: linked where the file system can, else copied.

    What is there already stays; a file that is visible is whole.

    Raises:
        FedscopeError: the source lacks a round.
    """
    refuse_gaps(source, round)
    for t in range(1, round + 1):
        # what is kept beside a round comes first: a round that is visible can be gone on from
        for place in reversed(source.files_of(t)):
            target = out / place.path.relative_to(source.path)
            if target.exists():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(real_path(place.path), target)  # a link as such may lead elsewhere from here
            except FileNotFoundError:
                if place.is_round:
                    raise
                continue  # the source trains on, and does not need it any more
            except OSError:
                with write_durably(target) as temporary:
                    shutil.copyfile(place.path, temporary)


def refuse_gaps(source: Run, round: int) -> None:
    """A branch needs all rounds of its history.

    Raises:
        FedscopeError: the source lacks a round.
    """
    there = set(source.rounds)
    missing = [t for t in range(1, round + 1) if t not in there]
    if missing:
        raise FedscopeError(f"{source.path} lacks round {missing[0]}; a branch needs all rounds up to {round}")


def complete_history(run: Run, refuse_damaged: Callable[[Run, Sequence[int]], None]) -> None:
    """Bring in what a branch still lacks of its history, because its making was interrupted.

    Args:
        refuse_damaged: refuses rounds that are not what was written.

    Raises:
        FedscopeError: the run that was branched from is gone, or another one stands in its place; a damaged round.
    """
    branch = branch_of(run)
    last = run.rounds[-1] if run.rounds else 0
    if last >= branch["round"]:
        return
    try:
        source = Run.open(branch["run"])
    except FedscopeError:
        raise FedscopeError(
            f"{run.path} has {last} of the {branch['round']} rounds of its history, and {branch['run']}, which it "
            "branches from, is not there any more; restore it, or train again"
        ) from None
    if source.info.get("created") != branch["created"] or identities_upto(source.info, branch["round"]) != branch.get(
        "identities", identities_upto(source.info, branch["round"])
    ):
        raise FedscopeError(
            f"{run.path} has {last} of the {branch['round']} rounds of its history, and {branch['run']}, which it "
            "branches from, has been replaced since; train again"
        )
    refuse_gaps(source, branch["round"])
    refuse_damaged(source, range(last + 1, branch["round"] + 1))
    copy_history(source, branch["round"], run.path)
