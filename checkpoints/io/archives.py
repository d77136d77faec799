"""Archives of numbers from elsewhere, NumPy's ``.npz`` and torch's own files: nothing in them is run, and no more
memory is taken than they hold."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import re
import zipfile
from collections.abc import Collection
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from .errors import FedscopeError, list_few
from .pickled_numbers import admit_numbers, with_numbers
from .untrusted import explain_read_errors, regular

_NPZ, _TORCH = "an .npz file", "a checkpoint of torch"
# What a file unpacks to may be so many times its size; less than the room is never asked about.
RATIO, ROOM = 200, 64 * 2**20
_ENCRYPTED = 0x1
# Before torch 1.6: a magic number, a version, the machine, the object and the keys of its storages; then the storages.
_PICKLES = 5
# Keys under which programs keep a state_dict.
_STATES = ("state_dict", "model_state_dict", "model_state", "net_state_dict")


def read_npz(path: Path, only: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Read the arrays of an ``.npz`` by name; no pickle in it is ever loaded.

    Args:
        only: names to read, where the file may hold others; all by default.

    Raises:
        FedscopeError: damaged or foreign; an array of Python objects; an array whose header declares another size than
            is stored, with both.
    """
    regular(path, _NPZ)
    arrays: dict[str, np.ndarray] = {}
    found = members(path, _NPZ)
    with explain_read_errors(path, _NPZ), zipfile.ZipFile(path) as archive:
        for member in found:
            name = member.filename.removesuffix(".npy")
            if name == member.filename or (only is not None and name not in only):
                continue
            _check_header(path, name, archive, member)
            with archive.open(member) as file:
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    return arrays


def npz_names(path: Path) -> list[str]:
    """List the names of the arrays in an ``.npz``, without reading one.

    Raises:
        FedscopeError: damaged or foreign.
    """
    found = members(regular(path, _NPZ), _NPZ)
    return [member.filename.removesuffix(".npy") for member in found if member.filename.endswith(".npy")]


def npz_size(path: Path, only: Collection[str]) -> int:
    """Return how many bytes arrays of an ``.npz`` take once they are read, compressed or not, without reading one.

    Raises:
        FedscopeError: damaged or foreign.
    """
    found = members(regular(path, _NPZ), _NPZ)
    return sum(member.file_size for member in found if member.filename.removesuffix(".npy") in only)


def read_torch(path: Path) -> Any:
    """Read a file as ``torch.load(..., weights_only=True)`` does, on the CPU; NumPy's numbers and arrays are read too.

    Classes that torch has been told are safe (``torch.serialization.safe_globals``) are taken here, too.

    Raises:
        FedscopeError: damaged or foreign; a pickle that would run code, or holds an object of a class; a TorchScript
            program; a storage that declares more than the file holds, with both numbers.
    """
    import torch

    found, stored = None, path.stat().st_size
    with explain_read_errors(path, _TORCH):
        zipped = zipfile.is_zipfile(path)  # raises on some damaged ones
    if zipped:
        found = members(path, _TORCH)
        stored = sum(member.file_size for member in found)
        _refuse_programs(path, [member.filename for member in found])
        verify(path, _TORCH, found)
    with explain_read_errors(path, _TORCH):
        pickles = _pickles(path, found)
        for pickled in pickles:
            _refuse_oversized_storages(path, pickled, stored)
        try:
            # not by its name, whose ending torch would believe
            with path.open("rb") as file, admit_numbers():
                return with_numbers(torch.load(file, map_location="cpu", weights_only=True))
        except pickle.UnpicklingError as error:
            if "invalid load key" in str(error):
                raise
            raise FedscopeError(f"{path} {_unread(str(error), pickles)}") from error


