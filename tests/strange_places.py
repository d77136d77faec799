"""What may lie where fedscope's own file belongs, and a watch for what waits for ever."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

#: in words, each a way in which a file is none of fedscope's own
LINK, HARD, DANGLING, CIRCLE = "a link", "a hard link", "a link to nothing", "a link to itself"
KINDS = (LINK, HARD, DANGLING, CIRCLE, "a named pipe", "a folder", "a socket")
VICTIM = "important data\n"


def put(kind: str, place: Path, victim: Path) -> None:
    """Put such a thing in a place; links lead to the victim, which is made."""
    victim.write_text(VICTIM)
    if place.is_dir() and not place.is_symlink():
        place.rmdir()
    place.unlink(missing_ok=True)
    if kind == LINK:
        place.symlink_to(victim)
    elif kind == HARD:
        os.link(victim, place)
    elif kind == DANGLING:
        place.symlink_to(victim.with_name("not there"))
    elif kind == CIRCLE:
        place.symlink_to(place.name)
    elif kind == "a named pipe":
        os.mkfifo(place)
    elif kind == "a folder":
        place.mkdir()
    else:
        before = Path.cwd()
        os.chdir(place.parent)  # a socket's path is short
        try:
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(place.name)
        finally:
            os.chdir(before)


def untouched(kind: str, place: Path, victim: Path) -> bool:
    """Whether all is as it was put."""
    there = {
        LINK: lambda: place.readlink() == victim,
        HARD: lambda: place.samefile(victim),
        DANGLING: lambda: place.is_symlink() and not victim.with_name("not there").exists(),
        CIRCLE: place.is_symlink,
        "a named pipe": place.is_fifo,
        "a folder": place.is_dir,
        "a socket": place.is_socket,
    }[kind]
    return victim.read_text() == VICTIM and there()


@contextmanager
def at_once(seconds: int = 20) -> Iterator[None]:
    """Nothing waits: a named pipe that is opened, or read, fails the test."""

    def fail(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"it still waits after {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
