"""Validation of HDF5 files: each dataset is compared with its expected type, shape and stored size before it is read.

After that no reader meets a missing dataset, a link, another type or shape, or a size that is declared but not stored.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from .code_words import code_words_at, is_recorded_at
from .errors import FedscopeError, format_size
from .shell_words import command_line
from .visible_text import visible

#: how often gzip, at most, holds its own size
GZIP = 1032
_KINDS = {"iu": "whole numbers", "f": "floating"}
# groups within groups: methods need three; a group that is a member of itself has no end
_DEEPEST = 12


class ValidatedDataset(NamedTuple):
    """A validated dataset of an open file."""

    id: Any
    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class DamagedError(FedscopeError):
    """A round's file in which something is wrong, and what can be done about it.

    Attributes:
        path: the file; what: is wrong.
    """

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path} is damaged: {what}; {remedy(path)}")
        self.path, self.what = path, what


def remedy(path: Path) -> str:
    """Name the remedy for a damaged file of a round."""
    if path.parent.name != "rounds" or not path.stem.isdecimal():
        return "restore it from a copy"
    run, before = path.parent.parent, int(path.stem) - 1
    if is_recorded_at(run):
        return "restore it from a copy, or record its training again"
    if not before:
        return "restore it from a copy, or train again"
    again = command_line("train", "--from", f"{run}@{before}", *code_words_at(run, branch=True))
    return f"restore it from a copy, or train again from the round before: {again}"


class ValidatedFile:
    """An open file of a round, asked for datasets by their paths.

    Args:
        file: h5py's.
        path: for sentences.
    """

    def __init__(self, file: Any, path: Path) -> None:
        self.file, self.path = file, path
        self._groups: set[str] = {""}

    def damaged(self, what: str) -> DamagedError:
        """See :class:`DamagedError`."""
        return DamagedError(self.path, what)

    def has(self, path: str) -> bool:
        """Check whether something has this name.

        Raises:
            FedscopeError: a link, which might lead into another file.
        """
        parent, _, _ = path.rpartition("/")
        if parent not in self._groups:
            if not self.has(parent):
                return False
            if not self.is_group(parent):
                raise self.damaged(f"{parent} is not a group")
            self._groups.add(parent)
        try:
            kind = self.file.id.links.get_info(path.encode()).type
        except (KeyError, RuntimeError):
            return False
        if kind != h5py.h5l.TYPE_HARD:
            raise self.damaged(f"{path} is a link, but a round's file holds its data itself")
        return True

    def is_group(self, path: str) -> bool:
        """Check whether a name is that of a group, not of a dataset."""
        return bool(h5py.h5o.get_info(self.file.id, path.encode()).type == h5py.h5o.TYPE_GROUP)

    def names(self, group: str) -> list[str]:
        """List the names in a group, in order; nothing where there is no such group.

        Raises:
            FedscopeError: it is no group, or holds itself.
        """
        if group.count("/") > _DEEPEST:
            raise self.damaged(f"{group} has no end")
        if not group:
            found = self.file.id
        elif not self.has(group):
            return []
        elif not self.is_group(group):
            raise self.damaged(f"{group} is not a group")
        else:
            found = h5py.h5g.open(self.file.id, group.encode())
        names: list[bytes] = []
        found.links.iterate(names.append)
        return sorted(name.decode(errors="replace") for name in names)

    def dataset(self, path: str, types: str | np.dtype[Any], shape: tuple[int, ...] | None = None) -> ValidatedDataset:
        """Open a dataset once it is what it must be, and its data are there.

        Args:
            types: a dtype, in any byte order, or the kinds of several (``iu``: whole numbers).
            shape: any by default.

        Raises:
            FedscopeError: missing, a link or a group; another type or shape; less data than it declares; data that
            are in another file.
        """
        if not self.has(path):
            raise self.damaged(f"it lacks {path}")
        try:
            found = h5py.h5d.open(self.file.id, path.encode())
            here, dtype = tuple(map(int, found.shape)), found.dtype
        except (KeyError, TypeError, ValueError, RuntimeError, OSError):
            raise self.damaged(f"{path} is not a dataset of numbers") from None
        if shape is not None and here != shape:
            raise self.damaged(
                f"{path} has shape {here}, but run.json and the cohort say {shape}; the file may be another run's"
            )
        if not (dtype.kind in types if isinstance(types, str) else dtype.newbyteorder("=") == types):
            wanted = _KINDS.get(types, "numbers") if isinstance(types, str) else types
            raise self.damaged(f"{path} is {dtype}, not {wanted}")
        if _is_external(found):
            raise self.damaged(f"the data of {path} are in another file")
        if lacks := _undersize(found):
            raise self.damaged(f"{path} {lacks}")
        return ValidatedDataset(found, path, here, dtype)


def refuse_links(path: Path, group: Any) -> None:
    """Refuse members of a group that are links, before any is looked at: HDF5 opens the file that one leads to, and
    waits for ever where it is a named pipe.

    Raises:
        FedscopeError: names the first link.
    """
    links: list[bytes] = []

    def note(name: bytes, member: Any) -> None:
        if member.type != h5py.h5l.TYPE_HARD:
            links.append(name)

    group.id.links.iterate(note, info=True)
    if links:
        place = f"{group.name}/{links[0].decode(errors='replace')}".lstrip("/")
        raise FedscopeError(
            f"{path}: {visible(place)} is a link, but the file must hold its data itself; give a file that does"
        )


def refuse_unstored(path: Path, dataset: Any) -> None:
    """Refuse a dataset that declares more than the file holds of it: a few bytes can declare a terabyte.

    Raises:
        FedscopeError: with both sizes; values that are in another file.
    """
    if dataset.shape is None:
        return
    if _is_external(dataset.id):
        raise FedscopeError(f"{path} keeps {dataset.name} in another file; give a file that holds its values itself")
    if lacks := _undersize(dataset.id):
        raise FedscopeError(f"{path} is damaged: {dataset.name} {lacks}; restore it from a copy")


def read_array(path: Path, file: Any, name: str, kinds: str, dimensions: int) -> np.ndarray:
    """Read a dataset of numbers.

    Args:
        kinds: NumPy's, as ``iu`` for whole numbers.
        dimensions: how many it must have.

    Raises:
        FedscopeError: missing, no dataset, another type or number of dimensions, less stored than declared.
    """
    dataset = file.get(name)
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
        raise FedscopeError(f"{path} is damaged: it has no {name}; restore it from a copy")
    if dataset.dtype.kind not in kinds or len(dataset.shape) != dimensions:
        raise FedscopeError(
            f"{path} is damaged: {name} is {dataset.dtype} of shape {list(dataset.shape)}, not "
            f"{_KINDS.get(kinds, 'numbers')} of {dimensions} dimension{'s' if dimensions > 1 else ''}; restore it from "
            "a copy"
        )
    refuse_unstored(path, dataset)
    return np.asarray(dataset[()])


def _is_external(dataset: Any) -> bool:
    """Check whether the values of a dataset, h5py's ``DatasetID``, are in another file."""
    made = dataset.get_create_plist()
    return bool(made.get_layout() == h5py.h5d.VIRTUAL or made.get_external_count())


def _undersize(dataset: Any) -> str:
    """Say how much a dataset declares and the file does not hold, or nothing: dimensions are only numbers until data
    come."""
    declared = prod(map(int, dataset.shape)) * dataset.dtype.itemsize  # Python's integers do not overflow
    stored = dataset.get_storage_size()
    if declared <= stored * (GZIP if dataset.get_create_plist().get_nfilters() else 1):
        return ""
    return f"declares {format_size(declared)}, but the file holds {format_size(stored)} of it"
