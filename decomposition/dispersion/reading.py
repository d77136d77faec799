"""A round's clients in pieces that several threads read at once.

HDF5 has one lock, and takes three times as long as the system to copy rows of a large layer. Where they lie in the file
as they are in memory, HDF5 only says where, and whoever needs a piece reads it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError, Round, read_columns
from ...checkpoints.hdf5 import reading

# Of all clients in a piece: 4 MiB of float32.
NUMBERS = 2**20


@dataclass(frozen=True, eq=False)
class Piece:
    """Columns ``start`` to ``start + count`` of a flattened layer, of all clients.

    Attributes:
        values: [C, count] where the file was compressed, else None, and
        places: the byte of the file where each client's begin, [C].
    """

    layer: str
    start: int
    count: int
    values: np.ndarray | None = None
    places: tuple[int, ...] = ()


def pieces(round_: Round, layers: Collection[str] | None = None, numbers: int | None = None) -> Iterator[Piece]:
    """The clients' parameters, a piece after the other in the layout's order.

    Args:
        layers: only these; all by default.
        numbers: of all clients in a piece, at most (where it is not compressed, and at least a column).

    Raises:
        FedscopeError: as :func:`~fedscope.checkpoints.read_columns`.
    """
    numbers = NUMBERS if numbers is None else numbers
    begins = _places(round_)
    for name, where in round_.layout.slices.items():
        if layers is not None and name not in layers:
            continue
        if name not in begins:
            for columns in read_columns(round_, [name], numbers):
                yield from _cut(columns.layer, columns.start, columns.values, numbers)
            continue
        step, width = max(1, numbers // len(begins[name])), round_.layout.dtype.itemsize
        for start in range(0, where.stop - where.start, step):
            count = min(step, where.stop - where.start - start)
            yield Piece(name, start, count, places=tuple(first + start * width for first in begins[name]))


def read_piece(piece: Piece, file: Any, buffer: np.ndarray) -> np.ndarray:
    """The piece's values [C, count], in ``buffer`` where they are still in ``file``.

    Raises:
        FedscopeError: the file ends before.
    """
    if piece.values is not None:
        return piece.values
    clients = len(piece.places)
    values = buffer[: clients * piece.count].reshape(clients, piece.count)
    for row, place in zip(values, piece.places, strict=True):
        left = row.data.cast("B")
        while left:
            got = os.preadv(file.fileno(), [left], place)
            if not got:
                raise FedscopeError(f"{file.name} is truncated: it ends before byte {place}; restore it from a copy")
            left, place = left[got:], place + got
    return values


def _cut(layer: str, first: int, values: np.ndarray, numbers: int) -> Iterator[Piece]:
    # a compressed layer comes whole, and work on all of it at once would take several times its memory
    step = max(1, numbers // len(values))
    for start in range(0, values.shape[1], step):
        part = values[:, start : start + step]
        yield Piece(layer, first + start, part.shape[1], part)


def _places(round_: Round) -> dict[str, tuple[int, ...]]:
    """Where in the file each client's row of a layer begins, for layers whose rows can be read as they lie there."""
    if not round_.has_clients or not hasattr(os, "preadv"):
        return {}
    found = {}
    with reading(round_.path, None, 0, "a round of a fedscope run") as file:
        if file.userblock_size:
            return {}
        for entry in round_.layout.parameters:
            name, dataset = entry.name, file["clients"][entry.name]
            if dataset.shape[1:] != entry.shape:
                raise FedscopeError(
                    f"{round_.path}: clients/{name} has shape {dataset.shape[1:]}, but run.json says {entry.shape}; "
                    "the file belongs to another run"
                )
            if dataset.dtype == round_.layout.dtype and "encoding" not in dataset.attrs and dataset.size:
                rows = _rows(dataset)
                if rows is not None:
                    found[name] = rows
    return found


def _rows(dataset: Any) -> tuple[int, ...] | None:
    """The byte where each row of a dataset [C, \\*shape] begins; None where it has no single one."""
    clients, shape = dataset.shape[0], dataset.shape[1:]
    first = dataset.id.get_offset()
    if first is not None:  # of one piece
        width = dataset.dtype.itemsize * prod(shape)
        return tuple(first + k * width for k in range(clients))
    if dataset.chunks != (1, *shape) or dataset.id.get_create_plist().get_nfilters():
        return None
    chunks = [dataset.id.get_chunk_info_by_coord((k, *(0,) * len(shape))) for k in range(clients)]
    return None if any(chunk.byte_offset is None for chunk in chunks) else tuple(chunk.byte_offset for chunk in chunks)
