"""Matrices [C, P] on disk: temporary ones, and the clients of a recorded round. Rows and columns are read when they are
asked for."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, cast
from weakref import finalize

import numpy as np

from ..io.atomic import disk_is_full
from ..io.errors import DiskFullError, FedscopeError, format_size
from ..models.weights import Weights
from .columns import read_chunks, read_columns, read_once
from .models import read_buffers
from .round import Round

#: numbers of all rows in a block of columns: 16 MiB of float32, as chunks of recorded rounds have
NUMBERS = 4 * 2**20
#: where rows are, in errors about what they lack and an array has
ON_DISK = "on the disk"


class DiskMatrix(ABC):
    """A matrix [C, P] on disk that can be the ``parameters`` of :class:`~fedscope.checkpoints.Weights`.

    ``rows[k]`` is row k [P], read anew; ``rows[[3, 5]]`` are some of them [2, P]; ``rows[:, a:b]`` is the same for some
    columns, of which nothing is read yet. Iterating reads a row at a time. ``np.asarray(rows)`` reads everything, so
    whatever numpy does works, with the memory that it takes.

    Attributes:
        shape: (C, P).
        dtype: in memory.
    """

    ndim = 2

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)

    @abstractmethod
    def read(self, k: int, where: slice) -> np.ndarray:
        """Columns ``where`` of row k, [n], in an array of their own. Any thread may ask."""

    def block(self, where: slice) -> np.ndarray:
        """Columns ``where`` of all rows, [C, n]."""
        values = np.empty((len(self), where.stop - where.start), self.dtype)
        for k, row in enumerate(values):
            row[:] = self.read(k, where)
        return values

    def blocks(self, numbers: int = NUMBERS) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield all columns in their order, some at a time: where they lie, and their values [C, n].

        Args:
            numbers: in a block, at most (at least a column).
        """
        for where in cut(self.shape[1], max(1, numbers // max(1, len(self)))):
            yield where, self.block(where)

    def once(self, columns: int, room: Callable[[int], np.ndarray]) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield all columns in their order, so many at a time, of which each byte is read once.

        Args:
            room: gives a flat buffer for so many numbers, which the values are read into.

        Raises:
            FedscopeError: at the end, what has been yielded was damaged; see
                :func:`~fedscope.checkpoints.rounds.columns.read_once`.
        """
        for where in cut(self.shape[1], columns):
            values = room(len(self) * (where.stop - where.start)).reshape(len(self), -1)
            for k, row in enumerate(values):
                self.read_into(row, k, where.start)
            yield where, values

    def read_into(self, row: np.ndarray, k: int, begin: int) -> None:
        """Fill a contiguous row with as many columns of row k."""
        row[:] = self.read(k, slice(begin, begin + len(row)))

    @property
    def nbytes(self) -> int:
        """The bytes that it would take in memory."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):
            rows, where = key
            if rows not in (slice(None), Ellipsis) or not isinstance(where, slice):
                raise IndexError(f"rows {ON_DISK} are asked for whole, or for columns [:, a:b], not [{key}]")
            begin, end, step = where.indices(self.shape[1])
            if step != 1:
                raise IndexError(f"columns {ON_DISK} follow each other, but their step is {step}")
            return _Columns(self, slice(begin, max(begin, end)))
        if isinstance(key, int | np.integer):
            if not -len(self) <= key < len(self):
                raise IndexError(f"there is no row {key} of {len(self)}")
            return self.read(int(key) % len(self), slice(0, self.shape[1]))
        picked = np.arange(len(self))[key]
        return np.stack([self[int(k)] for k in picked]) if len(picked) else np.empty((0, self.shape[1]), self.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        whole = self.block(slice(0, self.shape[1]))
        return whole if dtype is None else whole.astype(dtype, copy=False)


class _Columns(DiskMatrix):
    """Some columns of another matrix on the disk."""

    def __init__(self, whole: DiskMatrix, where: slice) -> None:
        super().__init__((len(whole), where.stop - where.start), whole.dtype)
        self._whole, self._begin = whole, where.start

    def read(self, k: int, where: slice) -> np.ndarray:
        return self._whole.read(k, slice(self._begin + where.start, self._begin + where.stop))

    def block(self, where: slice) -> np.ndarray:
        return self._whole.block(slice(self._begin + where.start, self._begin + where.stop))


class ReadOnlyMatrix(DiskMatrix):
    """Another matrix on the disk, which refuses to be written to as an array does that cannot be."""

    def __init__(self, whole: DiskMatrix) -> None:
        super().__init__(whole.shape, whole.dtype)
        self._whole = whole

    def __setitem__(self, key: Any, values: Any) -> None:
        raise ValueError("assignment destination is read-only")

    def read(self, k: int, where: slice) -> np.ndarray:
        return self._whole.read(k, where)

    def block(self, where: slice) -> np.ndarray:
        return self._whole.block(where)

    def blocks(self, numbers: int = NUMBERS) -> Iterator[tuple[slice, np.ndarray]]:
        yield from self._whole.blocks(numbers)

    def once(self, columns: int, room: Callable[[int], np.ndarray]) -> Iterator[tuple[slice, np.ndarray]]:
        yield from self._whole.once(columns, room)


class TemporaryMatrix(DiskMatrix):
    """A matrix whose rows are written once, in any order, and read until nobody holds it any more.

    The file has no name: it is gone when its process ends, in whatever way, so there is nothing to clean up.

    Args:
        folder: on whose disk it is.
        what: its rows are, for sentences.

    Raises:
        DiskFullError: a row that does not fit any more; says how much all of them take.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = TemporaryMatrix(folder, (2, 3), np.dtype("float32"))
    ...     rows[1], rows[0] = [4, 5, 6], [1, 2, 3]
    ...     rows[1].tolist(), np.asarray(rows[:, 1:]).tolist(), os.listdir(folder)
    ([4.0, 5.0, 6.0], [[2.0, 3.0], [5.0, 6.0]], [])
    """

    def __init__(
        self, folder: Path | str, shape: tuple[int, int], dtype: np.dtype[Any], what: str = "clients of a round"
    ) -> None:
        super().__init__(shape, dtype)
        self._folder, self._what = folder, what
        # of a system that cannot do without a name it is one that an interrupted write would have, and swept as such
        self._file = TemporaryFile(dir=folder, prefix=".clients.", suffix=".tmp", buffering=0)  # noqa: SIM115
        finalize(self, self._file.close)

    def __setitem__(self, k: int, row: np.ndarray) -> None:
        values = np.ascontiguousarray(row, self.dtype)
        if values.shape != self.shape[1:]:
            raise ValueError(f"row {k} has shape {values.shape}, but there are {self.shape[1]} columns")
        self._write(values, k * values.nbytes)

    def put(self, where: slice, values: np.ndarray) -> None:
        """Write columns of all rows, [C, n], at their place.

        Raises:
            DiskFullError: as of a row.
        """
        for k, row in enumerate(np.ascontiguousarray(values, self.dtype)):
            self._write(row, (k * self.shape[1] + where.start) * self.dtype.itemsize)

    def _write(self, values: np.ndarray, place: int) -> None:
        left = values.data.cast("B") if values.size else memoryview(b"")
        while left:
            try:
                written = os.pwrite(self._file.fileno(), left, place)
            except OSError as error:
                if not disk_is_full(error):
                    raise
                raise DiskFullError(
                    f"{self._folder}: the disk is full: the {self._what}, which are put aside there, take "
                    f"{format_size(self.nbytes)}; make room"
                ) from error
            left, place = left[written:], place + written

    def read(self, k: int, where: slice) -> np.ndarray:
        values = np.empty(where.stop - where.start, self.dtype)
        self.read_into(values, k, where.start)
        return values

    def read_into(self, row: np.ndarray, k: int, begin: int) -> None:
        left = row.data.cast("B") if row.size else memoryview(b"")
        place = (k * self.shape[1] + begin) * self.dtype.itemsize
        while left:
            got = read_at(self._file.fileno(), left, place)
            if not got:
                raise FedscopeError(
                    f"row {k} of the {self._what} that were put aside in {self._folder} was never written"
                )
            left, place = left[got:], place + got


class RecordedMatrix(DiskMatrix):
    """The parameters of a recorded round's clients, in the order of ``client_ids``; whatever is read is verified, once.

    Raises:
        FedscopeError: on reading, as :meth:`Round.clients` and :func:`read_chunks`.
    """

    def __init__(self, round_: Round) -> None:
        self._round, self._ids = round_, round_.client_ids
        super().__init__((len(self._ids), round_.layout.size), round_.layout.dtype)

    def read(self, k: int, where: slice) -> np.ndarray:
        return self._round.client(int(self._ids[k])).parameters[where]

    def block(self, where: slice) -> np.ndarray:
        values = np.empty((len(self), where.stop - where.start), self.dtype)
        for layer, own in self._round.layout.slices.items():
            begin, end = max(own.start, where.start), min(own.stop, where.stop)
            if begin < end:
                for chunk in read_chunks(self._round, own.stop - own.start, [layer]):
                    values[:, begin - where.start : end - where.start] = chunk.read()[
                        :, begin - own.start : end - own.start
                    ]
        return values

    def blocks(self, numbers: int = NUMBERS) -> Iterator[tuple[slice, np.ndarray]]:
        for columns in read_columns(self._round, numbers=numbers):
            yield columns.where, columns.values

    def once(self, columns: int, room: Callable[[int], np.ndarray]) -> Iterator[tuple[slice, np.ndarray]]:
        yield from read_once(self._round, columns, room)


def recorded_matrix(round_: Round) -> Weights:
    """Open the clients of a round, [C, P]: their parameters stay in the file, their buffers are read.

    Raises:
        FedscopeError: they were not recorded.
    """
    round_.refuse_missing_clients()
    with round_.open(stacked=True) as file:
        buffers = read_buffers(file, range(len(round_.client_ids)))
    return Weights(round_.layout, as_array(RecordedMatrix(round_)), buffers)


def read_at(file: int, left: memoryview, place: int) -> int:
    """Read what there is at a place of a file, straight to where it shall be; how many bytes."""
    if hasattr(os, "preadv"):
        return os.preadv(file, [left], place)
    part = os.pread(file, min(len(left), 2**24), place)  # not on this system
    left[: len(part)] = part
    return len(part)


def cut(columns: int, width: int) -> Iterator[slice]:
    """Yield all columns, ``width`` at a time.

    >>> list(cut(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    for begin in range(0, columns, width):
        yield slice(begin, min(begin + width, columns))


def as_array(rows: DiskMatrix) -> np.ndarray:
    """Cast a matrix on disk to an array: callers ask it for rows, columns, its shape and its dtype alone."""
    return cast(np.ndarray, rows)


def as_disk_matrix(rows: np.ndarray) -> DiskMatrix | None:
    """Cast an array back to the matrix on disk that it is; None of an array in memory."""
    found: object = rows
    return found if isinstance(found, DiskMatrix) else None
