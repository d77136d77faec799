"""A process that runs fedscope's commands for another one, and ends with it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from select import select
from signal import SIGINT
from typing import IO, Self, cast

from ...checkpoints import FedscopeError, WriterLock, real_path, regular
from ...checkpoints.io.safe_write import append, refuse_strange

#: a file at whose end a command's output is put, for sentences
LOG = "the log of a command"
#: seconds that a child has to end by itself
PATIENCE = 60.0
#: seconds that a writer, killed amid its work, has to be gone
GONE = 20.0


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
            if kind is not None:
                self.stop(PATIENCE)
        finally:  # a second Ctrl-C does not wait
            self._end(process)

    def stop(self, patience: float) -> None:
        """Interrupt the command at work, as a Ctrl-C does, and wait so many seconds for it to end."""
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(SIGINT)
            self.status(patience)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        with suppress(OSError):
            cast(IO[bytes], process.stdin).close()  # ends it
        process.wait()
        cast(IO[bytes], process.stdout).close()

    def begin(self, words: Sequence[str], log: Path) -> None:
        """Begin ``fedscope WORDS``; what it prints goes to the end of ``log``.

        Raises:
            FedscopeError: something else than a file lies there.
        """
        refuse_strange(log, LOG)
        line = json.dumps({"words": list(words), "log": str(real_path(log.parent) / log.name)}).encode() + b"\n"
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
        with append(log, LOG) as errors:  # until it has a command of its own
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "fedscope.cli", "--serve-sweep"],
                stdin=subprocess.PIPE,  # closed by the system when this process is gone
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self._directory,
                start_new_session=True,  # a Ctrl-C comes from here, once
            )

    def status(self, wait: float) -> int | None:
        """Return the status with which the command has ended, minus a signal's number where one killed it; None after
        ``wait`` seconds without an end."""
        assert self._process is not None, "a command has begun"
        answers = cast(IO[bytes], self._process.stdout)
        if not select([answers], [], [], wait)[0]:
            return None
        line = answers.readline()
        return int(line) if line.strip() else self._process.wait() or 1


def last_words(log: Path, status: int) -> str:
    """Return the sentence with which a child ended."""
    if status < 0:
        return f"killed by signal {-status}, see {log}"
    try:
        lines = regular(log, LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except (OSError, FedscopeError):
        lines = []
    said = [line for line in lines if line.strip()]
    return said[-1].removeprefix("fedscope: ") if said else f"ended with status {status}, see {log}"


def wait_until_free(path: Path) -> None:
    """Wait for a writer that has lost the sweep which it trained for, and ends; of one that stays the run will say."""
    end = time.monotonic() + GONE
    while time.monotonic() < end:
        try:
            WriterLock(path).release()
        except FedscopeError:
            time.sleep(0.1)
        else:
            return
