"""A round's models in chunks of columns that several threads read at once.

HDF5 has one lock, and takes three times as long as the system to copy rows of a large layer. Where rows lie in the file
as they do in memory, HDF5 only says where, and the reader of a chunk reads it. What is compressed is read a row at a
time and waits on disk, so that memory depends neither on the layer nor on how many rounds are read side by side.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from tempfile import TemporaryFile, gettempdir
from threading import Lock
from typing import Any, NamedTuple
from weakref import finalize

import h5py
import numpy as np

from ..io import checksums
from ..io.errors import FedscopeError, list_few, nearest
from ..io.hdf5_validation import ValidatedDataset
from .models import open_entry
from .reader import RoundFile
from .round import Round, few_of
from .writer import CLIENTS, STARTS

# Chunks that the system is told of before they are read; bytes that are read and summed in one go.
AHEAD, _BLOCK = 4, 2**18
# Numbers of all clients in a block: 16 MiB of float32, so that a block and its float64 temporaries stay near the
# processor, and reading it costs few calls.
NUMBERS = 4 * 2**20
_STACKED = (CLIENTS, STARTS)


@dataclass(frozen=True, eq=False)
class ColumnChunk:
    """Some columns of a parameter, of all the models; :meth:`read` reads them, in any thread and order.

    Attributes:
        layer: the ``state_dict`` key.
        where: their place in the flat vector [P].
        start: of the first one, in the flattened parameter.
        rows: C of clients, 1 of one model.
        dtype: the layout's.
    """

    layer: str
    where: slice
    start: int
    dtype: np.dtype[Any]
    file: _File
    places: tuple[int, ...]
    verified: _Verified | None = None

    @property
    def rows(self) -> int:
        """The number of models."""
        return len(self.places)

    @property
    def count(self) -> int:
        """The number of columns."""
        count: int = self.where.stop - self.where.start
        return count

    def read(self, buffer: np.ndarray | None = None) -> np.ndarray:
        """Read the values, [rows, count].

        Args:
            buffer: of at least so many numbers of this dtype, flat, that they are written to; a new one by default.

        Raises:
            FedscopeError: the file ends before.
        """
        size = self.rows * self.count
        flat = np.empty(size, self.dtype) if buffer is None else buffer[:size]
        values = flat.reshape(self.rows, self.count)
        for row, place in zip(values, self.places, strict=True):
            self.file.read(row, place)
        return values


def read_chunks(
    round_: Round, columns: int, layers: Collection[str] | None = None, *, which: str = "clients"
) -> Iterator[ColumnChunk]:
    """Yield the parameters of a round's models, chunk after chunk in the layout's order; nothing is read yet.

    Args:
        columns: of a chunk, at most.
        layers: only these; all by default.
        which: the clients, their ``starts``, or one of ``start``, ``global`` and ``averaged``.

    Raises:
        FedscopeError: the models were not recorded; a layer that is no parameter of them (says which are); a file that
            is damaged or belongs to another run.
    """
    return _prefetch(_chunks(round_, columns, layers, which))


@dataclass(frozen=True, eq=False)
class Columns:
    """A block of columns of ``clients``.

    Attributes:
        layer: the ``state_dict`` key of the parameter they belong to.
        where: their place in the flat vector [P].
        start: of the first one, in the flattened layer.
        values: [C, n], in the layout's dtype.
    """

    layer: str
    where: slice
    start: int
    values: np.ndarray


def read_columns(round_: Round, layers: Collection[str] | None = None, numbers: int = NUMBERS) -> Iterator[Columns]:
    """Yield the clients' parameters, a block after the other in the layout's order; each number is read once.

    Args:
        layers: only these; all by default.
        numbers: of all clients in a block, at most (at least a column).

    Raises:
        FedscopeError: the round has no clients; a layer that is no parameter of the model (says which are).
    """
    for chunk in read_chunks(round_, max(1, numbers // max(1, len(round_.client_ids))), layers):
        yield Columns(chunk.layer, chunk.where, chunk.start, chunk.read())


def read_once(round_: Round, columns: int, room: Callable[[int], np.ndarray]) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield the columns of a round's clients in their order, each byte of which is read once: what lies in the file as
    in memory is compared with its checksum on its way, and not before, as by :func:`read_chunks`.

    So a damaged parameter is known after its last columns: nothing that was made of any is to be kept before all were
    yielded.

    Args:
        columns: at a time, at most.
        room: gives a flat buffer of the layout's dtype for so many numbers, which the values are read into.

    Yields:
        where the columns lie in the flat vector [P], and their values [C, n].

    Raises:
        FedscopeError: as :func:`read_chunks`.
    """
    for chunk in _prefetch(_chunks(round_, columns, None, CLIENTS, ahead=False)):
        values = chunk.read(room(chunk.rows * chunk.count))
        if chunk.verified is not None:
            chunk.verified.add(values)
        yield chunk.where, values