def read_torch_part(path: Path, offset: int, length: int) -> Any:
    """Read what ``torch.save`` wrote into a part of a file, as :func:`read_torch` reads a file.

    Raises:
        FedscopeError: as there; the file is shorter.
    """
    import torch

    with explain_read_errors(regular(path, _TORCH), _TORCH), path.open("rb") as file:
        stored = path.stat().st_size
        if offset < 0 or length <= 0 or offset + length > stored:
            raise FedscopeError(
                f"{path} has {stored:,} bytes, but a tensor is said to lie from {offset:,} to {offset + length:,}; "
                "copy it again"
            )
        file.seek(offset)
        part = io.BytesIO(file.read(length))
        found = _listed(path, part, length)
        _verify(part, found)
        with zipfile.ZipFile(part) as archive:
            inside = [member for member in found if member.filename.endswith("data.pkl")]
            for operations in [_operations(io.BytesIO(archive.read(member))) for member in inside]:
                _refuse_oversized_storages(path, operations, length)
        part.seek(0)
        return torch.load(part, map_location="cpu", weights_only=True)


def _unread(error: str, pickles: list[list[tuple[str, Any]]]) -> str:
    """Say why torch does not read a pickle without running code, and what to save instead."""
    keys = [argument for operations in pickles for _, argument in operations if isinstance(argument, str)]
    key = next((key for key in keys if key in _STATES), None)
    tensors = "model.state_dict()" if key is None else f'checkpoint["{key}"]'
    remedy = f"load it where it came from and save its tensors alone: torch.save({tensors}, ...)"
    wants = re.search(r"GLOBAL (\S+)", error)
    if wants is None:
        said = [line for line in error.splitlines() if line.startswith(("Unsupported ", "Trying to ", "Can only "))]
        reason = f" ({list_few(said, 1)})" if said else ""
        return f"is a pickle that torch does not read where no code may run{reason}; {remedy}"
    if wants[1].rpartition(".")[2][:1].isupper():  # a class, as classes are called
        return (
            f"holds an object of {wants[1]}, which only its own code can make, and a checkpoint must never run code; "
            f"{remedy}"
        )
    return f"is a pickle that would run code ({wants[1]}), and a checkpoint must never run code; {remedy}"


def refuse_oversize(place: object, declared: int, stored: int) -> None:
    """Refuse to unpack what is out of all proportion to the file, before memory is asked for.

    Args:
        place: for the sentence: the file.
        declared: bytes that it says it unpacks to; stored: bytes that are there.

    Raises:
        FedscopeError: more than 64 MiB, and more than 200 times what is stored.

    >>> refuse_oversize("bomb.npz", 2**40, 2**20)
    Traceback (most recent call last):
        ...
    fedscope.checkpoints.io.errors.FedscopeError: bomb.npz declares 1,099,511,627,776 bytes, but stores 1,048,576; ...
    """
    if declared > ROOM and declared > RATIO * stored:
        raise FedscopeError(
            f"{place} declares {declared:,} bytes, but stores {stored:,}; copy it again, or save it uncompressed if it "
            "is whole"
        )


def members(path: Path, what: str) -> list[zipfile.ZipInfo]:
    """List the members of a zip file, once the sizes that it declares go with the bytes that it stores.

    Where no checksums were written, the members have none either; open them by what is returned, not by name.

    Raises:
        FedscopeError: no zip file, encrypted, a name twice, members larger than the file, a zip bomb.
    """
    with explain_read_errors(path, what):
        return _listed(path, path, path.stat().st_size)


