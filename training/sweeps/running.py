"""Training a sweep's runs in a process beside this one: whatever ends it takes no other run with it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from select import select
from signal import SIGINT
from typing import IO, Protocol, Self, cast

from ...checkpoints import FedscopeError, WriterLock
from .plan import Plan
from .state import failures_in, keep_failures, rounds_in, rounds_of
from .steps import LOGS, RUNS, arguments_of, steps_of

#: seconds between looks at a child's rounds
LOOK = 0.5
#: seconds that a child has to end by itself
PATIENCE = 60.0
#: seconds that a run's writer of an earlier sweep, killed amid a round, has to be gone
GONE = 20.0


class SweepWatcher(Protocol):
    """Who watches a sweep."""

    def there(self, names: Sequence[str]) -> None:
        """These runs are complete already."""

    def rounds(self, done: int, of: int) -> None:
        """So many of all rounds are recorded."""

    def run(self, name: str, failure: str | None) -> None:
        """A run is complete, or has failed with a sentence."""


class UnwatchedSweep:
    """Nobody watches."""

    def there(self, names: Sequence[str]) -> None: ...
    def rounds(self, done: int, of: int) -> None: ...
    def run(self, name: str, failure: str | None) -> None: ...


def train_sweep(plan: Plan, folder: Path, watcher: SweepWatcher | None = None) -> None:
    """Train what a sweep still lacks; the caller holds its lock. Failures are kept beside the plan.

    Raises:
        KeyboardInterrupt: passed on once the run in progress has stopped; the same call goes on.
    """
    watcher = watcher or UnwatchedSweep()
    folder = folder.resolve()
    for name in (LOGS, RUNS):
        (folder / name).mkdir(exist_ok=True)
    done, failures = _looked_at(plan, folder)
    complete = {run.name for run in plan.runs if (done[run.name] or 0) >= run.rounds}
    known = {name: text for name, text in failures_in(folder, plan).items() if name not in complete}
    watcher.there([run.name for run in plan.runs if run.name in complete])
    directory = Path(str(plan.about["directory"]))
    ended = set(complete)
    with Worker(directory if directory.is_dir() else None) as worker:
        for step in steps_of(plan):
            name = step.run.name
            if name in ended:
                continue
            failure = failures.get(name)
            words = arguments_of(step, folder, done) if failure is None else None
            if words is not None:
                log = folder / LOGS / f"{name}.log"
                elsewhere = _recorded(plan, done) - _own(plan, done, name)
                if done[name] is not None:
                    _wait_until_free(folder / RUNS / name)
                worker.begin(words, log)
                while (status := worker.status(LOOK)) is None:
                    now = {**done, name: rounds_in(folder, name)}
                    watcher.rounds(elsewhere + _own(plan, now, name), plan.rounds)
                try:
                    done[name] = rounds_of(folder, step.run)
                    if status and (done[name] or 0) < step.last:
                        failure = last_words(log, status)
                except FedscopeError as error:
                    failure = str(error)
            if failure is None and step.until is not None:
                continue
            ended.add(name)
            known = {**known, name: failure} if failure else {key: text for key, text in known.items() if key != name}
            keep_failures(folder, known)
            watcher.run(name, failure)


class Worker:
    """A process that runs one ``fedscope`` command after the other, and ends when this one does, in whatever way.

    One that is killed amid a command is replaced for the next.

    Args:
        directory: that relative paths begin at; by default this process's.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        process = self._process
        if process is None:
            return
        try:
            if kind is not None and process.poll() is None:
                process.send_signal(SIGINT)
                self.status(PATIENCE)
        finally:  # a second Ctrl-C does not wait
            self._end(process)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        with suppress(OSError):
            cast(IO[bytes], process.stdin).close()  # ends it
        process.wait()
        cast(IO[bytes], process.stdout).close()

    def begin(self, words: Sequence[str], log: Path) -> None:
        """Begin ``fedscope WORDS``; what it prints goes to the end of ``log``."""
        line = json.dumps({"words": list(words), "log": str(log.resolve())}).encode() + b"\n"
        for _ in range(2):  # one that ended while it had nothing to do is replaced, too
            if self._process is None or self._process.poll() is not None:
                if self._process is not None:
                    self._end(self._process)
                self._process = self._started(log)
            asked = cast(IO[bytes], self._process.stdin)
            with suppress(BrokenPipeError):
                asked.write(line)
                asked.flush()
                return
            self._process.wait()

    def _started(self, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as errors:  # until it has a command of its own
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "fedscope.cli", "--serve-sweep"],
                stdin=subprocess.PIPE,  # closed by the system when this process is gone
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self._directory,
                start_new_session=True,  # a Ctrl-C comes from here, once
            )

    def status(self, wait: float) -> int | None:
        """The status with which the command has ended, minus a signal's number where one killed it; None after ``wait``
        seconds without an end."""
        assert self._process is not None, "a command has begun"
        answers = cast(IO[bytes], self._process.stdout)
        if not select([answers], [], [], wait)[0]:
            return None
        line = answers.readline()
        return int(line) if line.strip() else self._process.wait() or 1


def last_words(log: Path, status: int) -> str:
    """The sentence with which a child ended."""
    if status < 0:
        return f"killed by signal {-status}, see {log}"
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        lines = []
    said = [line for line in lines if line.strip()]
    return said[-1].removeprefix("fedscope: ") if said else f"ended with status {status}, see {log}"


def _looked_at(plan: Plan, folder: Path) -> tuple[dict[str, int | None], dict[str, str]]:
    """Of each run its last recorded round, and of those that are damaged the sentence."""
    done: dict[str, int | None] = {}
    broken: dict[str, str] = {}
    for run in plan.runs:
        try:
            done[run.name] = rounds_of(folder, run)
        except FedscopeError as error:
            done[run.name], broken[run.name] = None, str(error)
    return done, broken


def _wait_until_free(path: Path) -> None:
    """Wait for a writer that has lost the sweep which it trained for, and ends; of one that stays the run will say."""
    end = time.monotonic() + GONE
    while time.monotonic() < end:
        try:
            WriterLock(path).release()
        except FedscopeError:
            time.sleep(0.1)
        else:
            return


def _recorded(plan: Plan, done: Mapping[str, int | None]) -> int:
    """How many of a plan's rounds are recorded; a shared history counts once."""
    return sum(_own_rounds(run.after, done[run.name]) for run in plan.runs)


def _own(plan: Plan, done: Mapping[str, int | None], name: str) -> int:
    return _own_rounds(plan.of(name).after, done[name])


def _own_rounds(after: tuple[str, int] | None, done: int | None) -> int:
    return max(0, (done or 0) - (after[1] if after else 0))
