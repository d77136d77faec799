"""HDF5 files, opened with one sentence for whatever is wrong with them, and written durably."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xxhash

from .atomic import write_durably
from .errors import FedscopeError
from .untrusted import regular

_SEAL = b"fedscope xxh3 "
_SEALED = len(_SEAL) + 16 + 1
RESULT_AGAIN = "compute it again with --force, or restore it from a copy"
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
# Bytes of the shortest superblock, with which every file begins.
_LEAST = 48
# What HDF5 says of locks that it cannot have, and of a file that this process holds open with other wishes about them.
_OF_LOCKS = ("unable to lock file", "flag values don't match")
# Texts of attributes lie in the first collections of a file; a small file is looked through as a whole.
HEAD, WHOLE = 2**18, 2**20
_HEAP, _HEAP_HEADER, _HEAP_OBJECT = b"GCOL", struct.Struct("<4sB3xQ"), struct.Struct("<H6xQ")


@contextmanager
def open_hdf5(path: Path, format: str | None, version: int, what: str) -> Iterator[Any]:
    """Open a file for reading, without locks, and check that it is what it should be.

    Args:
        format: what its attribute ``format`` must say; None where the file need not say any.
        version: the newest version of that format that is known here.
        what: for the sentence: "a round of a fedscope run".

    Raises:
        FedscopeError: missing, truncated, foreign, newer or damaged; each in its own words.
    """
    regular(path, what)
    refuse_endless(path)
    with ExitStack() as until:
        try:
            file = _open_until(path, until)
        except FileNotFoundError:
            raise FedscopeError(f"{path} does not exist; it should be {what}") from None
        except OSError as error:
            raise FedscopeError(_unreadable(path, what, error)) from error
        try:
            found = attribute(file, "format") if format is not None else None
            if found != format:
                says = "does not say its format" if found is None else f"says {str(found)[:40]!r}"
                raise FedscopeError(f'{path} is not {what}: it {says}, not "{format}"')
            if format is not None:
                check_version(path, attribute(file, "version"), version)
            yield file
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise FedscopeError(f"{path} is damaged: {_first_line(error)}; restore it from a copy") from error


def _open_until(path: Path, until: ExitStack) -> Any:
    """Open the file, which is closed with all that is open ``until`` then."""
    try:
        return until.enter_context(h5py.File(path, "r", locking=False, rdcc_nbytes=0))
    except OSError as error:
        # HDF5_USE_FILE_LOCKING=TRUE counts more than what is asked for here, and not every file system has locks
        if not any(told in str(error) for told in _OF_LOCKS):
            raise
    raw = until.enter_context(path.open("rb"))
    file = until.enter_context(h5py.File(raw, "r", rdcc_nbytes=0))
    file.descriptor = raw.fileno()
    return file


def descriptor_of(file: Any) -> int:
    """Return the system's descriptor of a file that :func:`open_hdf5` has opened."""
    return int(file.descriptor if file.driver == "fileobj" else file.id.get_vfd_handle())


@contextmanager
def write_hdf5(path: Path | str, *, track_order: bool = False, sealed: bool = False) -> Iterator[Any]:
    """Write an HDF5 file durably; see :func:`fedscope.checkpoints.write_durably`.

    Args:
        sealed: end the file with the checksum of all before, which HDF5 does not look at; see :func:`check_seal`.

    Raises:
        DiskFullError: nothing more fits.
    """
    with write_durably(path) as temporary:
        with _Sink(temporary) as sink:
            try:
                with h5py.File(sink, "w", track_order=track_order) as file:
                    yield file
            finally:
                if sink.error is not None:
                    raise sink.error
        if sealed:
            with temporary.open("r+b") as whole:
                whole.write(_seal(whole.read()))


def is_storable(name: str) -> bool:
    r"""Check whether a file can hold an array of a name: for HDF5 ``/`` is a group in a group and ``.`` the group
    itself, it ends a name at NUL, and names are written in UTF-8.

    >>> [is_storable(name) for name in ("a.weight", "a/b", "", ".", "a//b", "/a", "a\0b", "a\ud800")]
    [True, True, False, False, False, False, False, False]
    """
    parts = name.split("/")
    try:
        return not ("" in parts or "." in parts or b"\0" in name.encode())
    except UnicodeEncodeError:
        return False


def check_seal(path: Path, what: str) -> None:
    """Compare a file with the checksum at its end, before HDF5 opens it: some damage makes HDF5 itself loop for ever.

    A file without one passes: of an earlier fedscope, or changed by another program, which leaves the end out. One that
    a program holds open for writing is marked as such in its first bytes, until it is closed there.

    Raises:
        FedscopeError: other bytes than were written.
    """
    content = regular(path, what).read_bytes() if path.exists() else b""
    body, end = content[:-_SEALED], content[-_SEALED:]
    if end.startswith(_SEAL) and end != _seal(body):
        raise FedscopeError(
            f"{path} is damaged: its bytes are not those that were written; close it where it is open for writing, "
            f"else {RESULT_AGAIN}"
        )


def _seal(body: bytes) -> bytes:
    return _SEAL + xxhash.xxh3_64_hexdigest(body).encode() + b"\n"


