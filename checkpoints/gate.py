"""The gate: what is read of a round's file is first compared with what it must be and with what lies in the file.

After it nothing meets a missing dataset, a link, another type or shape, or a size that is declared but not stored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from .errors import FedscopeError, listed
from .recording import spoken_size
from .stored import GZIP

# groups within groups: methods need three; a group that is a member of itself has no end
_DEEPEST = 12


class Stored(NamedTuple):
    """A dataset that has passed the gate."""

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
    """What helps where a round's file is damaged."""
    if path.parent.name != "rounds" or not path.stem.isdecimal():
        return "restore it from a copy"
    before = int(path.stem) - 1
    if not before:
        return "restore it from a copy, or train anew"
    return (
        "restore it from a copy, or train again from the round before: fedscope train --from "
        f"{path.parent.parent}@{before}"
    )


class Gate:
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
        """Whether something has this name.

        Raises:
            FedscopeError: a link, which might lead into another file.
        """
        parent, _, _ = path.rpartition("/")
        if parent not in self._groups:
            if not self.has(parent):
                return False
            if not self.is_group(parent):
                raise self.damaged(f"{parent} is no group")
            self._groups.add(parent)
        try:
            kind = self.file.id.links.get_info(path.encode()).type
        except (KeyError, RuntimeError):
            return False
        if kind != h5py.h5l.TYPE_HARD:
            raise self.damaged(f"{path} is a link, but a round's file holds its data itself")
        return True

    def is_group(self, path: str) -> bool:
        """Whether what has this name is a group, not a dataset."""
        return bool(h5py.h5o.get_info(self.file.id, path.encode()).type == h5py.h5o.TYPE_GROUP)

    def names(self, group: str) -> list[str]:
        """What a group holds, in order; nothing where there is no such group.

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
            raise self.damaged(f"{group} is no group")
        else:
            found = h5py.h5g.open(self.file.id, group.encode())
        names: list[bytes] = []
        found.links.iterate(names.append)
        return sorted(name.decode(errors="replace") for name in names)

    def dataset(self, path: str, types: str | np.dtype[Any], shape: tuple[int, ...] | None = None) -> Stored:
        """A dataset that is what it must be, and whose data are there.

        Args:
            types: a dtype, in any byte order, or the kinds of several (``iu``: whole numbers).
            shape: any by default.

        Raises:
            FedscopeError: missing, a link or a group; another type or shape; less data than it declares; data that lie
                in another file.
        """
        if not self.has(path):
            raise self.damaged(f"it lacks {path}")
        try:
            found = h5py.h5d.open(self.file.id, path.encode())
            here, dtype = tuple(map(int, found.shape)), found.dtype
        except (KeyError, TypeError, ValueError, RuntimeError, OSError):
            raise self.damaged(f"{path} is no dataset of numbers") from None
        if shape is not None and here != shape:
            raise self.damaged(
                f"{path} has shape {here}, but run.json and the cohort say {shape}; the file may be another run's"
            )
        if not (dtype.kind in types if isinstance(types, str) else dtype.newbyteorder("=") == types):
            wanted = {"iu": "whole numbers", "f": "floating"}.get(types, "numbers") if isinstance(types, str) else types
            raise self.damaged(f"{path} is {dtype}, not {wanted}")
        self._refuse_unstored(found, path, here, dtype)
        return Stored(found, path, here, dtype)

    def _refuse_unstored(self, found: Any, path: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """A size that is declared costs nothing: dimensions are only numbers until their data are written."""
        made = found.get_create_plist()
        if made.get_layout() == h5py.h5d.VIRTUAL or made.get_external_count():
            raise self.damaged(f"the data of {path} lie in another file")
        declared = dtype.itemsize
        for size in shape:  # Python's integers do not overflow
            declared *= size
        stored = found.get_storage_size()
        if stored * (GZIP if made.get_nfilters() else 1) < declared:
            raise self.damaged(
                f"{path} declares {spoken_size(declared)}, but the file holds {spoken_size(stored)} of it"
            )


def refuse_columns(gate: Gate, columns: dict[str, np.ndarray | None], population: int | None) -> None:
    """Refuse columns of a cohort that contradict each other or themselves.

    Args:
        population: N, where it is known: ids are below it.

    Raises:
        FedscopeError: lengths that differ; ids that are not ascending, or of no client of the run; counts below 0; p
            that is not finite, negative, or does not sum to 1.
    """
    sizes = {name: len(column) for name, column in columns.items() if column is not None}
    if len(set(sizes.values())) > 1:
        raise gate.damaged(f"its columns have different lengths ({listed(f'{k} {n}' for k, n in sizes.items())})")
    ids, p = columns["client_ids"], columns["weights"]
    if ids is not None and len(ids):
        if (ids[1:] <= ids[:-1]).any():
            raise gate.damaged(f"client_ids are not ascending ({listed(ids)})")
        if ids[0] < 0 or (population is not None and ids[-1] >= population):
            bound = "" if population is None else f", of clients 0 to {population - 1}"
            raise gate.damaged(f"client_ids goes from {ids[0]} to {ids[-1]}{bound}")
    for name in ("client_samples", "client_steps"):
        column = columns[name]
        if column is not None and (column < 0).any():
            raise gate.damaged(f"{name} has {column.min()}, which counts nothing")
    # the sum of C numbers between 0 and 1, each rounded, be it in float32
    if p is not None and len(p) and not (np.isfinite(p).all() and p.min() >= 0 and abs(p.sum() - 1) <= 1e-5):
        raise gate.damaged(f"weights are p, none negative and their sum 1, but here they sum to {p.sum():g}")
