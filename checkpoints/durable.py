"""Files that are whole once they are visible, and one writer a run."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from .errors import DiskFullError, FedscopeError

LOCK_NAME = ".writer"


@contextmanager
def write_durably(path: Path | str) -> Iterator[Path]:
    """Write a file so that it is seen whole or not at all, whatever happens.

    Yields a new temporary file ``.NAME.RANDOM.tmp`` in the same folder, which is nobody else's and no link; what was
    written there is fsynced, renamed to ``path`` and the folder fsynced. On an error the temporary file is removed and
    an earlier ``path`` stays as it was.

    Raises:
        DiskFullError: nothing more fits; a FedscopeError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with write_durably(Path(folder, "a.txt")) as temporary:
    ...         _ = temporary.write_text("whole")
    ...     temporary.name, Path(folder, "a.txt").read_text()
    ('.a.txt....tmp', 'whole')
    """
    path = Path(path)
    temporary: Path | None = None
    try:
        temporary = _new_beside(path)
        yield temporary
        sync(temporary)
        temporary.replace(path)
    except BaseException as error:
        if temporary is not None:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        if disk_is_full(error):
            raise DiskFullError(f"{path} cannot be written: the disk is full; make room, or write elsewhere") from error
        raise
    sync(path.parent)


def _new_beside(path: Path) -> Path:
    """An empty file of a name that nobody can foresee, with the rights that the user's other new files have."""
    while True:
        # a name ends at 255 bytes
        temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}.tmp")
        try:
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        except FileExistsError:
            continue
        except OSError as error:
            error.filename = str(path)  # which the user knows
            raise
        return temporary


def sync(path: Path) -> None:
    """fsync a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep_temporaries(folder: Path) -> None:
    """Remove what interrupted writes left in a folder; the caller holds the run's lock."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def disk_is_full(error: BaseException) -> bool:
    """Whether an error means that nothing more fits: h5py often says so in its message only."""
    numbers = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if isinstance(error, OSError) and error.errno in numbers:
        return True
    return isinstance(error, OSError | RuntimeError) and any(os.strerror(number) in str(error) for number in numbers)


class WriterLock:
    """The right to write a run: one process at a time, given back when it ends in whatever way.

    A ``flock`` on ``RUN/.writer``, which holds the writer's process number. It is not inherited: neither by programs
    that the writer starts nor by its forks, so a killed writer leaves no lock behind.

    Raises:
        FedscopeError: another writer has it; names the process.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        descriptor = os.open(self.path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise FedscopeError(f"{self.path} cannot be locked for writing ({error.strerror})") from error
            by = f"process {holder}" if holder else "another process"
            raise FedscopeError(
                f"{self.path} is being written by {by}; wait until it ends or stop it, or give another --out"
            ) from None
        self._descriptor: int | None = descriptor
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        mine = weakref.ref(self)

        def forget() -> None:
            lock = mine()
            if lock is not None:
                lock.release()  # closing a fork's copy leaves the parent's lock as it is

        os.register_at_fork(after_in_child=forget)

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
