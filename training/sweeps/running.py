"""Training a sweep's runs in a process beside this one: whatever ends it takes no other run with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from select import select
from signal import SIGINT
from typing import IO, Protocol, Self, cast

from ...checkpoints import FedscopeError, Run
from ...checkpoints.durable import WriterLock
from ...checkpoints.runs import visible_rounds
from .plan import Plan
from .steps import LOGS, RUNS, arguments_of, steps_of

#: seconds between looks at a child's rounds
LOOK = 0.5
#: seconds that a child has to end by itself
PATIENCE = 60.0


class SweepWatcher(Protocol):
    """Who watches a sweep."""

    def rounds(self, done: int, of: int) -> None:
        """So many of all rounds are recorded."""

    def run(self, name: str, failure: str | None) -> None:
        """A run is complete, or has failed with a sentence."""


class UnwatchedSweep:
    """Nobody watches."""

    def rounds(self, done: int, of: int) -> None: ...
    def run(self, name: str, failure: str | None) -> None: ...


def train_sweep(plan: Plan, folder: Path, watcher: SweepWatcher | None = None) -> dict[str, str]:
    """Train what a sweep still lacks; the sentence of each run that failed, by its name.

    Raises:
        FedscopeError: another process trains the same sweep.
        KeyboardInterrupt: passed on once the run in progress has stopped; the same call goes on.
    """
    watcher = watcher or UnwatchedSweep()
    failures: dict[str, str] = {}
    (folder / LOGS).mkdir(parents=True, exist_ok=True)
    (folder / RUNS).mkdir(exist_ok=True)
    with WriterLock(folder), Worker() as worker:
        for step in steps_of(plan):
            name, failure = step.run.name, None
            if name in failures:
                continue
            log = folder / LOGS / f"{name}.log"
            try:
                done = {run.name: rounds_of(folder, run.name) for run in plan.runs}
                words = arguments_of(step, folder, done)
                if words is None:
                    continue
                elsewhere = _recorded(plan, done) - _own(plan, done, name)
                worker.begin(words, log)
                while (status := worker.status(LOOK)) is None:
                    now = {**done, name: rounds_of(folder, name, opened=False)}
                    watcher.rounds(elsewhere + _own(plan, now, name), plan.rounds)
                if status:
                    failure = last_words(log, status)
            except FedscopeError as error:  # of a folder that is no run, or a damaged one
                failure = str(error)
            if failure is not None:
                failures[name] = failure
                watcher.run(name, failure)
            elif step.until is None:
                watcher.run(name, None)
    return failures


class Worker:
    """A process that runs one ``fedscope`` command after the other, and ends when this one does, in whatever way.

    One that is killed amid a command is replaced for the next.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        process = self._process
        if process is None:
            return
        if kind is not None and process.poll() is None:
            process.send_signal(SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.status(PATIENCE)
        with suppress(OSError):
            cast(IO[bytes], process.stdin).close()  # ends it
        process.wait()
        cast(IO[bytes], process.stdout).close()

    def begin(self, words: Sequence[str], log: Path) -> None:
        """Begin ``fedscope WORDS``; what it prints goes to the end of ``log``."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "fedscope.cli", "--serve-sweep"],
                stdin=subprocess.PIPE,  # closed by the system when this process is gone
                stdout=subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C comes from here, once
            )
        asked = cast(IO[bytes], self._process.stdin)
        asked.write(json.dumps({"words": list(words), "log": str(log.resolve())}).encode() + b"\n")
        asked.flush()

    def status(self, wait: float) -> int | None:
        """The status with which the command has ended, minus a signal's number where one killed it; None after ``wait``
        seconds without an end."""
        assert self._process is not None, "a command has begun"
        answers = cast(IO[bytes], self._process.stdout)
        if not select([answers], [], [], wait)[0]:
            return None
        line = answers.readline()
        return int(line) if line.strip() else self._process.wait() or 1


def rounds_of(folder: Path, name: str, *, opened: bool = True) -> int | None:
    """The last recorded round of a run of a sweep, 0 where there is none yet; None where there is no run.

    Args:
        opened: see whether the run is whole; else look at the names of its files.

    Raises:
        FedscopeError: a damaged run.
    """
    path = folder / RUNS / name
    if not (path / "run.json").exists():
        return None
    rounds: Sequence[int] = Run.open(path).rounds if opened else sorted(visible_rounds(path))
    return rounds[-1] if rounds else 0


def last_words(log: Path, status: int) -> str:
    """The sentence with which a child ended."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        lines = []
    said = [line for line in lines if line.strip()]
    if status < 0:
        return f"killed by signal {-status}"
    return said[-1].removeprefix("fedscope: ") if said else f"ended with status {status}, see {log}"


def _recorded(plan: Plan, done: dict[str, int | None]) -> int:
    """How many of a plan's rounds are recorded; a shared history counts once."""
    return sum(_own(plan, done, run.name) for run in plan.runs)


def _own(plan: Plan, done: dict[str, int | None], name: str) -> int:
    after = plan.of(name).after
    return max(0, (done[name] or 0) - (after[1] if after else 0))
