"""What this process has found right already, so that nothing is verified twice."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from .checksums import Table


class Identity(NamedTuple):
    """A file as it stands: another content has another one, because a round's file is never changed in place."""

    path: str
    device: int
    inode: int
    modified: int
    size: int

    @classmethod
    def of(cls, path: Path, descriptor: int) -> Identity:
        """Of an open file, so that nothing can take its place between a look and opening."""
        stat = os.fstat(descriptor)
        return cls(os.fspath(path), stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)


class Verified:
    """The rows and datasets whose checksums were right, by file; and the tables of the files read last.

    Args:
        files: how many files are remembered; the least recently used is forgotten, and verified again.
        tables: how many tables are.
    """

    def __init__(self, files: int, tables: int) -> None:
        self._most = files, tables
        self._marks: OrderedDict[Identity, dict[str, int]] = OrderedDict()
        self._tables: OrderedDict[Identity, Table] = OrderedDict()
        self._lock = Lock()

    def marks(self, file: Identity) -> dict[str, int]:
        """Of each path of a file, the rows found right, as bits; a dataset without rows is bit 0. It is added to."""
        with self._lock:
            marks = self._marks.setdefault(file, {})
            self._marks.move_to_end(file)
            if len(self._marks) > self._most[0]:
                self._marks.popitem(last=False)
            return marks

    def table(self, file: Identity) -> Table | None:
        """The table of a file, if it was read lately."""
        with self._lock:
            return self._tables.get(file)

    def keep(self, file: Identity, table: Table) -> None:
        """Remember a table."""
        with self._lock:
            self._tables[file] = table
            if len(self._tables) > self._most[1]:
                self._tables.popitem(last=False)


#: The one state of this process: HDF5 reads at 3 GB/s, so that a checksum at every read would be felt, and analyses
#: read the same rows many times; whoever opens a round makes a new `Round`, so it cannot be remembered there. It only
#: ever saves work: without it the results are the same. A few hundred bytes a file, a few kB for a model of a hundred
#: layers.
VERIFIED = Verified(files=4096, tables=16)
