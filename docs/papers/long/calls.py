"""Commands of long runs: at the lowest priority, on all cores but one, standing still while they are paused."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frozen import spared
from pause import paused

#: seconds between two looks at the file PAUSE
LOOK = 1.0
_PR_SET_PDEATHSIG = 1


@dataclass
class Caller:
    """Runs commands, and adds up what they took.

    Attributes:
        home: where PAUSE is looked for; cores: for the commands; active: wall seconds while not paused; cpu: seconds of
            all cores.
    """

    home: Path
    cores: frozenset[int] = field(default_factory=spared)
    active: float = field(default=0.0, init=False)
    cpu: float = field(default=0.0, init=False)

    def __call__(self, command: Sequence[str | Path], cwd: Path) -> None:
        """Run one to its end.

        Raises:
            subprocess.CalledProcessError: it failed, and has said why.
            KeyboardInterrupt: it was stopped, as the command itself stops.
        """
        before = os.times()
        child = subprocess.Popen(
            [str(word) for word in command], cwd=cwd, start_new_session=True, preexec_fn=_humble(self.cores)
        )
        stopped, last = False, time.monotonic()
        try:
            while child.poll() is None:
                now, rest = time.monotonic(), paused(self.home)
                self.active += 0.0 if stopped else now - last
                last = now
                if rest is not stopped:
                    _signal(child, signal.SIGSTOP if rest else signal.SIGCONT)
                    print("paused" if rest else "going on", flush=True)
                    stopped = rest
                time.sleep(LOOK)
        except BaseException:
            _signal(child, signal.SIGCONT)
            _signal(child, signal.SIGINT)
            child.wait()
            raise
        finally:
            after = os.times()
            self.cpu += after.children_user + after.children_system - before.children_user - before.children_system
        if child.returncode:
            raise subprocess.CalledProcessError(child.returncode, command)


def _signal(child: subprocess.Popen[Any], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def _humble(cores: frozenset[int]) -> Callable[[], None]:
    """What a command does to itself before it begins: it ends with its caller, even where that is killed."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare() -> None:
        os.nice(19)
        # Linux shares cores between sessions first, and niceness counts within one alone: a session of its own, which
        # a command has so that it can be stopped whole, took a core from everything else
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text("19", encoding="ascii")
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return prepare
