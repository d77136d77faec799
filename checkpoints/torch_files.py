"""torch's own files, zipped or of before 1.6, read as data: no code in them is ever run."""

from __future__ import annotations

import io
import mmap
import pickle
import pickletools
import re
import zipfile
from pathlib import Path
from typing import IO, Any

from .errors import FedscopeError
from .foreign import members, reading, verify

WHAT = "a checkpoint of torch"
# Before torch 1.6: a magic number, a version, the machine, the object and the keys of its storages; then the storages.
_PICKLES = 5


def read_torch(path: Path) -> Any:
    """What ``torch.load(..., weights_only=True)`` returns, on the CPU.

    Raises:
        FedscopeError: damaged or foreign; a pickle that would run code; a TorchScript program; a storage that declares
            more than the file holds, with both numbers.
    """
    import torch

    found, stored = None, path.stat().st_size
    with reading(path, WHAT):
        zipped = zipfile.is_zipfile(path)  # raises on some damaged ones
    if zipped:
        found = members(path, WHAT)
        stored = sum(member.file_size for member in found)
        _refuse_programs(path, [member.filename for member in found])
        verify(path, WHAT, found)
    with reading(path, WHAT):
        for pickled in _pickles(path, found):
            _refuse_oversized_storages(path, pickled, stored)
        try:
            with path.open("rb") as file:  # not by its name, whose ending torch would believe
                return torch.load(file, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            if "invalid load key" in str(error):
                raise
            wants = re.search(r"GLOBAL (\S+)", str(error))
            which = f" ({wants[1]})" if wants else ""
            raise FedscopeError(
                f"{path} is a pickle that would run code{which}, and a checkpoint must never"
                " run code; load it where it came from and save its tensors alone: torch.save(model.state_dict(), ...)"
            ) from error


def _refuse_programs(path: Path, names: list[str]) -> None:
    if any(name.endswith(("/constants.pkl", "/code/")) or "/code/" in name for name in names):
        raise FedscopeError(
            f"{path} is a TorchScript program, which is code; save its tensors: torch.save(model.state_dict(), ...)"
        )


def _pickles(path: Path, found: list[zipfile.ZipInfo] | None) -> list[list[tuple[str, Any]]]:
    """The operations of a file's pickles, by name and argument; nothing is run."""
    if found is not None:
        with zipfile.ZipFile(path) as archive:
            inside = [member for member in found if member.filename.endswith("data.pkl")]
            return [_operations(io.BytesIO(archive.read(member))) for member in inside]
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        pickles: list[list[tuple[str, Any]]] = []
        while len(pickles) < _PICKLES and mapped.tell() < len(mapped):
            pickles.append(_operations(mapped))
        return pickles


def _operations(file: IO[bytes] | mmap.mmap) -> list[tuple[str, Any]]:
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
