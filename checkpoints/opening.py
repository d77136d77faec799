"""What is looked at before a file is opened, so that no input can make a reader wait or read without end."""

from __future__ import annotations

import stat
from pathlib import Path

from .errors import FedscopeError

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def regular(path: Path, what: str = "a file") -> Path:
    """The path itself, once it is known that a regular file lies there; links are followed, nothing is opened.

    Opening a named pipe waits for a writer, and a device may never end. What cannot be looked at (missing, forbidden,
    a link in a circle) is left to whoever opens it, who can say what was wanted.

    Args:
        what: for the sentence: "a run's partition".

    Raises:
        FedscopeError: a folder, a named pipe, a socket or a device; says which.

    >>> regular(Path("/dev/zero"))
    Traceback (most recent call last):
        ...
    fedscope.checkpoints.errors.FedscopeError: /dev/zero is a device, not a file; give a regular file
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return path
    if not stat.S_ISREG(mode):
        kind = next((kind for is_kind, kind in _KINDS if is_kind(mode)), "something else")
        raise FedscopeError(f"{path} is {kind}, not {what}; give a regular file")
    return path
