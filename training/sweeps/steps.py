"""In which order a sweep's runs are trained, and with which commands, given what is there already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..settings.values import word_of
from .plan import GIVEN, Plan, Planned

RUNS, LOGS = "runs", "logs"


@dataclass(frozen=True)
class Step:
    """A run is trained on to a round.

    Attributes:
        run: whose; until: the round after which it waits for its branches, None for its last one.
    """

    run: Planned
    until: int | None = None

    @property
    def last(self) -> int:
        """The round that it ends with."""
        return self.until or self.run.rounds


def steps_of(plan: Plan) -> Iterator[Step]:
    """All steps, in order: a run that others branch from waits at their rounds, where all that they need is there."""
    branches: dict[str, list[tuple[int, Planned]]] = {}
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
                yield Step(run, waits)
            yield Step(other)
        yield Step(run)


def arguments_of(
    step: Step, folder: Path, rounds: Mapping[str, int | None], given: Path | None = None
) -> list[str] | None:
    """The words behind ``fedscope`` for a step; None where nothing is left to do.

    Args:
        folder: the sweep's.
        rounds: of each run the last recorded round, 0 where only its folder is there, None where there is none.
        given: the configuration that the sweep was given; by default its copy in the folder.
    """
    run, out = step.run, str(folder / RUNS / step.run.name)
    done = rounds[run.name]
    if done is not None and done >= step.last:
        return None
    wait = ["--until", str(step.until)] if step.until is not None else []
    if done is not None:
        return ["train", "--resume", out, *wait]
    if run.after is not None and rounds[run.after[0]] == run.after[1]:
        trunk = folder / RUNS / run.after[0]
        average = dict(run.tables["average"])
        words = ["--average", average.pop("method")]
        for key, value in average.items():
            words += ["--set", f"average.{key}={word_of(value)}"]
        return ["train", "--from", f"{trunk}@{run.after[1]}", *words, "--out", out, *wait]
    # a branch whose trunk has failed, or has gone on without it, is trained from its start
    words = [str(given or folder / GIVEN) if word == GIVEN else word for word in run.arguments]
    return ["train", *words, "--out", out, *wait]


def commands_of(
    plan: Plan, folder: Path, rounds: Mapping[str, int | None], given: Path | None = None
) -> Iterator[list[str]]:
    """The words of all commands that are left, in their order, if none fails; see :func:`arguments_of`."""
    there = dict(rounds)
    for step in steps_of(plan):
        words = arguments_of(step, folder, there, given)
        if words is not None:
            yield words
            there[step.run.name] = step.last
