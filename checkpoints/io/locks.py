"""The right to write a file or a folder, one process at a time; also where the file system has no locks.

The right is a ``flock``, which ends with its process. Some network file systems have none. There it is a second file,
made so that only one process can make it, which says the machine and the process. A file outlives its process: one
whose process has ended on this machine is taken over; of a process on another machine nothing is known here, so the
user has the word.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import json
import os
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import FedscopeError
from .processes import Process
from .safe_write import open_own
from .visible_text import visible
from .warn_user import warn_user

#: what file systems without locks answer: NFS without its lock daemon, Lustre without ``-o flock``, FUSE, 9p
NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS))
#: behind the name of a file that is locked: of the file that stands for its lock
BESIDE = ".lock"
#: behind the name of such a file: of one that is there while a dead process's is removed
TAKING = ".taking"
#: seconds that a file which was just made may stay empty
_FILLED = 1.0
#: bytes of such a file at most
_SIZE = 4096
#: bytes of its beginning that have the process's number and nothing else
_NUMBER = 32
_WHAT = "a lock's file"
_TOLD: set[Path] = set()


class HeldError(Exception):
    """Another process has the right.

    Attributes:
        by: the process, for a sentence: "process 123".
        remedy: what to do where it may have ended unseen; None where waiting is enough.
    """

    def __init__(self, by: str, remedy: str | None = None) -> None:
        super().__init__(by)
        self.by, self.remedy = by, remedy


def holder_of(path: Path, beside: Path | None = None) -> HeldError | None:
    """Return who has the right to a file, as :func:`hold` would raise it; None where nobody has, as far as that is
    known. Nothing is made, and nothing waits.

    Args:
        path, beside: as of :func:`hold`.
    """
    try:
        descriptor = open_own(path, _WHAT, os.O_RDONLY)
    except (OSError, FedscopeError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return HeldError(_said_in(descriptor))
    finally:
        os.close(descriptor)
    beside = path.with_name(path.name + BESIDE) if beside is None else beside
    with suppress(OSError, FedscopeError):  # where the file system has no locks
        other = _read(_content(beside) or b"")
        if other is not None and not other.has_ended():
            return _held_by(other, beside)
    return None


def _held_by(holder: Process, beside: Path) -> HeldError:
    return HeldError(
        f"process {holder.pid} of {holder.host} (the file system has no locks, and {beside} says so)",
        f"wait until it ends or stop it, or, if it does not run any more, remove {beside}",
    )


@dataclass
class HeldLock:
    """The right, until it is given back.

    Attributes:
        descriptor: of the file that is locked.
    """

    descriptor: int
    _beside: _Beside | None = None

    def release(self) -> None:
        """Give it back."""
        os.close(self.descriptor)
        if self._beside is not None:
            self._beside.remove()

    def forget(self) -> None:
        """In a fork: close the copy, which leaves the parent's right as it is."""
        os.close(self.descriptor)


def hold(path: Path, what: str, beside: Path | None = None, wait: float = 0.0) -> HeldLock:
    """Take the right to a file, which is made where it is not there. Nothing is written into it, nothing waits.

    Args:
        what: the file is, for the sentence: "the lock of a run".
        beside: the file that stands for the lock where the file system has none; by default ``PATH.lock``.
        wait: seconds to try again while another process has it.

    Raises:
        HeldError: another process has it.
        FedscopeError: something else lies there, see :func:`~fedscope.checkpoints.io.safe_write.open_own`; the file
            system refuses the lock for another reason than that it has none.
        OSError: no such folder, no right to write there.
    """
    beside = path.with_name(path.name + BESIDE) if beside is None else beside
    end = time.monotonic() + wait
    while True:
        try:
            held = _try_flock(path, what, beside)
        except HeldError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.05)
            continue
        if held is not None:
            return held