def _listed(path: Path, source: Path | IO[bytes], stored: int) -> list[zipfile.ZipInfo]:
    """List the members of a zip file of so many bytes, at a path or in memory; see :func:`members`."""
    with zipfile.ZipFile(source) as archive:
        found = archive.infolist()
    names = [member.filename for member in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FedscopeError(f"{path} holds {twice} twice; save it again")
    if any(member.flag_bits & _ENCRYPTED for member in found):
        raise FedscopeError(f"{path} is encrypted; save it without a password")
    for member in found:
        plain = member.compress_type == zipfile.ZIP_STORED
        if member.compress_size > stored or (plain and member.file_size != member.compress_size):
            declared = member.file_size if plain else member.compress_size
            holds = min(member.compress_size, stored)
            raise FedscopeError(
                f"{path}: {member.filename} declares {declared:,} bytes, but {holds:,} are stored; copy it again"
            )
    if (packed := sum(member.compress_size for member in found)) > stored:
        raise FedscopeError(f"{path} declares {packed:,} bytes of members, but stores {stored:,}; copy it again")
    refuse_oversize(path, sum(member.file_size for member in found), stored)
    if not any(member.CRC for member in found):  # torch can be told to write none, and zipfile would compare the zeros
        for member in found:
            del member.CRC
    return found


def verify(path: Path, what: str, found: list[zipfile.ZipInfo]) -> None:
    """Compare a zip file's members with their checksums, which torch does not: a flipped bit is another weight to it.

    Raises:
        FedscopeError: a member that is not what was saved.
    """
    with explain_read_errors(path, what):
        _verify(path, found)


def _verify(source: Path | IO[bytes], found: list[zipfile.ZipInfo]) -> None:
    with zipfile.ZipFile(source) as archive:
        for member in found:
            with archive.open(member) as file:
                while file.read(2**20):
                    pass


def _check_header(path: Path, name: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """NumPy makes room for what the header declares before it reads; so the header is compared first."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        stored = member.file_size - file.tell()
    if dtype.hasobject:
        raise FedscopeError(
            f"{path} holds Python objects ({name}), which could run code; save its arrays alone: "
            "numpy.savez(path, *arrays)"
        )
    declared = prod(shape) * dtype.itemsize
    if declared != stored:
        raise FedscopeError(
            f"{path}: {name} declares {declared:,} bytes ({list(shape)} of {dtype}), but {stored:,} are stored; "
            "copy or save it again"
        )


def _refuse_programs(path: Path, names: list[str]) -> None:
    if any(name.endswith(("/constants.pkl", "/code/")) or "/code/" in name for name in names):
        raise FedscopeError(
            f"{path} is a TorchScript program, which is code; save its tensors: torch.save(model.state_dict(), ...)"
        )


def _pickles(path: Path, found: list[zipfile.ZipInfo] | None) -> list[list[tuple[str, Any]]]:
    """Return the operations of a file's pickles, by name and argument; nothing is run."""
    if found is not None:
        with zipfile.ZipFile(path) as archive:
            inside = [member for member in found if member.filename.endswith("data.pkl")]
            return [_operations(io.BytesIO(archive.read(member))) for member in inside]
    with path.open("rb") as file:
        bounded = _Bounded(file)
        pickles: list[list[tuple[str, Any]]] = []
        while len(pickles) < _PICKLES and bounded.tell() < bounded.size:
            pickles.append(_operations(bounded))
        return pickles


class _Bounded:
    """A file of which no more is asked for than it has, whatever lengths a pickle declares.

    It is not mapped into memory, which not every file system can.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.size = file, os.fstat(file.fileno()).st_size
        self.readline, self.tell = file.readline, file.tell

    def read(self, count: int) -> bytes:
        return self._file.read(min(count, self.size - self._file.tell()))


def _operations(file: IO[bytes] | _Bounded) -> list[tuple[str, Any]]:
    return [(operation.name, argument) for operation, argument, _ in pickletools.genops(file)]  # type: ignore[arg-type]


def _refuse_oversized_storages(path: Path, operations: list[tuple[str, Any]], stored: int) -> None:
    """A storage's number of elements is the last whole number before its persistent id; torch makes room for it."""
    count = 0
    for name, argument in operations:
        if isinstance(argument, int) and name.startswith(("BININT", "LONG", "INT")):
            count = argument
        elif name == "BINPERSID" and not 0 <= count <= stored:
            raise FedscopeError(
                f"{path} declares a storage of {count:,} elements, but stores {stored:,} bytes; copy or save it again"
            )
