"""Checksums of what a round's file holds, in a table of the file: XXH3, 64 bits.

The table is the dataset ``checksums``, a record ``(path, client, xxh3_64)`` for each dataset, for each client's row of
those under ``clients``, ``sampled_clients`` and ``client_state``, and for each attribute that a reader believes (path
``OBJECT@ATTRIBUTE``). ``client`` is -1 where the record is of no client. The table's own checksum is its attribute
``xxh3_64``.

A value's checksum is ``xxh3_64(bytes, seed)``: of its bytes as HDF5 gives them, uncompressed, C order, little-endian,
with ``seed = xxh3_64("PATH CLIENT DTYPE SHAPE")``, for example ``clients/fc1.weight 17 <f4 64,64``; an attribute is its
text in UTF-8 (``|u1``) or its number. So a value that lies at another path, in another client's row, or in another type
or shape than it was written has another checksum, even where every byte of it is right.

XXH3 because a checksum must not cost more than reading: it runs at 18 GB/s and more on one core, where HDF5 reads at 3
and zlib's crc32 runs at 1 to 4. 64 bits are enough against damage; nothing here is meant against forgery.
"""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import h5py
import numpy as np
import xxhash

NAME, KIND = "checksums", "xxh3_64"
#: the client of a record that is of no client
NONE = -1


def seed_of(path: str, client: int, dtype: np.dtype[Any], shape: Sequence[int]) -> int:
    """Compute the seed by which a checksum depends on the path of a value, its client and how its bytes are read."""
    name = f"{path} {client} {dtype.newbyteorder('<').str} {','.join(map(str, shape))}"
    return int(xxhash.xxh3_64_intdigest(name.encode()))


def checksum(path: str, client: int, value: np.ndarray) -> int:
    """Compute the checksum of one value: a dataset, or a client's row of it.

    >>> seed = xxhash.xxh3_64_intdigest(b"start/scale -1 <f4 2,2")
    >>> value = np.float32([[1, 2], [3, 4]])
    >>> checksum("start/scale", NONE, value) == xxhash.xxh3_64_intdigest(value.tobytes(), seed)
    True
    """
    value = np.asarray(value, order="C")
    if value.dtype.byteorder == ">" or (value.dtype.byteorder == "=" and sys.byteorder == "big"):
        value = value.astype(value.dtype.newbyteorder("<"))
    seed = seed_of(path, client, value.dtype, value.shape)
    return int(xxhash.xxh3_64_intdigest(_bytes(value), seed))


def running_checksum(path: str, client: int, dtype: np.dtype[Any], shape: Sequence[int]) -> Any:
    """Begin a checksum that is given its bytes (little-endian) in parts: ``update``, then ``intdigest``."""
    return xxhash.xxh3_64(seed=seed_of(path, client, dtype, shape))


def of_text(path: str, text: str) -> int:
    """Compute the checksum of a text, an attribute's."""
    return checksum(path, NONE, np.frombuffer(text.encode(), np.uint8))


