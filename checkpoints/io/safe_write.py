"""Writing, locking and appending to files in folders that somebody else may have made.

A run from an archive may hold links, named pipes and folders where fedscope's own files belong. Nothing is ever written
through them: what is opened for writing is a regular file with one name, and what is put in a place replaces nothing
else. A run's folder itself may be a link, to another disk for one; the folders in it may not.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ...command_line import answering
from .errors import FedscopeError
from .untrusted import is_there, kind_of

#: the end of most of these sentences: what is in the way is nothing that fedscope has made
REMOVE = "remove it"
#: of a place that a command was given
ELSEWHERE = "remove it, or write elsewhere"
#: of a folder in a run
WHOLE = "put a folder in its place (only the whole folder of a run or a sweep may be a link)"


def refuse_strange(path: Path, what: str, remedy: str = REMOVE, *, replaced: bool = False) -> None:
    """Refuse a place where something else lies than a regular file with one name; nothing at all is fine.

    Args:
        what: that belongs there, for the sentence: "the lock of a run".
        replaced: whether a new file takes the place of the old one, whose other names then keep what it holds.

    Raises:
        FedscopeError: a link (wherever it leads), a hard link, a folder, a named pipe, a socket, a device.

    >>> refuse_strange(Path("/dev/null"), "a model's file")
    Traceback (most recent call last):
        ...
    fedscope.checkpoints.io.errors.FedscopeError: /dev/null is a device, not a model's file; remove it
    """
    try:
        about = path.lstat()
    except (OSError, ValueError):  # nothing there; or whoever opens it says why not
        return
    _refuse(path, about, what, remedy, replaced=replaced)


def _refuse(path: Path, about: os.stat_result, what: str, remedy: str, *, replaced: bool = False) -> None:
    if stat.S_ISLNK(about.st_mode):
        raise FedscopeError(f"{path} is a link, not {what}, and nothing is written where it leads; {remedy}")
    if not stat.S_ISREG(about.st_mode):
        raise FedscopeError(f"{path} is {kind_of(about.st_mode)}, not {what}; {remedy}")
    if about.st_nlink > 1 and not replaced:
        raise FedscopeError(
            f"{path} is a hard link: another name has the same file, and would change with it; {remedy}"
        )


def open_own(path: Path, what: str, flags: int = os.O_RDWR | os.O_CREAT, mode: int = 0o666) -> int:
    """Open a file that is fedscope's own, made where there is none, and return its descriptor; nothing waits, nothing
    is followed.

    Args:
        what: it is, for the sentence: "the log of a run".

    Raises:
        FedscopeError: as :func:`refuse_strange`.
        OSError: no such folder, no right to write there.
    """
    refuse_strange(path, what)  # before it is opened: opening a device may do something, a named pipe waits
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    except OSError:
        refuse_strange(path, what)  # it came in between
        raise
    try:
        _refuse(path, os.fstat(descriptor), what, REMOVE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def append(path: Path, what: str) -> BinaryIO:
    """Open a file of fedscope's own to write to the end of. Raises as :func:`open_own`."""
    return os.fdopen(open_own(path, what, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def refuse_linked(*folders: Path, remedy: str = WHOLE) -> None:
    """Refuse to write into folders of a run, a sweep or a result that are links, or no folders.

    Raises:
        FedscopeError: names the first.
    """
    for folder in folders:
        try:
            about = folder.lstat()
        except (OSError, ValueError):
            continue
        if stat.S_ISLNK(about.st_mode):
            raise FedscopeError(f"{folder} is a link, and nothing is written or removed where it leads; {remedy}")
        if not stat.S_ISDIR(about.st_mode):
            raise FedscopeError(f"{folder} is {kind_of(about.st_mode)}, not a folder; {REMOVE}")


def own_folder(folder: Path) -> None:
    """Make a folder of a run, a sweep or a result, where it is not there. Raises as :func:`refuse_linked`."""
    refuse_linked(folder)
    folder.mkdir(exist_ok=True)


@contextmanager
def explain_unwritten() -> Iterator[None]:
    """Say in a sentence why the system does not write a file, to who calls from Python; a command says it itself.

    Raises:
        FedscopeError: in place of an OSError that names a file.
    """
    try:
        yield
    except OSError as error:
        if answering.get() or not isinstance(error.filename, str | os.PathLike):
            raise
        path = Path(error.filename)
        file = next((one for one in (path, *path.parents) if is_there(one) and not one.is_dir()), None)
        if file is not None and isinstance(error, FileExistsError | NotADirectoryError):
            raise FedscopeError(f"{file} is a file, and nothing can be written below it; write elsewhere") from error
        raise FedscopeError(
            f"{path} cannot be written: {error.strerror}; check the path, or write elsewhere"
        ) from error
