"""Training a sweep's runs in a process of their own: whatever ends it takes no other run with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...checkpoints import FedscopeError, real_path
from ...checkpoints.io.safe_write import own_folder, refuse_strange
from ..jobs.progress import Progress
from ..jobs.worker import LOG, Worker, last_words, wait_until_free
from .own_code import given_with, source_changed
from .plan import Plan
from .schedule import LOGS, RUNS, arguments_of, steps_of
from .state import failures_in, keep_failures, rounds_in, rounds_of

#: seconds between looks at a child's rounds
LOOK = 0.5


def train_sweep(plan: Plan, folder: Path, progress: Progress | None = None) -> None:
    """Train what a sweep still lacks; the caller holds its lock. Failures are kept next to the plan.

    Raises:
        KeyboardInterrupt: passed on once the run in progress has stopped; the same call goes on.
    """
    progress = progress or Progress()
    folder = real_path(folder)
    make_folders(folder, LOGS, RUNS)
    refuse_strange_logs(plan, folder)
    done, failures = _looked_at(plan, folder)
    complete = {run.name for run in plan.runs if (done[run.name] or 0) >= run.rounds}
    known = {name: text for name, text in failures_in(folder, plan).items() if name not in complete}
    progress.begin([run.name for run in plan.runs if run.name in complete])
    ended, code = set(complete), given_with(plan)
    with Worker(plan.directory) as worker:
        for step in steps_of(plan):
            name = step.run.name
            if name in ended:
                continue
            failure = failures.get(name)
            words = arguments_of(step, folder, done, None, code) if failure is None else None
            if words is not None and (failure := source_changed(step.run, code)) is None:
                log = folder / LOGS / f"{name}.log"
                elsewhere = _count_recorded(plan, done) - _own(plan, done, name)
                if done[name] is not None:
                    wait_until_free(folder / RUNS / name)
                worker.begin(words, log)
                while (status := worker.status(LOOK)) is None:
                    now = {**done, name: rounds_in(folder, name)}
                    progress.advance(elsewhere + _own(plan, now, name), plan.rounds)
                try:
                    done[name] = rounds_of(folder, step.run, plan.directory)
                    if status and (done[name] or 0) < step.last:
                        failure = last_words(log, status)
                except FedscopeError as error:
                    failure = str(error)
            if failure is None and step.until is not None:
                continue
            ended.add(name)
            known = {**known, name: failure} if failure else {key: text for key, text in known.items() if key != name}
            keep_failures(folder, known)
            progress.ended(name, failure)


def make_folders(folder: Path, *names: str) -> None:
    """Make the folders that a sweep writes into, where they are not there.

    Raises:
        FedscopeError: something else lies there.
    """
    for name in names:
        own_folder(folder / name)


def refuse_strange_logs(plan: Plan, folder: Path) -> None:
    """Refuse a sweep that could not write a run's log, before any run is trained.

    Raises:
        FedscopeError: something else than a file lies there.
    """
    for run in plan.runs:
        refuse_strange(folder / LOGS / f"{run.name}.log", LOG)


def _looked_at(plan: Plan, folder: Path) -> tuple[dict[str, int | None], dict[str, str]]:
    """Of each run its last recorded round, and of those that are damaged the sentence."""
    done: dict[str, int | None] = {}
    broken: dict[str, str] = {}
    for run in plan.runs:
        try:
            done[run.name] = rounds_of(folder, run, plan.directory)
        except FedscopeError as error:
            done[run.name], broken[run.name] = None, str(error)
    return done, broken


def _count_recorded(plan: Plan, done: Mapping[str, int | None]) -> int:
    """Count the recorded rounds of a plan; a shared history counts once."""
    return sum(own_rounds(run.after, done[run.name]) for run in plan.runs)


def _own(plan: Plan, done: Mapping[str, int | None], name: str) -> int:
    return own_rounds(plan.of(name).after, done[name])


def own_rounds(after: tuple[str, int] | None, done: int | None) -> int:
    """Count the recorded rounds of a run that are its own, and not of the one that it branches from."""
    return max(0, (done or 0) - (after[1] if after else 0))
