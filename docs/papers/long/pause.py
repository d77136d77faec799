"""One file that pauses long runs: while it names a process that lives, or nothing at all, they stand still.

    python docs/papers/long/pause.py COMMAND ...

runs a command with the long runs paused, as `make test` and `make bench` do: two programs on the same cores disturb
each other's times. `touch PAUSE` pauses them by hand, `rm PAUSE` lets them go on. Without long runs it only runs the
command.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: where long runs lie unless PAPERS_LONG says otherwise: outside every checkout, so that no clean-up reaches them
HOME = Path(os.environ.get("PAPERS_LONG") or Path.home() / ".fedscope-papers")


def paused(home: Path) -> bool:
    """Whether runs in a folder are to stand still: by hand, or by a process that lives."""
    try:
        text = (home / "PAUSE").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    numbers = [int(line) for line in text.split() if line.isdigit()]
    return not numbers or any(map(lives, numbers))


@contextmanager
def pausing(home: Path) -> Iterator[None]:
    """Long runs stand still meanwhile; where there are none, nothing is written."""
    if not home.is_dir() or (_file(home).exists() and not _named(home)):  # paused by hand: it stays so
        yield
        return
    _change(home, add=os.getpid())
    try:
        yield
    finally:
        _change(home, remove=os.getpid())


def _change(home: Path, *, add: int = 0, remove: int = 0) -> None:
    """Add or remove a process in the file, which goes when it names none; under a lock, because commands overlap."""
    with (home / ".pause-lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        numbers = {number for number in _named(home) if lives(number)} - {remove} | ({add} if add else set())
        if numbers:
            _file(home).write_text("".join(f"{number}\n" for number in sorted(numbers)), encoding="utf-8")
        else:
            _file(home).unlink(missing_ok=True)


def _file(home: Path) -> Path:
    return home / "PAUSE"


def _named(home: Path) -> set[int]:
    try:
        return {int(line) for line in _file(home).read_text(encoding="utf-8").split() if line.isdigit()}
    except FileNotFoundError:
        return set()


def lives(number: int) -> bool:
    """Whether a process of this number runs on this machine."""
    try:
        os.kill(number, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    with pausing(HOME):
        try:
            status = subprocess.run(sys.argv[1:], check=False).returncode
        except KeyboardInterrupt:
            status = 130
    sys.exit(status)
