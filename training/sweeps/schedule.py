"""The order of a sweep's training: which runs share first rounds, and which commands are left to give."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..methods.average_formula import begins_of
from ..settings.values import format_value
from .own_code import GivenAs, given_with, planned_code_words

if TYPE_CHECKING:
    from ..config.config import Config
    from ..methods.base import AverageMethod
    from .plan import Plan, PlannedRun

#: the configuration that a sweep was given, kept in its folder
GIVEN = "config.toml"
RUNS, LOGS = "runs", "logs"
#: of runs of fedscope's own code
NO_CODE: Mapping[str, GivenAs] = MappingProxyType({})


@dataclass(frozen=True)
class SharedHistory:
    """A run goes on from a round of another one.

    Attributes:
        trunk: the position of the other run; round: the last one that both have.
    """

    trunk: int
    round: int


def shared_histories(configs: Sequence[Config]) -> list[SharedHistory | None]:
    """For each run the one that it can branch from, bit for bit as if trained alone; None: trained from its start.

    Runs share rounds where their averages alone differ: before an average begins nothing depends on it (IMA before
    t_s is FMA). Of such runs the one whose average begins last, and of these the one that reaches back farthest, is
    trained from its start, because all others can branch from it before theirs begins. One that leaves out a setting
    which that one has is trained from its start, too: a branch has all settings that it does not change.

    >>> from fedscope.training.config.config import Config
    >>> both = [Config.read({"average": {"method": name}, "run": {"rounds": 20}}) for name in ("none", "ima")]
    >>> shared_histories(both)
    [SharedHistory(trunk=1, round=14), None]
    """
    groups: dict[str, list[int]] = {}
    for i, config in enumerate(configs):
        tables = config.tables()
        del tables["average"]
        groups.setdefault(json.dumps(tables, sort_keys=True), []).append(i)
    found: list[SharedHistory | None] = [None] * len(configs)
    for members in groups.values():
        starts = {i: begins_of(configs[i].average) for i in members}
        averages = {i: start for i, start in starts.items() if start is not None}
        if not averages:
            continue  # runs without an average are the same run, however often they are asked for
        trunk = max(averages, key=lambda i: (averages[i], configs[i].average.reaches_back()))
        for i in members:
            start = starts[i]
            round = (averages[trunk] if start is None else start) - 1
            if i != trunk and round >= 1 and _can_branch(configs[i].average, configs[trunk].average):
                found[i] = SharedHistory(trunk, round)
    return found


def _can_branch(own: AverageMethod, trunk: AverageMethod) -> bool:
    """Check whether the history of a run with one average holds what another needs, and its settings can be
    replaced."""
    left_out = set(trunk.table()) - set(own.table()) if type(own) is type(trunk) else set()
    return own.reaches_back() <= trunk.reaches_back() and not left_out


@dataclass(frozen=True)
class TrainStep:
    """A run is trained on to a round.

    Attributes:
        run: whose; until: the round after which it waits for its branches, None for its last one.
    """

    run: PlannedRun
    until: int | None = None

    @property
    def last(self) -> int:
        """The round that it ends with."""
        return self.until or self.run.rounds


def steps_of(plan: Plan) -> Iterator[TrainStep]:
    """All steps, in order: a run that others branch from waits at their rounds, where all that they need is there."""
    branches: dict[str, list[tuple[int, PlannedRun]]] = {}
    for run in plan.runs:
        if run.after is not None:
            branches.setdefault(run.after[0], []).append((run.after[1], run))
    for run in plan.runs:
        if run.after is not None:
            continue
        waits = 0
        for round, other in sorted(branches.get(run.name, ()), key=lambda branch: branch[0]):
            if round > waits:
                waits = round
                yield TrainStep(run, waits)
            yield TrainStep(other)
        yield TrainStep(run)


def arguments_of(
    step: TrainStep,
    folder: Path,
    rounds: Mapping[str, int | None],
    given: Path | None = None,
    code: Mapping[str, GivenAs] = NO_CODE,
) -> list[str] | None:
    """Return the words behind ``fedscope`` for a step; None where nothing is left to do.

    Args:
        folder: the sweep's.
        rounds: of each run the last recorded round, 0 where only its folder is there, None where there is none.
        given: the configuration that the sweep was given; by default its copy in the folder.
        code: of the user's own that it was given.
    """
    run, out = step.run, str(folder / RUNS / step.run.name)
    done = rounds[run.name]
    if done is not None and done >= step.last:
        return None
    wait = ["--until", str(step.until)] if step.until is not None else []
    own = planned_code_words(run, code)
    if done is not None:
        return ["train", "--resume", out, *own, *wait]
    if run.after is not None and rounds[run.after[0]] == run.after[1]:
        trunk = folder / RUNS / run.after[0]
        average = dict(run.tables["average"])
        words = ["--average", average.pop("method")]
        for key, value in average.items():
            words += ["--set", f"average.{key}={format_value(value)}"]
        return ["train", "--from", f"{trunk}@{run.after[1]}", *words, *own, "--out", out, *wait]
    # a branch whose trunk has failed, or has gone on without it, is trained from its start
    words = [str(given or folder / GIVEN) if word == GIVEN else word for word in run.arguments]
    return ["train", *words, *own, "--out", out, *wait]


def rounds_before(plan: Plan, rounds: Mapping[str, int | None]) -> dict[str, int]:
    """Return how many rounds of each run are there before its own command: recorded ones, or those of the run that it
    branches from; 0 where that one is past them, so that it is trained from its start.

    Args:
        rounds: of each run the last recorded round, None where there is none.
    """
    there, found = dict(rounds), dict[str, int]()
    for step in steps_of(plan):
        run, done = step.run, there[step.run.name]
        branches = run.after is not None and there[run.after[0]] == run.after[1]
        found.setdefault(run.name, done if done is not None else run.after[1] if run.after and branches else 0)
        there[run.name] = max(done or 0, step.last)
    return found


def commands_of(
    plan: Plan, folder: Path, rounds: Mapping[str, int | None], given: Path | None = None
) -> Iterator[list[str]]:
    """Yield the words of all commands that are left, in their order, if none fails; see :func:`arguments_of`."""
    there, code = dict(rounds), given_with(plan)
    for step in steps_of(plan):
        words = arguments_of(step, folder, there, given, code)
        if words is not None:
            yield words
            there[step.run.name] = step.last