class _Sink(io.RawIOBase):
    """A file for HDF5 to write to, whose writes never seem to fail.

    HDF5 does not live through a failing write: it leaves the file open, loses the error where a dataset is closed, and
    has crashed the process (2.0, disk full). So the first error is kept here, the rest goes nowhere, and
    :func:`write_hdf5` raises it once HDF5 has closed the file. Ctrl-C comes through in the same way.
    """

    def __init__(self, path: Path) -> None:
        self.raw = path.open("wb+", buffering=0)
        self.error: BaseException | None = None

    def write(self, data: Any, /) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while left and self.error is None:
                left = left[self.raw.write(left) or 0 :]
        except BaseException as error:
            self.error = error
        return size

    def readinto(self, out: Any, /) -> int:
        return self.raw.readinto(out) or 0

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self.raw.seek(offset, whence)

    def tell(self) -> int:
        return self.raw.tell()

    def truncate(self, size: int | None = None, /) -> int:
        return self.raw.truncate(size)

    def close(self) -> None:
        self.raw.close()
        super().close()


class UnreadableAttribute:
    """An attribute that is no text and no number."""

    def __str__(self) -> str:
        return "neither text nor a number"


def attribute(item: Any, name: str) -> str | int | float | UnreadableAttribute | None:
    """Read an attribute: a text or a number, however it was written; None where there is none.

    Args:
        item: h5py's file, group or dataset.
    """
    try:
        if not h5py.h5a.exists(item.id, name.encode()):
            return None
        value = item.attrs[name] if h5py.h5a.open(item.id, name.encode()).shape == () else None
    except (OSError, RuntimeError, LookupError, TypeError, ValueError, OverflowError):  # of a type that NumPy has not
        return UnreadableAttribute()
    value = value.item() if isinstance(value, np.generic) else value
    value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return value if isinstance(value, str | int | float) else UnreadableAttribute()


def check_version(path: Path, found: Any, known: int) -> None:
    """Refuse what a newer fedscope wrote.

    Raises:
        FedscopeError: newer than ``known``, or no version at all.
    """
    whole = isinstance(found, int | np.integer) and not isinstance(found, bool)
    if not whole and not (isinstance(found, float | np.floating) and math.isfinite(found) and found == int(found)):
        raise FedscopeError(f"{path} has version {str(found)[:40]!r}, no whole number; it is damaged or foreign")
    number = int(found)
    if number > known:
        raise FedscopeError(
            f"{path} has version {str(number)[:40]} of its format, but this fedscope reads versions up to {known}; "
            "upgrade it: pip install --upgrade fedscope"
        )


def _unreadable(path: Path, what: str, error: OSError) -> str:
    if path.is_dir():
        return f"{path} is a folder, not {what}"
    try:
        with path.open("rb") as file:
            head = file.read(_LEAST)
    except OSError as reason:
        return f"{path} cannot be read ({reason.strerror}); it should be {what}"
    signature = head[: len(_SIGNATURE)]
    cut = len(head) < _LEAST and _SIGNATURE.startswith(signature)
    if "truncated" in str(error).lower() or cut:
        return f"{path} is truncated ({path.stat().st_size:,} bytes are left of it); it should be {what}: copy it again"
    if signature != _SIGNATURE:
        return f"{path} is not {what}: it is not an HDF5 file"
    return f"{path} is damaged: {_first_line(error)}; restore it from a copy"


def _first_line(error: BaseException) -> str:
    return str(error).strip("'\"").splitlines()[0] if str(error) else type(error).__name__


def refuse_endless(path: Path) -> None:
    """Look through the collections of texts (HDF5's global heaps) at the beginning of a file, once a process.

    It is the one damage that sends HDF5 into an endless loop: it walks the objects of a collection by their sizes. Free
    space of size 0, as zeroed bytes are, it never gets past, and nothing can stop it: it runs in C.

    Raises:
        FedscopeError: such an object.

    Source: HDF5 File Format Specification, III.E, Global Heap.
    """
    try:
        status = path.stat()
    except OSError:
        return  # whoever opens it says why
    at = _endless(path, status.st_mtime_ns, status.st_size, status.st_ino)
    if at is not None:
        raise FedscopeError(f"{path} is damaged: its texts at byte {at:,} are zeroed; restore it from a copy")


@lru_cache(maxsize=4096)
def _endless(path: Path, modified: int, size: int, inode: int) -> int | None:
    with path.open("rb") as file:
        content = file.read(size if size <= WHOLE else HEAD)
    return next(_stuck(content), None)


def _stuck(content: bytes) -> Iterator[int]:
    """Find the positions of objects from which HDF5 would not get to the next one."""
    start = content.find(_HEAP)
    while start >= 0:
        if start + _HEAP_HEADER.size <= len(content):
            _, version, size = _HEAP_HEADER.unpack_from(content, start)
            at, end = start + _HEAP_HEADER.size, min(start + size, len(content))
            while version == 1 and at + _HEAP_OBJECT.size <= end:
                index, length = _HEAP_OBJECT.unpack_from(content, at)
                step = length if index == 0 else _HEAP_OBJECT.size + (length + 7) // 8 * 8
                if step == 0:
                    yield at
                    break
                at += step
        start = content.find(_HEAP, start + 1)
