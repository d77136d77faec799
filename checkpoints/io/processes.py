"""Processes, known again by what no later one has."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Process:
    """A process of some machine.

    Attributes:
        host: the machine's name.
        pid: the process's number, which a later process may have again.
        began: when it began, in the system's ticks; 0 where that is not known.
        system: what tells this start of the machine, and this container on it, from others of the same name.
    """

    host: str
    pid: int
    began: int
    system: str

    @classmethod
    def here(cls) -> Self:
        """This one."""
        return cls(socket.gethostname(), os.getpid(), start_ticks(os.getpid()) or 0, _system())

    def has_ended(self) -> bool:
        """Check whether it is known to have ended: False of a process of another machine, of which nothing is known
        here."""
        if (self.host, self.system) != (socket.gethostname(), _system()):
            return False
        now = start_ticks(self.pid)
        return now is None or (now != 0 != self.began and now != self.began)


def start_ticks(pid: int) -> int | None:
    """Return when a process began, in the system's ticks; None where it is not there, or only not yet waited for. 0
    where it is there and the system does not say."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return _lives(pid)
    return None if words[0] == "Z" else int(words[19])


def _lives(pid: int) -> int | None:
    """Return 0 for any process of that number, where there is no /proc or it hides other users' processes."""
    try:
        os.kill(pid, 0)
    except PermissionError:  # of another user
        return 0
    except (OSError, OverflowError):
        return None
    return 0


def _system() -> str:
    found = []
    with suppress(OSError):  # neither is on every system
        found.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii", errors="replace").strip())
    with suppress(OSError):
        found.append(str(Path("/proc/self/ns/pid").readlink()))  # "pid:[4026531836]"
    return " ".join(found)
