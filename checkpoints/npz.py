"""NumPy's ``.npz``: plain arrays only, and never more memory than the file holds."""

from __future__ import annotations

import zipfile
from collections.abc import Collection
from math import prod
from pathlib import Path

import numpy as np

from .errors import FedscopeError
from .foreign import members, reading
from .opening import regular

WHAT = "an .npz file"


def read_npz(path: Path, only: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` by name; no pickle in it is ever loaded.

    Args:
        only: names to read, where others may lie beside; all by default.

    Raises:
        FedscopeError: damaged or foreign; an array of Python objects; an array whose header declares another size than
            is stored, with both.
    """
    regular(path, WHAT)
    arrays: dict[str, np.ndarray] = {}
    found = members(path, WHAT)
    with reading(path, WHAT), zipfile.ZipFile(path) as archive:
        for member in found:
            name = member.filename.removesuffix(".npy")
            if name == member.filename or (only is not None and name not in only):
                continue
            _check_header(path, name, archive, member)
            with archive.open(member) as file:
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    return arrays


def npz_names(path: Path) -> list[str]:
    """The names of the arrays in an ``.npz``, without reading one.

    Raises:
        FedscopeError: damaged or foreign.
    """
    found = members(regular(path, WHAT), WHAT)
    return [member.filename.removesuffix(".npy") for member in found if member.filename.endswith(".npy")]


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
