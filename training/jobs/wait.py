"""Wait for jobs: find those of an earlier command, send the missing ones, and say how each ended."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count as count_from
from pathlib import Path

from ...checkpoints import FedscopeError
from ...checkpoints.io.safe_write import refuse_linked
from .environment import Environment
from .job import JobSpec, SentJob
from .launchers import Launcher, UnknownError, known_launcher
from .progress import Progress
from .records import JobOutcome, JobRecord, outcomes_in


@dataclass
class _Sent:
    """A job that may still run; ``over`` is when it was first seen to have ended, and how."""

    record: JobRecord
    over: tuple[float, str] | None = None


def wait_for_jobs(
    specs: Sequence[JobSpec],
    by: Launcher,
    folder: Path,
    progress: Progress,
    *,
    count: Callable[[], tuple[int, int]] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, str | None]:
    """Have work done by jobs. Gives the sentence of each that failed, None of each that is complete.

    What is complete on disk is left alone. A job of an earlier command that waits or runs is waited for; where it has
    ended without completing its work, another one is sent. A job that ends so while this waits has failed: the same
    command sends another.

    Args:
        folder: of the records; the caller holds a lock on it, so that two commands do not send the same.
        count: how much of all is done, asked for at each look; by default how many pieces.

    Raises:
        FedscopeError: jobs of another launcher still run; nothing is known of earlier jobs; the scheduler refuses.
        KeyboardInterrupt: passed on; jobs go on.
    """
    refuse_linked(folder)
    folder.mkdir(parents=True, exist_ok=True)
    environment = Environment.here()
    ended: dict[str, str | None] = {}
    for spec in specs:
        complete, damage = _looked_at(spec)
        if damage is not None:
            _tell(progress, ended, spec.name, damage)
        elif complete:
            ended[spec.name] = None
    sent = _find_jobs(specs, by, folder, ended)
    if sent:
        progress.note(f"{_jobs(len(sent))} of an earlier command still {'run' if len(sent) > 1 else 'runs'}")
    of = {spec.name: spec for spec in specs}
    asked, answers = clock(), True
    try:
        while len(ended) < len(specs):
            if clock() - asked >= by.pace.ask:
                answers = _ask(by, sent, clock(), progress, answers)
                asked = clock()
            outcomes = outcomes_in(folder, {name: job.record.token for name, job in sent.items()})
            for name in list(sent):
                over = sent[name].over
                late = over is not None and clock() - over[0] >= by.pace.grace
                how = _how_ended(of[name], sent[name], outcomes.get(name), late=late)
                if how is None:
                    continue
                del sent[name]
                failure, outcome = how[0], outcomes.get(name)
                if outcome is not None and (caution := environment.caution(name, outcome.capability)):
                    progress.note(caution)
                _tell(progress, ended, name, failure)
            ready = [
                spec
                for spec in specs
                if spec.name not in ended and spec.name not in sent and spec.waits_for() in {None, *ended}
            ]
            room = len(ready) if by.at_once is None else max(0, by.at_once - len(sent))
            if ready[:room]:
                taken = [job.record.place for job in sent.values()]
                for name, record in _send(ready[:room], by, folder, environment, taken).items():
                    sent[name] = _Sent(record)
            progress.advance(*(count() if count else (len(ended), len(specs))))
            if len(ended) < len(specs):
                time.sleep(by.pace.look)
    except KeyboardInterrupt:
        _say_left([job.record.id for job in sent.values() if job.record.id], by, progress)
        raise
    return ended


def _say_left(ids: Sequence[str], by: Launcher, progress: Progress) -> None:
    """Say of jobs that go on how they are collected, and how they are ended."""
    if ids:
        go = "go on by themselves" if len(ids) > 1 else "goes on by itself"
        note = f"{_jobs(len(ids))} {go}; the same command collects what they do, and this ends them: {by.to_end(ids)}"
        progress.note(note)


def refuse_live_jobs(names: Sequence[str], folder: Path, remedy: str) -> None:
    """Refuse to do by oneself what jobs are doing.

    Args:
        remedy: the end of the sentence.

    Raises:
        FedscopeError: names the jobs.
    """
    records = {name: record for name in names if (record := JobRecord.read(folder, name)) is not None}
    for by in sorted({record.launcher for record in records.values()}):
        own = {name: record for name, record in records.items() if record.launcher == by}
        own = _not_ended(own, folder)
        if not own:
            continue
        asked = known_launcher(by)
        alive = {name: id for name, (id, how) in _job_states(asked, own, folder).items() if how is None}
        if alive:
            first = next(iter(alive))
            work = "work" if len(alive) > 1 else "works"
            raise FedscopeError(
                f"{_jobs(len(alive))} of --launcher {by} still {work} here, on {first} for one; {remedy}, or end them: "
                f"{asked.to_end(alive.values())}"
            )


def _not_ended(records: Mapping[str, JobRecord], folder: Path) -> dict[str, JobRecord]:
    """Those whose job has not said how it ended."""
    if not records:
        return {}
    over = outcomes_in(folder, {name: record.token for name, record in records.items()})
    return {name: record for name, record in records.items() if name not in over}


def _job_states(by: Launcher, records: Mapping[str, JobRecord], folder: Path) -> dict[str, tuple[str, str | None]]:
    try:
        return by.states(records)
    except UnknownError as error:
        raise FedscopeError(
            f"{error}, so it is not known whether jobs of an earlier command still run; try again there, or, where "
            f"they have ended, remove {folder}"
        ) from error


def _find_jobs(
    specs: Sequence[JobSpec], by: Launcher, folder: Path, ended: Mapping[str, str | None]
) -> dict[str, _Sent]:
    """Return the jobs of earlier commands that wait or run."""
    left = [spec.name for spec in specs if spec.name not in ended]
    records = _not_ended(
        {name: record for name in left if (record := JobRecord.read(folder, name)) is not None}, folder
    )
    other = [name for name, record in records.items() if record.launcher != by.name]
    refuse_live_jobs(other, folder, f"give --launcher {records[other[0]].launcher} again" if other else "")
    own = {name: record for name, record in records.items() if record.launcher == by.name}
    if not own:
        return {}
    found = {}
    for name, (id, how) in _job_states(by, own, folder).items():
        if how is None:
            found[name] = _Sent(replace(own[name], id=id))
            if id != own[name].id:  # whoever sent it died before it could write the id down
                found[name].record.write(folder, name)
    return found


def _ask(by: Launcher, sent: Mapping[str, _Sent], now: float, progress: Progress, answers: bool) -> bool:
    """Note which jobs have ended; whether the scheduler has answered."""
    if not sent:
        return answers
    try:
        states = by.states({name: job.record for name, job in sent.items()})
    except UnknownError as error:
        if answers:
            progress.note(f"{error}; waiting for it")
        return False
    for name, (_, how) in states.items():
        if how is None:
            sent[name].over = None
        elif sent[name].over is None:
            sent[name].over = (now, how)
    return True


def _how_ended(spec: JobSpec, job: _Sent, outcome: JobOutcome | None, *, late: bool) -> tuple[str | None] | None:
    """Return the sentence with which a job failed, or that it is complete; None while its job may go on.

    Args:
        outcome: what the job has said.
        late: whether the scheduler has said for a while that it has ended.
    """
    if outcome is not None and outcome.failure is not None:
        return (outcome.failure,)
    if outcome is None and not late:
        return None
    complete, damage = _looked_at(spec)
    if complete or damage is not None:
        return (damage,)
    if not late:  # a network file system may show it later
        return None
    id = job.record.id.partition(":")[0]
    if outcome is not None:
        return (f"its job {id} has ended, but it is not complete, see {spec.log}",)
    how = "" if job.over is None or job.over[1] == "GONE" else f" ({job.over[1]})"
    return (f"its job {id} was ended from outside{how}; the same command sends another, see {spec.log}",)


def _looked_at(spec: JobSpec) -> tuple[bool, str | None]:
    """Check whether a job spec is complete, and what is wrong with what is there."""
    try:
        return spec.is_complete(), None
    except FedscopeError as error:
        return False, str(error)


def _send(
    specs: Sequence[JobSpec], by: Launcher, folder: Path, environment: Environment, taken: Collection[int]
) -> dict[str, JobRecord]:
    """Send a job for each, and write down which before and after.

    Args:
        taken: the places of jobs at work, one each.
    """
    batch = f"fedscope-{secrets.token_hex(4)}"
    free = (place for place in count_from() if place not in taken)
    records = [JobRecord.new(by.name, batch, i, next(free)) for i in range(len(specs))]
    for spec, record in zip(specs, records, strict=True):
        record.write(folder, spec.name)
        JobOutcome.path(folder, spec.name).unlink(missing_ok=True)
    jobs = [
        SentJob(spec, folder, record.token, environment, record.place)
        for spec, record in zip(specs, records, strict=True)
    ]
    ids = by.send(jobs, batch, folder / batch, len(taken) + len(jobs))
    known = {}
    for spec, record, id in zip(specs, records, ids, strict=True):
        known[spec.name] = replace(record, id=id)
        known[spec.name].write(folder, spec.name)
    return known


def _tell(progress: Progress, ended: dict[str, str | None], name: str, failure: str | None) -> None:
    ended[name] = failure
    progress.ended(name, failure)


def _jobs(count: int) -> str:
    return f"{count} jobs" if count > 1 else "1 job"