def _chunks(
    round_: Round, columns: int, layers: Collection[str] | None, which: str, *, ahead: bool = True
) -> Iterator[ColumnChunk]:
    """Yield chunks of parameters; with ``ahead`` a parameter is verified before its first chunk."""
    if which == STARTS:
        round_.refuse_missing_starts()
    elif which != CLIENTS:
        round_.refuse_missing(which)
    elif not round_.has_clients:
        why = few_of(round_) if round_.has_sample else f"the clients of round {round_.number} were not recorded"
        raise FedscopeError(f"{round_.label}: {why}")
    layout = round_.layout
    for layer in layers or ():
        if layer not in layout.slices:
            hint = nearest(layer, list(layout.slices))
            raise FedscopeError(
                f"{round_.label} has no parameter {layer!r}{hint or '; it has ' + list_few(list(layout.slices))}"
            )
    rows = {name: where for name, where in layout.slices.items() if layers is None or name in layers}
    found, opened = _places(round_, which, rows)
    file = _File(round_.path.open("rb", buffering=0), round_.path)
    for name, where in rows.items():
        if where.start == where.stop:
            continue
        verified = None
        if name in found:
            source, places = file, found[name].places
            if found[name].unverified and ahead:
                _verify(opened, which, name, file, places)
            elif found[name].unverified:
                verified = _Verified(opened, which, name)
        else:
            source, places = _unpack(round_, which, name)
        for start in range(0, where.stop - where.start, columns):
            here = slice(where.start + start, min(where.start + start + columns, where.stop))
            begins = tuple(place + start * layout.dtype.itemsize for place in places)
            yield ColumnChunk(name, here, start, layout.dtype, source, begins, verified)


def _prefetch(chunks: Iterator[ColumnChunk]) -> Iterator[ColumnChunk]:
    """Yield the same chunks, some of them announced ahead to the system, which fetches them while others are worked
    on."""
    if not hasattr(os, "posix_fadvise"):  # not on this system
        yield from chunks
        return
    ahead: deque[ColumnChunk] = deque()
    for chunk in chunks:
        for place in chunk.places:
            size = chunk.count * chunk.dtype.itemsize
            os.posix_fadvise(chunk.file.raw.fileno(), place, size, os.POSIX_FADV_WILLNEED)
        ahead.append(chunk)
        if len(ahead) > AHEAD:
            yield ahead.popleft()
    yield from ahead


class _File:
    """A file that any thread reads at any place, open until its last chunk is gone."""

    def __init__(self, raw: Any, name: object) -> None:
        self.raw, self.name, self.lock = raw, name, Lock()
        # before the file's own finaliser, also where an error's traceback holds both; that one would warn
        finalize(self, raw.close)

    def read(self, row: np.ndarray, place: int) -> None:
        """Fill a row with what begins at a byte."""
        left = row.data.cast("B")
        while left:
            got = self._some(left, place)
            if not got:
                raise FedscopeError(f"{self.name} is truncated: it ends before byte {place}; restore it from a copy")
            left, place = left[got:], place + got

    def _some(self, left: memoryview, place: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self.raw.fileno(), [left], place)
        with self.lock:  # not on this system
            self.raw.seek(place)
            return int(self.raw.readinto(left))


