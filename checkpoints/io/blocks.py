"""A file in memory that lies in blocks: it grows without a copy and without room at its end, and what was written to
the disk can be forgotten block by block."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

#: bytes; small enough to lie where a model of some megabytes was freed
BLOCK = 2**20


class BlockFile(io.RawIOBase):
    """A file in memory; what was never written is zeros.

    >>> file = BlockFile()
    >>> _ = file.seek(2), file.write(b"abc"), file.seek(0)
    >>> file.read(), [bytes(block) for block in file.pour()]
    (b'\\x00\\x00abc', [b'\\x00\\x00abc'])
    """

    def __init__(self) -> None:
        super().__init__()
        self._blocks: list[bytearray] = []
        self._size = self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def writable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place, which may lie behind the end."""
        self._at = max(0, offset + (0, self._at, self._size)[whence])
        return self._at

    def truncate(self, size: int | None = None) -> int:
        """Give the file a size, by default up to where it is."""
        size = self._at if size is None else size
        del self._blocks[-(-size // BLOCK) :]
        if size < self._size and size % BLOCK and len(self._blocks) == size // BLOCK + 1:
            self._blocks[-1][size % BLOCK :] = bytes(BLOCK - size % BLOCK)
        self._grow(size)
        self._size = size
        return size

    def write(self, given: Any) -> int:
        """Write all of it."""
        values = memoryview(given).cast("B")
        if not len(values):
            return 0
        self._grow(self._at + len(values))
        for block, part, place in self._parts(len(values)):
            block[part] = values[place : place + part.stop - part.start]
        self._at += len(values)
        self._size = max(self._size, self._at)
        return len(values)

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as there is something."""
        values = memoryview(buffer).cast("B")
        size = max(0, min(len(values), self._size - self._at))
        for block, part, place in self._parts(size):
            values[place : place + part.stop - part.start] = memoryview(block)[part]
        self._at += size
        return size

    def pour(self) -> Iterator[memoryview]:
        """Yield the content from its begin, each block for the last time."""
        size, self._size, self._at = self._size, 0, 0
        blocks, self._blocks = self._blocks[::-1], []
        while blocks:
            block = blocks.pop()
            yield memoryview(block)[:size]
            size -= len(block)

    def _grow(self, size: int) -> None:
        while len(self._blocks) * BLOCK < size:
            self._blocks.append(bytearray(BLOCK))

    def _parts(self, size: int) -> Iterator[tuple[bytearray, slice, int]]:
        """Yield the blocks of the next bytes, where in them these lie, and how many are before."""
        place = 0
        while place < size:
            number, first = divmod(self._at + place, BLOCK)
            part = slice(first, min(BLOCK, first + size - place))
            yield self._blocks[number], part, place
            place += part.stop - part.start
