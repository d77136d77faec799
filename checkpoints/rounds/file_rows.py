"""Models in ``.safetensors`` whose numbers are read where they lie: a matrix [C, P] on the disk without a copy."""

from __future__ import annotations

import json
import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np

from ..io.errors import FedscopeError
from ..io.untrusted import regular
from ..models.adapters import about_adapters
from ..models.expected import ExpectedModel
from ..models.files import files_of_model, safetensors_shapes
from ..models.weights import Layout, Weights
from .disk_matrix import DiskMatrix, read_at

#: files that are open at once, at most; systems allow 256 and more
OPEN = 200
# bytes of every model that the system is told of before they are read
_AHEAD = 2**20
_STORED = {"F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32", "BOOL": "bool"}


class _Place(NamedTuple):
    """Where a tensor lies: the first byte in a file."""

    file: Path
    begin: int


class FileRows(DiskMatrix):
    """Parameters of models, each read from its own files.

    Args:
        models: by the name of each parameter where it lies, as :func:`places_of` finds it.
    """

    def __init__(self, layout: Layout, models: Sequence[Mapping[str, _Place]]) -> None:
        super().__init__((len(models), layout.size), layout.dtype)
        self._slices = [(name, where) for name, where in layout.slices.items() if where.start < where.stop]
        self._starts = [where.start for _, where in self._slices]
        self._models = models
        self._files: dict[Path, Any] = {}
        with ExitStack() as stack:
            for place in (place for model in models for place in model.values()):
                if place.file not in self._files:
                    self._files[place.file] = stack.enter_context(place.file.open("rb", buffering=0))
            finalize(self, stack.pop_all().close)

    def read(self, k: int, where: slice) -> np.ndarray:
        values = np.empty(where.stop - where.start, self.dtype)
        self.read_into(values, k, where.start)
        return values

    def read_into(self, row: np.ndarray, k: int, begin: int) -> None:
        for file, place, own in self._parts(k, begin, len(row)):
            left = row[own].data.cast("B")
            while left:
                got = read_at(self._files[file].fileno(), left, place)
                if not got:
                    raise FedscopeError(f"{file} is truncated: it ends before byte {place}; copy or save it again")
                left, place = left[got:], place + got

    def once(self, columns: int, room: Callable[[int], np.ndarray]) -> Iterator[tuple[slice, np.ndarray]]:
        told = 0
        for where, values in super().once(columns, room):
            while told < min(self.shape[1], where.stop + _AHEAD // self.dtype.itemsize):
                self._announce(told, columns)
                told += columns
            yield where, values

    def _announce(self, begin: int, columns: int) -> None:
        """Have the system fetch columns while others are worked on."""
        if not hasattr(os, "posix_fadvise"):  # not on this system
            return
        for k in range(len(self)):
            for file, place, own in self._parts(k, begin, min(columns, self.shape[1] - begin)):
                size = (own.stop - own.start) * self.dtype.itemsize
                os.posix_fadvise(self._files[file].fileno(), place, size, os.POSIX_FADV_WILLNEED)

    def _parts(self, k: int, begin: int, count: int) -> Iterator[tuple[Path, int, slice]]:
        """Yield the parts of some columns of a model: file, first byte, and their place among these columns."""
        at, end = bisect_right(self._starts, begin) - 1, begin + count
        while begin < end:
            name, where = self._slices[at]
            stop = min(end, where.stop)
            file, first = self._models[k][name]
            own = slice(begin - end + count, stop - end + count)
            yield file, first + (begin - where.start) * self.dtype.itemsize, own
            begin, at = stop, at + 1


def rows_of_files(addresses: Sequence[str], expected: ExpectedModel) -> Weights | None:
    """Open models [C, P] that can be read where they lie: ``.safetensors``, in one file or in parts, with the expected
    names and dtypes, all parameters of one; of a tied tensor one name is enough. None where any of them is something
    else.

    Their buffers are read.

    Raises:
        FedscopeError: parts of a model that are not there, or cannot be read.
    """
    layout = expected.layout
    # a row is numbers of one type; those of parameters of several types are widened to it
    alike = all(np.dtype(entry.dtype) == layout.dtype for entry in layout.parameters)
    if sys.byteorder != "little" or about_adapters(layout.names) or not alike:
        return None
    models: list[Mapping[str, _Place]] = []
    used: set[Path] = set()
    buffers: dict[str, list[np.ndarray]] = {entry.name: [] for entry in layout.buffers}
    for address in addresses:
        places = places_of(address, expected)
        used |= {place.file for place in (places or {}).values()}
        if places is None or len(used) > OPEN:
            return None
        models.append({entry.name: places[entry.name] for entry in layout.parameters})
        for entry in layout.buffers:
            with places[entry.name].file.open("rb") as file:
                file.seek(places[entry.name].begin)
                values = np.empty(entry.shape, entry.dtype)
                file.readinto(values.reshape(-1).view(np.uint8).data)
            buffers[entry.name].append(values)
    rows: Any = FileRows(layout, models)
    return Weights(layout, rows, {name: np.stack(own) for name, own in buffers.items()})


def places_of(address: str, expected: ExpectedModel) -> dict[str, _Place] | None:
    """Find where every expected tensor lies; None where the model has others, or in another type.

    Raises:
        FedscopeError: as :func:`rows_of_files`.
    """
    shapes = safetensors_shapes(address)  # which also checks the files
    if shapes is None:
        return None
    entries = {entry.name: entry for entry in expected.layout.entries}
    found: dict[str, _Place] = {}
    for file in files_of_model(Path(address)):
        with regular(file, "a model's file").open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(size))
        for name, about in header.items():
            if name == "__metadata__":
                continue
            wanted = entries.get(name)
            dtype = _STORED.get(about["dtype"])
            if wanted is None or name in found or (dtype, tuple(about["shape"])) != (wanted.dtype, wanted.shape):
                return None
            found[name] = _Place(file, 8 + size + about["data_offsets"][0])
    if any(other in found for name in found for other in expected.tied.get(name, ())):
        return None  # they must be compared
    for name in expected.layout.names:
        if name not in found:
            other = next((other for other in expected.tied.get(name, ()) if other in found), None)
            if other is None:
                return None
            found[name] = found[other]
    return found