def _unpack(round_: Round, which: str, name: str) -> tuple[_File, tuple[int, ...]]:
    """Write a parameter's rows to a temporary file, read and decoded one by one; returns it and where they begin.

    Raises:
        FedscopeError: there is no room for it.
    """
    file, places = _File(TemporaryFile(buffering=0), "a temporary file"), [0]  # noqa: SIM115
    try:
        for row in round_.rows_of(which, name):
            left = row.data.cast("B")
            while left:
                left = left[file.raw.write(left) :]
            places.append(places[-1] + row.nbytes)
    except OSError as error:
        raise FedscopeError(
            f"{gettempdir()} has no room for {which}/{name} of {round_.label} ({error.strerror}), which is unpacked "
            "there; free some, or name another folder in TMPDIR"
        ) from error
    return file, tuple(places[:-1])


class _Found(NamedTuple):
    """The bytes where each model's row of a parameter begins, and whether one is still to be verified."""

    places: tuple[int, ...]
    unverified: bool


def _places(round_: Round, which: str, names: Collection[str]) -> tuple[dict[str, _Found], RoundFile]:
    """Find where the rows of parameters begin, of those that can be read as they lie in the file; also return the file,
    closed."""
    found = {}
    stacked = which in _STACKED
    with round_.open(stacked=stacked) as file:
        for entry in round_.layout.parameters:
            if entry.name not in names:
                continue
            stored, code = open_entry(file, which, entry, stacked=stacked)
            if stored.dtype == round_.layout.dtype and code is None and not file.file.userblock_size:
                rows = _rows(stored, entry.shape, stacked)
                if rows is not None:
                    unverified = any(file.wants(stored.path, k) for k in range(len(rows)))
                    found[entry.name] = _Found(rows, unverified)
        if any(one.unverified for one in found.values()):
            _ = file.table  # kept, so that the file need not be opened again for it
    return found, file


class _Verified:
    """The rows of a parameter, whose checksums are made of their columns as these are read, in their order."""

    def __init__(self, file: RoundFile, which: str, name: str) -> None:
        self.path, self.file = f"{which}/{name}", file
        shape, dtype = next(e.shape for e in file.layout.parameters if e.name == name), file.layout.dtype
        self.size = self.left = prod(shape) * dtype.itemsize
        clients = file.ids if which in _STACKED else (checksums.NONE,)
        self.running = {
            k: (int(client), checksums.running_checksum(self.path, int(client), dtype, shape))
            for k, client in enumerate(clients)
            if file.wants(self.path, k)
        }

    def add(self, values: np.ndarray) -> None:
        """Take the next columns of all rows, [C, n].

        Raises:
            FedscopeError: they were the last ones, and a row is not what was written.
        """
        for k, (_, running) in self.running.items():
            running.update(values[k])
        self.left -= values[0].nbytes
        if not self.left:
            self.compare()

    def compare(self) -> None:
        """Compare the rows with the table of checksums."""
        for k, (client, running) in self.running.items():
            self.file.compare(self.path, k, client, running.intdigest())


def _verify(file: RoundFile, which: str, name: str, raw: _File, places: Sequence[int]) -> None:
    """Compare a parameter's rows with their checksums before chunks of them are handed out.

    Chunks come in any order and belong to several rows, so rows are read once more, in blocks that stay in the cache.
    """
    rows = _Verified(file, which, name)
    block = np.empty(min(rows.size, _BLOCK), np.uint8)
    for k, (client, running) in rows.running.items():
        for begin in range(0, rows.size, _BLOCK):
            part = block[: rows.size - begin]
            raw.read(part, places[k] + begin)
            running.update(part)
        file.compare(rows.path, k, client, running.intdigest())


def _rows(stored: ValidatedDataset, shape: tuple[int, ...], stacked: bool) -> tuple[int, ...] | None:
    """Return the byte where each row of a dataset [C, \\*shape] begins; None where it has no single one."""
    if not prod(stored.shape):
        return None
    count, dataset = stored.shape[0] if stacked else 1, stored.id
    first = dataset.get_offset()
    if first is not None:  # contiguous
        width = stored.dtype.itemsize * prod(shape)
        return tuple(first + k * width for k in range(count))
    made = dataset.get_create_plist()
    if not stacked or made.get_layout() != h5py.h5d.CHUNKED or made.get_nfilters() or made.get_chunk() != (1, *shape):
        return None
    chunks = [dataset.get_chunk_info_by_coord((k, *(0,) * len(shape))) for k in range(count)]
    return None if any(chunk.byte_offset is None for chunk in chunks) else tuple(chunk.byte_offset for chunk in chunks)