def _try_flock(path: Path, what: str, beside: Path) -> HeldLock | None:
    """Take the lock once; None where its last holder has removed the file meanwhile."""
    held = HeldLock(open_own(path, what))
    try:
        try:
            fcntl.flock(held.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise HeldError(_said_in(held.descriptor)) from None
            if error.errno not in NO_LOCKS:
                raise FedscopeError(
                    f"{path} cannot be locked for writing ({error.strerror}); ask who runs the file system, or write "
                    "elsewhere"
                ) from error
            held._beside = _Beside.made(beside)
            _tell(beside, error)
        else:
            _refuse_held(beside)  # by a process that had no locks, on another machine perhaps
        if os.path.samestat(os.fstat(held.descriptor), path.stat()):
            return held
    except FileNotFoundError:
        pass
    except BaseException:
        held.release()
        raise
    held.release()
    return None


def sign(held: HeldLock) -> None:
    """Write who holds a lock into its file: the process's number, as all versions read it, and behind it its machine,
    which may be another one where a file system is shared."""
    with suppress(OSError):  # on a full disk the next one is told of no process
        os.ftruncate(held.descriptor, 0)
        text = f"{os.getpid()}\n".ljust(_NUMBER) + f"{socket.gethostname()}\n"
        os.pwrite(held.descriptor, text.encode("utf-8", "replace"), 0)


def _said_in(descriptor: int) -> str:
    """Name the process that has signed a file, for a sentence, with its machine where that is another one."""
    text = os.pread(descriptor, _SIZE, 0)
    number, host = (part.decode("utf-8", "replace").strip() for part in (text[:_NUMBER], text[_NUMBER:]))
    if not number.isdecimal():
        return "another process"
    return f"process {number}" + (f" of {visible(host)[:80]}" if host and host != socket.gethostname() else "")


def _tell(beside: Path, error: OSError) -> None:
    """Say once how others are kept away."""
    if beside not in _TOLD:
        _TOLD.add(beside)
        warn_user(
            f"{beside.parent} lies on a file system without locks ({error.strerror}); while this process writes, the "
            f"file {beside.name} there keeps others away"
        )


class _Beside:
    """A file that stands for a lock, made by this process."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self._content, self._owner = path, content, os.getpid()
        atexit.register(self.remove)

    @classmethod
    def made(cls, path: Path) -> _Beside:
        """Make it.

        Raises:
            HeldError: another process has made it.
        """
        content = json.dumps({**asdict(Process.here()), "token": secrets.token_hex(8)}).encode() + b"\n"
        while True:
            _refuse_held(path)
            try:
                # at most one process of all machines gets past this
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                descriptor = os.open(path, flags, 0o644)
            except FileExistsError:
                continue
            try:
                os.write(descriptor, content)
            except OSError as error:
                path.unlink(missing_ok=True)
                error.filename = str(path)
                raise
            finally:
                os.close(descriptor)
            return cls(path, content)

    def remove(self) -> None:
        """Give the right back; in a fork, and a second time, it does nothing."""
        atexit.unregister(self.remove)
        if os.getpid() == self._owner:
            self._owner = 0
            with suppress(OSError, FedscopeError):
                if _content(self.path) == self._content:
                    self.path.unlink()


def _refuse_held(path: Path) -> None:
    """Refuse what another process holds by a file; one that a process of this machine left is removed, and said.

    Raises:
        HeldError: names the process, its machine and the file.
        FedscopeError: no file of fedscope's.
    """
    end = time.monotonic() + _FILLED
    while True:
        content = _content(path)
        if content is None:
            return
        holder = _read(content)
        if holder is not None and not holder.has_ended():
            raise _held_by(holder, path)
        if holder is not None and _take_over(path, content):
            warn_user(f"{path} was left by process {holder.pid}, which has ended; it is taken over")
        elif time.monotonic() >= end:
            left = path.with_name(path.name + TAKING)
            there = left if left.exists() else path
            raise HeldError(
                f"a process that {there} does not name (the file system has no locks)",
                f"wait until it ends, or, if none runs any more, remove {there}",
            )
        else:  # a process has just made it, or is just removing it
            time.sleep(0.02)


def _take_over(path: Path, content: bytes) -> bool:
    """Remove a dead process's file; False where another process of this machine is just doing that."""
    guard = path.with_name(path.name + TAKING)
    try:
        descriptor = os.open(guard, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return False
    try:
        if _content(path) != content:  # another process was faster, and may hold it
            return False
        path.unlink()
        return True
    finally:
        os.close(descriptor)
        guard.unlink(missing_ok=True)


def _content(path: Path) -> bytes | None:
    """Read a lock's file; None where there is none."""
    try:
        descriptor = open_own(path, _WHAT, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, _SIZE)
    finally:
        os.close(descriptor)


def _read(content: bytes) -> Process | None:
    try:
        said = json.loads(content)
        host, system = str(said["host"]), str(said["system"])
        found = Process(host, int(said["pid"]), int(said["began"]), system)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return found if found.pid > 0 else None
