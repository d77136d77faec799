"""Files that are whole once they are visible, and one writer a run."""

from __future__ import annotations

import errno
import gc
import os
import secrets
import stat
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from .errors import DiskFullError, FedscopeError
from .locks import BESIDE, TAKING, HeldError, HeldLock, hold, holder_of, sign
from .safe_write import ELSEWHERE, refuse_strange

LOCK_NAME = ".writer"
#: all that a writer's lock may leave in a folder
LOCK_NAMES = (LOCK_NAME, f"{LOCK_NAME}{BESIDE}", f"{LOCK_NAME}{BESIDE}{TAKING}")


@contextmanager
def write_durably(path: Path | str) -> Iterator[Path]:
    """Write a file so that it is seen whole or not at all, whatever happens.

    Yields a new temporary file ``.NAME.RANDOM.tmp`` in the same folder, which is nobody else's and no link; what was
    written there is fsynced, renamed to ``path`` and the folder fsynced. On an error the temporary file is removed and
    an earlier ``path`` stays as it was. A file takes only a file's place: a link, wherever it leads, stays.

    Raises:
        FedscopeError: something else than a file lies there.
        DiskFullError: nothing more fits; a FedscopeError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with write_durably(Path(folder, "a.txt")) as temporary:
    ...         _ = temporary.write_text("whole")
    ...     temporary.name, Path(folder, "a.txt").read_text()
    ('.a.txt....tmp', 'whole')
    """
    path = Path(path)
    refuse_strange(path, "a file that can be replaced", ELSEWHERE, replaced=True)
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
        if isinstance(error, OSError) and temporary is not None and error.filename == str(temporary):
            error.filename, error.filename2 = str(path), None  # which the user knows
        raise
    sync(path.parent)


def _new_beside(path: Path) -> Path:
    """Make an empty file of a name that nobody can foresee, with the rights that the user's other new files have."""
    while True:
        temporary = path.with_name(f".{shorten_name(path.name)}.{secrets.token_hex(4)}.tmp")
        try:
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        except FileExistsError:
            continue
        except OSError as error:
            error.filename = str(path)  # which the user knows
            raise
        return temporary


def shorten_name(name: str) -> str:
    """Shorten a target's name for its temporary file: a name ends at 255 bytes, and a letter may have four.

    >>> len(shorten_name("a" * 250)), len(shorten_name("é" * 120).encode())
    (200, 200)
    """
    whole = os.fsencode(name)
    end = min(len(whole), 200)
    while 0 < end < len(whole) and whole[end] & 0xC0 == 0x80:  # amid a letter of UTF-8
        end -= 1
    return os.fsdecode(whole[:end])  # as the file system's encoding has it, which may be ASCII


def sync(path: Path) -> None:
    """fsync a file or a folder; some network file systems cannot do it with folders, and need not."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        unable = error.errno in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
        if not (unable and stat.S_ISDIR(os.fstat(descriptor).st_mode)):
            raise
    finally:
        os.close(descriptor)


def sweep_temporaries(folder: Path, keep: Collection[str] = ()) -> None:
    """Remove what interrupted writes left in a folder, but for some names; the caller holds the run's lock."""
    for path in folder.glob(".*.tmp"):
        if path.name not in keep:
            path.unlink(missing_ok=True)


def disk_is_full(error: BaseException) -> bool:
    """Check whether an error means that nothing more fits: h5py often says so in its message only."""
    numbers = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if isinstance(error, OSError) and error.errno in numbers:
        return True
    return isinstance(error, OSError | RuntimeError) and any(os.strerror(number) in str(error) for number in numbers)


#: the remedy where another process is writing what a command would make
OTHER_OUT = "wait until it ends or stop it, or give another --out"
#: the same for a command that goes on with what is there, and takes no other folder
NO_OTHER_OUT = "wait until it ends, or stop it"
#: the same where this process is, which only a program of the user's own can be: a cell of a notebook that runs again
STILL_OPEN = (
    "is being written by this program itself: close the recorder that is still open there, as recorder.close(), or "
    "wait for the thread that writes it"
)
#: seconds that the last round of a recorder which was dropped may take
_LAST = 0.5
#: seconds for which who asks whether somebody writes may stand in a writer's way
_MOMENT = 0.1


def writing_words(run: Path) -> str:
    """A clause on who writes a run right now, with the remedy; "" where nobody does.

    Args:
        run: its folder.
    """
    if any(lock._is_of(run) for lock in tuple(_HELD)):
        return f"it {STILL_OPEN}"
    holder = holder_of(run / LOCK_NAME)
    return "" if holder is None else f"it is being written by {holder.by}; {holder.remedy or 'wait for its first'}"


class WriterLock:
    """The right to write a run: one process at a time, given back when it ends in whatever way, and when nobody has
    the lock any more.

    A ``flock`` on ``RUN/.writer``, which holds the writer's process number and its machine. It is not inherited:
    neither by programs that the writer starts nor by its forks, so a killed writer leaves no lock behind. Where the
    file system has no locks, the file ``RUN/.writer.lock`` stands for it, see :mod:`fedscope.checkpoints.io.locks`.

    Args:
        remedy: for the sentence, where waiting for the other writer is enough.

    Raises:
        FedscopeError: another writer has it: names the process, or says that it is this one. Something else
            than a file lies in the lock's place.
    """

    def __init__(self, path: Path | str, remedy: str = OTHER_OUT) -> None:
        self.path, self._remedy = Path(path), remedy
        self._held: HeldLock | None = None
        self._take()
        mine = weakref.ref(self)

        def forget() -> None:
            lock = mine()
            if lock is not None and (held := lock._given_up()) is not None:
                held.forget()

        os.register_at_fork(after_in_child=forget)

    def _take(self) -> None:
        lies = self.path / LOCK_NAME, "the lock of a writer"
        try:
            held = hold(*lies, wait=_MOMENT)
        except HeldError as other:
            if any(lock._is_of(self.path) for lock in tuple(_HELD)):
                held = self._hold_again(*lies)
            else:
                raise FedscopeError(
                    f"{self.path} is being written by {other.by}; {other.remedy or self._remedy}"
                ) from None
        self._held = held
        _HELD.add(self)
        self._dropped = weakref.finalize(self, held.release)
        self._dropped.atexit = False  # the lock ends with the process
        sign(held)

    def _hold_again(self, lies: Path, what: str) -> HeldLock:
        """Take the right from this process itself: a recorder that nobody has any more may still write its last round.

        Raises:
            FedscopeError: somebody has it, or that takes longer.
        """
        gc.collect()
        try:
            return hold(lies, what, wait=_LAST)
        except HeldError:
            raise FedscopeError(f"{self.path} {STILL_OPEN}") from None

    def release(self) -> None:
        """Give it back; a second time does nothing."""
        if (held := self._given_up()) is not None:
            held.release()

    def _given_up(self) -> HeldLock | None:
        """Return what is held, which this object has no more."""
        held, self._held = self._held, None
        if held is not None:
            self._dropped.detach()
            _HELD.discard(self)
        return held

    def _is_of(self, folder: Path) -> bool:
        """Whether this lock is held, on a folder."""
        try:
            return self._held is not None and self.path.samefile(folder)
        except OSError:  # one of them is gone
            return False

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let another writer of this process have it; where that one fails, it is this one's again."""
        self.release()
        try:
            yield
        except BaseException:
            self._take()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


#: the locks that this process holds
_HELD: weakref.WeakSet[WriterLock] = weakref.WeakSet()