@dataclass
class ChecksumWriter:
    """The checksums of a file that is being written, from what is in memory, not from what came to lie in the file.

    Attributes:
        clients: the ids of the rows, [C].
    """

    clients: np.ndarray
    _records: list[tuple[bytes, int, int]] = field(default_factory=list)

    def add(self, dataset: Any, value: np.ndarray) -> None:
        """A whole dataset, of which ``value`` is the content."""
        path, value = dataset.name.lstrip("/"), np.asarray(value, dtype=dataset.dtype)
        self._add(path, NONE, checksum(path, NONE, value))

    def add_rows(
        self, dataset: Any, rows: Sequence[np.ndarray] | np.ndarray, clients: np.ndarray | None = None
    ) -> None:
        """A dataset [C, ...], row by row; ``clients`` are the ids of the rows where it is not all of them."""
        for _ in self.passing(dataset, rows, clients):
            pass

    def passing(
        self, dataset: Any, rows: Iterable[np.ndarray], clients: np.ndarray | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the same rows, handed on: each is added while it is near the processor, and read once."""
        path, shape, dtype = dataset.name.lstrip("/"), dataset.shape[1:], dataset.dtype
        ids = self.clients if clients is None else clients
        for client, row in zip(ids.tolist(), rows, strict=True):
            self._add(path, client, checksum(path, client, np.asarray(row, dtype=dtype).reshape(shape)))
            yield row

    def add_attribute(self, item: Any, name: str, value: str | int) -> None:
        """An attribute: a text, or a whole number."""
        path = f"{item.name.strip('/')}@{name}"
        number = of_text(path, value) if isinstance(value, str) else checksum(path, NONE, np.array(value, np.int64))
        self._add(path, NONE, number)

    def _add(self, path: str, client: int, number: int) -> None:
        self._records.append((path.encode(), client, number))

    def write(self, file: Any) -> None:
        """Put the table into the file, and what says that it has one."""
        longest = max((len(path) for path, _, _ in self._records), default=1)
        table = np.array(self._records, dtype=[("path", f"S{longest}"), ("client", "<i8"), (KIND, "<u8")])
        dataset = file.create_dataset(NAME, data=table)
        dataset.attrs[KIND] = np.uint64(own_checksum(table))
        file.attrs[NAME] = KIND  # or a file without its table would pass for one that never had any


@dataclass(frozen=True, eq=False)
class ChecksumTable:
    """The checksums that a file was written with."""

    records: np.ndarray

    @cached_property
    def places(self) -> dict[str, slice]:
        """The records of each path; a path's records follow each other."""
        paths = self.records["path"]
        cuts = [0, *(np.flatnonzero(paths[1:] != paths[:-1]) + 1).tolist(), len(paths)]
        return {
            paths[begin].decode(errors="replace"): slice(begin, end) for begin, end in pairwise(cuts) if begin < end
        }

    def of(self, path: str) -> dict[int, int]:
        """Return the checksums of a path by client; empty where the table has none of it."""
        found = self.records[self.places.get(path, slice(0, 0))]
        return dict(zip(found["client"].tolist(), found[KIND].tolist(), strict=True))

    def below(self, group: str) -> set[str]:
        """Return the names in a group (of the file, with "")."""
        lead = f"{group}/" if group else ""
        return {
            path[len(lead) :].partition("/")[0].partition("@")[0] for path in self.places if path.startswith(lead)
        } - {""}


def has_table(file: Any) -> bool:
    """Check whether a file says that it has checksums, or has them."""
    return bool(h5py.h5a.exists(file.id, NAME.encode()) or file.id.links.exists(NAME.encode()))


def own_checksum(records: np.ndarray) -> int:
    """Compute the checksum of a table."""
    return int(xxhash.xxh3_64_intdigest(_bytes(records)))


class FileState(NamedTuple):
    """A file as it stands: another content has another one, because a round's file is never changed in place."""

    path: str
    device: int
    inode: int
    modified: int
    size: int

    @classmethod
    def of(cls, path: Path, descriptor: int) -> FileState:
        """Look at an open file, so that nothing can take its place between a look and opening."""
        stat = os.fstat(descriptor)
        return cls(os.fspath(path), stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size)


class Verified:
    """Rows and datasets whose checksums this process has found right, by file, so that nothing is verified twice; and
    the tables of the files read last.

    Args:
        files: how many files are remembered; the least recently used is forgotten, and verified again.
        tables: how many tables are.
    """

    def __init__(self, files: int, tables: int) -> None:
        self._most = files, tables
        self._marks: OrderedDict[FileState, dict[str, int]] = OrderedDict()
        self._tables: OrderedDict[FileState, ChecksumTable] = OrderedDict()
        self._lock = Lock()

    def marks(self, file: FileState) -> dict[str, int]:
        """Rows found right of each path of a file, as bits; a dataset without rows is bit 0. The caller adds to it."""
        with self._lock:
            marks = self._marks.setdefault(file, {})
            self._marks.move_to_end(file)
            if len(self._marks) > self._most[0]:
                self._marks.popitem(last=False)
            return marks

    def table(self, file: FileState) -> ChecksumTable | None:
        """Return the table of a file, if it was read lately."""
        with self._lock:
            return self._tables.get(file)

    def keep(self, file: FileState, table: ChecksumTable) -> None:
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


def _bytes(value: np.ndarray) -> memoryview:
    return value.reshape(-1).view(np.uint8).data
