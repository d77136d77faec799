"""The one damage that sends HDF5 into an endless loop, looked for before a file is opened."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from .errors import FedscopeError

# Texts of attributes lie in the first collections of a file; a small file is looked through as a whole.
HEAD, WHOLE = 2**18, 2**20
_SIGNATURE, _HEADER = b"GCOL", struct.Struct("<4sB3xQ")
_OBJECT = struct.Struct("<H6xQ")


def refuse_endless(path: Path) -> None:
    """Look through the collections of texts (HDF5's global heaps) at the beginning of a file, once a process.

    HDF5 walks the objects of a collection by their sizes. Free space of size 0, as zeroed bytes are, it never gets
    past, and nothing can stop it: it runs in C.

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
    """Where objects lie from which HDF5 would not get to the next one."""
    start = content.find(_SIGNATURE)
    while start >= 0:
        if start + _HEADER.size <= len(content):
            _, version, size = _HEADER.unpack_from(content, start)
            at, end = start + _HEADER.size, min(start + size, len(content))
            while version == 1 and at + _OBJECT.size <= end:
                index, length = _OBJECT.unpack_from(content, at)
                step = length if index == 0 else _OBJECT.size + (length + 7) // 8 * 8
                if step == 0:
                    yield at
                    break
                at += step
        start = content.find(_SIGNATURE, start + 1)
