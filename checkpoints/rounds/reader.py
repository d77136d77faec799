"""An open round file: everything read from it is validated, and its checksums are compared once a process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..io import checksums
from ..io.checksums import KIND, NONE, VERIFIED, ChecksumTable, FileState
from ..io.errors import FedscopeError
from ..io.hdf5 import attribute, descriptor_of, open_hdf5
from ..io.hdf5_validation import ValidatedDataset, ValidatedFile
from ..models.weights import Layout
from .writer import FORMAT, OWN_STARTS

_WHAT = "a round of a fedscope run"


@contextmanager
def open_round(path: Path, layout: Layout, *, anew: bool = False) -> Iterator[RoundFile]:
    """Open a round's file, without locks.

    Args:
        anew: verify also what this process has found right before.

    Raises:
        FedscopeError: missing, truncated, foreign, newer or damaged; each in its own words.
    """
    with open_hdf5(path, FORMAT, OWN_STARTS, _WHAT) as file:
        yield RoundFile(file, path, layout, anew=anew)


class OtherLayoutError(FedscopeError):
    """A file of a round, as it was written, that holds a tensor which the run's layout lacks.

    Attributes:
        what: a clause on it.
    """

    def __init__(self, path: Path, tensor: str) -> None:
        self.what = f"it holds {tensor}, which the layout in run.json lacks"
        super().__init__(f"{path} does not fit its run: {self.what}; restore run.json from a copy")


class RoundFile:
    """An open round file, read by path. What its table of checksums says is compared at the first read of a process.

    Args:
        file: h5py's.
        layout: of the run's models.

    Attributes:
        ids: of the cohort, [C], once they are known: what is stacked has a row for each.
    """

    def __init__(self, file: Any, path: Path, layout: Layout, *, anew: bool = False) -> None:
        self.file, self.path, self.layout = file, path, layout
        self.validated = ValidatedFile(file, path)
        self.ids: Sequence[int] | np.ndarray = ()
        self.has_table = checksums.has_table(file)
        self._identity = FileState.of(path, descriptor_of(file))
        self._marks = VERIFIED.marks(self._identity) if self.has_table and not anew else {}
        self._table: ChecksumTable | None = None
        self._sums: dict[str, dict[int, int]] = {}
        self._listed: set[str] = set()

    # --- what there is ---

    def names(self, group: str) -> list[str]:
        """List the names in a group, of which nothing may be missing or added since it was written."""
        found = self.validated.names(group)
        if self.has_table and f"{group}/" not in self._marks:
            known = self.table.below(group)
            here = set(found) - {checksums.NAME}
            if here != known:
                lost, added = sorted(known - here), sorted(here - known)
                place = f"{group}/" if group else ""
                raise self.validated.damaged(
                    f"it lacks {place}{lost[0]}" if lost else f"{place}{added[0]} is not what was written"
                )
            self._marks[f"{group}/"] = 1
        return found

    def refuse_unlisted(self, group: str) -> None:
        """Refuse a group of models that holds another tensor than those of the run's layout: all that is read goes by
        the layout, and numbers would be those of a part of the model. Nothing of the models is read.

        Files without checksums do not say what was written, and pass.

        Raises:
            FedscopeError: names the first, and ``run.json``, because the file is as it was written.
        """
        if not self.has_table or group in self._listed:
            return
        names, lead = set(self.layout.names), f"{group}/"
        there = (place.removeprefix(lead) for place in self.table.places if place.startswith(lead))
        # names of tensors may have / and @ in them, which begin parts and attributes elsewhere
        if others := [name for name in there if name not in names and name.rpartition("@")[0] not in names]:
            raise OtherLayoutError(self.path, f"{group}/{min(others)}")
        self._listed.add(group)

    # --- checksums ---

    @property
    def own_checksum(self) -> int | None:
        """The checksum of the table of checksums, as the file says it; None where it says none."""
        if not self.has_table or not self.validated.has(checksums.NAME):
            return None
        said = attribute(self.file[checksums.NAME], KIND)
        return said if isinstance(said, int) else None

    @property
    def table(self) -> ChecksumTable:
        """The file's checksums.

        Raises:
            FedscopeError: they are missing or damaged themselves, or of a kind that is not known here.
        """
        if self._table is None:
            self._table = VERIFIED.table(self._identity)
        if self._table is None:
            self._table = self._read_table()
            VERIFIED.keep(self._identity, self._table)
        return self._table

    def _read_table(self) -> ChecksumTable:
        if not self.validated.has(checksums.NAME):
            raise self.validated.damaged("its table of checksums is missing")
        found = self.validated.dataset(checksums.NAME, "V")
        names = found.dtype.names or ()
        if names[:2] != ("path", "client") or len(names) != 3 or len(found.shape) != 1:
            raise self.validated.damaged(f"{checksums.NAME} is not a table of checksums")
        if names[2] != KIND:
            raise FedscopeError(
                f"{self.path} has checksums of the kind {names[2]}, which this fedscope does not know; upgrade it: "
                "pip install --upgrade fedscope"
            )
        wanted = [("path", "S"), ("client", "<i8"), (KIND, "<u8")]
        if any(not found.dtype[name].str.lstrip("|").startswith(kind) for name, kind in wanted):
            raise self.validated.damaged(f"{checksums.NAME} is not a table of checksums")
        records = np.empty(found.shape, found.dtype)
        found.id.read(h5py.h5s.ALL, h5py.h5s.ALL, records, mtype=found.id.get_type())
        own = attribute(self.file[checksums.NAME], KIND)
        if own != checksums.own_checksum(records):
            raise self.validated.damaged("its table of checksums is not what was written")
        return ChecksumTable(records)

    def wants(self, path: str, place: int = 0) -> bool:
        """Check whether a dataset, or a row of it, is still to be compared with its checksum."""
        return self.has_table and not self._marks.get(path, 0) >> place & 1

    def expected(self, path: str, client: int) -> int:
        """Return the checksum that a value was written with.

        Raises:
            FedscopeError: it was not written.
        """
        if path not in self._sums:
            self._sums[path] = self.table.of(path)
        if client not in self._sums[path]:
            raise self.validated.damaged(f"{_describe_value(path, client)} is not in its table of checksums")
        return self._sums[path][client]

    def compare(self, path: str, place: int, client: int, found: int) -> None:
        """Compare a checksum with the table, and remember that it is right.

        Raises:
            FedscopeError: it is not.
        """
        if found != self.expected(path, client):
            raise self.validated.damaged(
                f"{_describe_value(path, client)} is not what was written (its checksum is another)"
            )
        self._marks[path] = self._marks.get(path, 0) | 1 << place

    def verify(self, stored: ValidatedDataset, place: int | None, value: np.ndarray) -> None:
        """Compare what was read, flat, of a dataset or of one of its rows, unless that was done before.

        Args:
            place: of the row; None for the whole.
            value: in the dataset's own type, or converted, and then it is read again.
        """
        at, shape = (0, stored.shape) if place is None else (place, stored.shape[1:])
        if not self.wants(stored.path, at):
            return
        if value.dtype != stored.dtype.newbyteorder("="):
            raw = np.empty(value.size, stored.dtype.newbyteorder("="))
            read_row(stored.id, place, raw)
            value = raw
        client = NONE if place is None else int(self.ids[place])
        self.compare(stored.path, at, client, checksums.checksum(stored.path, client, value.reshape(shape)))

    def verify_attribute(self, path: str, value: str | np.ndarray) -> None:
        """Compare an attribute, a text or a number, unless that was done before. Raises as :meth:`compare`."""
        if self.wants(path):
            bits = checksums.of_text(path, value) if isinstance(value, str) else checksums.checksum(path, NONE, value)
            self.compare(path, 0, NONE, bits)

    # --- what it holds ---

    def read(self, stored: ValidatedDataset, place: int | None, out: np.ndarray) -> None:
        """Read a dataset, or a row of it, into ``out`` [n], converted to its dtype, and verify it."""
        read_row(stored.id, place, out)
        self.verify(stored, place, out)

    def array(self, path: str, types: str | np.dtype[Any] = "biufc", shape: tuple[int, ...] | None = None) -> Any:
        """Read a dataset as an array of its own type, verified."""
        stored = self.validated.dataset(path, types, shape)
        flat = np.empty(prod(stored.shape), stored.dtype.newbyteorder("="))
        self.read(stored, None, flat)
        return flat.reshape(stored.shape)

    def rows(self, path: str, places: Sequence[int], shape: tuple[int, ...] | None = None) -> np.ndarray:
        """Rows of a dataset [C, ...] in the order asked for, verified."""
        stored = self.validated.dataset(path, "biufc", None if shape is None else (len(self.ids), *shape))
        if not stored.shape or stored.shape[0] != len(self.ids):
            raise self.validated.damaged(f"{path} has shape {stored.shape}, but {len(self.ids)} clients took part")
        made = np.empty((len(places), *stored.shape[1:]), stored.dtype.newbyteorder("="))
        for row, place in zip(made.reshape(len(places), -1), places, strict=True):
            self.read(stored, place, row)
        return made


def read_row(dataset: Any, k: int | None, out: np.ndarray) -> None:
    """Read row k of a dataset [C, \\*shape], or with None a whole one, into ``out`` [n], converting its dtype.

    Args:
        dataset: h5py's ``DatasetID``.
    """
    if not out.size:
        return
    space = dataset.get_space()
    # in memory of the same rank as in the file: HDF5 copies ranks that differ element by element (ten times as slow)
    shape = dataset.shape
    if k is not None:
        first, shape = (k, *(0,) * (len(dataset.shape) - 1)), (1, *dataset.shape[1:])
        space.select_hyperslab(first, shape)
    dataset.read(h5py.h5s.create_simple(shape or (1,)), space, out)


def _describe_value(path: str, client: int) -> str:
    if client == NONE:
        owner, at, attribute = path.partition("@")
        return f"{owner or 'the file'}'s {attribute}" if at else path
    group, _, name = path.partition("/")
    return f"client {client}'s {name if group == 'clients' else path}"
