"""Results as tables: CSV files, and a JSON file that says what they are."""

from __future__ import annotations

import csv
import io
import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

import numpy as np
import xxhash

from ..checkpoints.io.atomic import write_durably
from ..checkpoints.io.errors import FedscopeError, list_few
from ..checkpoints.io.untrusted import RESULT, expand_home, read_json, read_text
from .base import Result
from .csv_cells import cell, text_of
from .versions import of_installed

AGAIN = "compute it again with --force"
#: what the JSON file says of its tables: their numbers of rows, by suffix, so that one which was cut is noticed
COUNTS = "table_rows"
#: and the checksum of each one's bytes, by suffix, so that one which was edited is noticed
SUMS = "table_xxh3"


def number(text: str) -> float | None:
    """A field that may be empty.

    >>> number("0.5"), number("")
    (0.5, None)
    """
    return float(text) if text else None


def truth(text: str) -> bool:
    """A field that is True or False.

    >>> truth("True"), truth("False")
    (True, False)
    """
    return {"True": True, "False": False}[text]


def optional_int(text: str) -> int | None:
    """A whole number that may be missing.

    >>> optional_int("3"), optional_int("")
    (3, None)
    """
    return int(text) if text else None


def optional_bool(text: str) -> bool | None:
    """A field that is True, False or empty."""
    return truth(text) if text else None


#: by the type of a row's field, how a column of it is read
READERS: Mapping[Any, Callable[[str], Any]] = {
    **{str: str, int: int, float: float, bool: truth},
    **{int | None: optional_int, float | None: number, bool | None: optional_bool},
}


def columns_of(row: type, *names: str) -> dict[str, Callable[[str], Any]]:
    """Derive columns and their readers from the dataclass of a table's rows: all its fields in order, or the ``names``.

    So a field that is added to the class, or moved, changes the files.

    Raises:
        KeyError: no such field, or one that is no number, text or bool.

    >>> @dataclass
    ... class Row:
    ...     m: int
    ...     error: float | None
    >>> columns_of(Row) == {"m": int, "error": number}
    True
    """
    kinds = get_type_hints(row)
    return {name: READERS[kinds[name]] for name in names or [field.name for field in fields(row)]}


Rows = list[dict[str, Any]]


def group_rows(rows: Rows, *names: str) -> dict[tuple[Any, ...], Rows]:
    """Group rows by their values in the columns of these names; groups, and the rows in each, keep their order.

    >>> group_rows([{"run": "a", "m": 1}, {"run": "b", "m": 1}, {"run": "a", "m": 2}], "run")
    {('a',): [{'run': 'a', 'm': 1}, {'run': 'a', 'm': 2}], ('b',): [{'run': 'b', 'm': 1}]}
    """
    groups: dict[tuple[Any, ...], Rows] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


@dataclass(frozen=True)
class Table:
    """One CSV file of a result.

    Attributes:
        suffix: of its name, ``.subsets.csv``.
        columns: their names, and how a field of each is read: ``str``, ``int``, ``float``, :func:`truth`, and
            :func:`optional_int`, :func:`number` and :func:`optional_bool` where it may be empty; see
            :func:`columns_of`.
        optional: a result may do without; its rows are then None, and there is no file.
        added: last columns that files of earlier versions lack, and what they mean there.
    """

    suffix: str
    columns: Mapping[str, Callable[[str], Any]]
    optional: bool = False
    added: Mapping[str, Any] = field(default_factory=dict)

    def read(self, path: Path, command: str) -> list[dict[str, Any]]:
        """Its rows, by column.

        Raises:
            FedscopeError: other columns, a damaged file, a field that is no such value.
        """
        rows = []
        for line, row in enumerate(read_csv(path, tuple(self.columns), command, tuple(self.added)), start=2):
            values = {}
            for name, reader in self.columns.items():
                if name not in row and name in self.added:
                    values[name] = self.added[name]
                    continue
                try:
                    values[name] = text_of(row[name]) if reader is str else reader(row[name])
                except (ValueError, KeyError):
                    raise FedscopeError(
                        f"{path} is damaged: {name} in line {line} is {row[name][:40]!r}; {AGAIN}"
                    ) from None
            rows.append(values)
        return rows


class TableResult(Result):
    """A result that is kept as tidy CSV files and a JSON file with what they do not say; fields that do not exist are
    empty.

    Attributes:
        format: what the JSON file says that it is; version: of that format; older: versions that are read, too.
        tables: the CSV files, in the order of :attr:`suffixes`, whose last one is the JSON file.
    """

    format: ClassVar[str]
    version: ClassVar[int] = 1
    older: ClassVar[tuple[int, ...]] = ()
    tables: ClassVar[tuple[Table, ...]]

    @abstractmethod
    def rows(self) -> Sequence[Iterable[Sequence[Any]] | None]:
        """Return the rows of every table; None of an optional one that this result does without."""

    @abstractmethod
    def head(self) -> dict[str, Any]:
        """Return what the JSON file says besides ``attrs``."""

    @classmethod
    @abstractmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result of what :meth:`head` and :meth:`rows` gave; a :class:`LookupError`, :class:`TypeError` or
        :class:`ValueError` says that they do not fit each other."""

    def save(self, base: Path | str) -> list[Path]:
        """Write the tables, then the JSON file; returns their paths. Floats survive."""
        base = expand_home(base)
        paths = self.paths(base)
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        written = {}
        for path, table, rows in zip(paths, self.tables, self.rows(), strict=False):
            if rows is not None:
                written[table.suffix] = path, write_csv(path, tuple(table.columns), rows)
            else:
                path.unlink(missing_ok=True)  # an earlier result's
        info = {**self.head(), **describe_tables(written), "attrs": dict(self.attrs)}
        write_info(paths[-1], self.format, self.version, info)
        return [*(path for path in paths if path.exists()), *self.derive(base)]

    @classmethod
    def load(cls, base: Path | str) -> Self:
        """Read what :meth:`save` wrote.

        Raises:
            FedscopeError: a file is missing, damaged, no such result, or does not fit the others.
        """
        paths = cls.paths(base)
        head = read_info(paths[-1], cls.format, cls.version, cls.command, cls.older) if paths[-1].exists() else {}
        counts = head.get(COUNTS)
        counts = counts if isinstance(counts, dict) else {}
        absent = {
            path
            for table, path in zip(cls.tables, paths, strict=False)
            if table.optional and not path.exists() and table.suffix not in counts
        }
        names = list_few([path.name for path in paths if path not in absent])
        for path in reversed(paths):
            if path not in absent and not path.exists():
                raise FedscopeError(
                    f"{path} does not exist: a result of {cls.command} is {names} in one folder; {AGAIN}"
                )
        tables = [
            [] if path in absent else table.read(path, cls.command)
            for table, path in zip(cls.tables, paths, strict=False)
        ]
        found = {table.suffix: (path, len(rows)) for table, path, rows in zip(cls.tables, paths, tables, strict=False)}
        refuse_changed(found, head, paths[-1].name)
        try:
            made = cls.of_tables(head, *tables)
            with suppress(FedscopeError):  # a row that lacks is a sentence where it is asked for
                made.summary(), made.findings()  # what else does not fit is met here, and not where it is drawn
            return made
        except FedscopeError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, csv.Error) as error:
            raise FedscopeError(
                f"{names} in {paths[-1].parent} do not fit each other, so one was changed or cut; {AGAIN}"
            ) from error

    def named_tables(self) -> dict[str, tuple[Mapping[str, Callable[[str], Any]], list[Sequence[Any]]]]:
        """Return the columns and rows of every table that is there, by what its file is called."""
        return {
            table.suffix.strip(".").removesuffix(".csv"): (table.columns, list(rows))
            for table, rows in zip(self.tables, self.rows(), strict=True)
            if rows is not None
        }

    def to_pandas(self) -> Any:
        """Its table as a data frame; of several, a dictionary of them by what their files are called.

        Raises:
            FedscopeError: pandas is not installed.
        """
        pandas = of_installed("pandas", "frames")
        frames = {}
        for name, (columns, rows) in self.named_tables().items():
            frame = pandas.DataFrame(rows, columns=list(columns))
            frames[name] = frame.astype(dict.fromkeys(_numbers_in(columns), "float64"))
        return frames if len(frames) > 1 else next(iter(frames.values()))

    def to_xarray(self) -> Any:
        """Its table as a data set of columns along ``row``; of several tables each along a dimension of its own,
        columns as ``TABLE_COLUMN``. Numbers that do not exist are NaN.

        Raises:
            FedscopeError: xarray is not installed.
        """
        xarray = of_installed("xarray", "frames")
        tables = self.named_tables()
        columns = {}
        for table, (kinds, rows) in tables.items():
            values = dict(zip(kinds, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(kinds, ())
            for name, own in values.items():
                several = len(tables) > 1
                array = np.array(own, np.float64) if name in _numbers_in(kinds) else _column(own)
                columns[f"{table}_{name}" if several else name] = ((table if several else "row",), array)
        return xarray.Dataset(columns, attrs=deepcopy(dict(self.attrs)))


def _numbers_in(columns: Mapping[str, Callable[[str], Any]]) -> list[str]:
    """Return the columns of numbers, of which some may not exist: one in which none does is one of numbers, too."""
    return [name for name, reader in columns.items() if reader in (number, float)]


def _column(values: Sequence[Any]) -> np.ndarray:
    """Return a column of whole numbers, truths or texts; with gaps it is of numbers, or of what there is."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, np.int64} and kinds:
        return (
            np.array([np.nan if value is None else value for value in values]) if None in values else np.array(values)
        )
    return np.array(values) if kinds == {bool} and None not in values else np.array(values, dtype=object)


def add_suffix(base: Path, suffix: str) -> Path:
    """Return ``BASE.factors.csv``; not by ``with_suffix``, because a base like ``run.v2`` has a dot that is no suffix.

    >>> add_suffix(Path("figures/run.v2"), ".factors.csv").name
    'run.v2.factors.csv'
    """
    return base.with_name(base.name + suffix)


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Write a table, durably: floats as the shortest text that reads back as the same, None as an empty field, texts
    such that no spreadsheet computes them (:func:`.csv_cells.cell`).

    NumPy's floats are written as Python's.

    Returns:
        How many rows there are.
    """
    count = 0
    unwritable = "backslashreplace"  # half of a character, which run.json may hold
    with write_durably(path) as temporary, temporary.open("w", newline="", encoding="utf-8", errors=unwritable) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow(_fields(row))
            count += 1
    return count


def _fields(row: Sequence[Any]) -> list[Any]:
    return [
        cell(value) if isinstance(value, str) else repr(float(value)) if isinstance(value, float) else value
        for value in row
    ]


def read_csv(path: Path, columns: Sequence[str], command: str, added: Sequence[str] = ()) -> list[dict[str, str]]:
    """Read the rows of a table that ``fedscope COMMAND`` wrote, by column.

    Args:
        added: the last columns, of which a file of an earlier version lacks all, or the last ones.

    Raises:
        FedscopeError: other columns; no UTF-8, no CSV; a row with more or fewer fields.
    """
    reader = csv.DictReader(io.StringIO(read_text(path, f"a table of `fedscope {command}`", AGAIN, RESULT), newline=""))
    try:
        there = tuple(reader.fieldnames or ())
        least = len(columns) - len(added)
        if len(there) < least or there != tuple(columns)[: len(there)]:
            raise FedscopeError(
                f"{path} is not a table of `fedscope {command}`: its columns must be {list_few(columns)}; {AGAIN}"
            )
        rows = list(reader)
    except csv.Error as error:
        raise FedscopeError(f"{path} is damaged: line {reader.reader.line_num} is not CSV ({error}); {AGAIN}") from None
    for line, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise FedscopeError(f"{path} is damaged: row {line} has not {len(there)} fields; {AGAIN}")
    return rows


def describe_tables(written: Mapping[str, tuple[Path, int]]) -> dict[str, dict[str, Any]]:
    """Return what a JSON file says of its tables, by suffix: their numbers of rows, and the checksum of their bytes.

    Args:
        written: the path and the number of rows of each, by suffix.
    """
    return {
        COUNTS: {suffix: rows for suffix, (_, rows) in written.items()},
        SUMS: {suffix: _sum(path) for suffix, (path, _) in written.items()},
    }


def refuse_changed(found: Mapping[str, tuple[Path, int]], info: dict[str, Any], name: str) -> None:
    """Refuse a table that is not the one of which its JSON file tells, and take what it tells out of ``info``; files of
    earlier versions tell less, or nothing.

    Args:
        found: the path and the number of rows of each, by suffix.
        name: of the JSON file.

    Raises:
        FedscopeError: another number of rows, and has both; another checksum.
    """
    counts, sums = (said if isinstance(said := info.pop(key, None), dict) else {} for key in (COUNTS, SUMS))
    for suffix, (path, rows) in found.items():
        said = counts.get(suffix)
        if said is not None and rows != said:
            raise FedscopeError(
                f"{path} has {rows} row{'s' if rows != 1 else ''}, and {name} says that it had {str(said)[:40]}, so "
                f"one was changed or cut; {AGAIN}"
            )
        said = sums.get(suffix)
        if said is not None and _sum(path) != said:
            raise FedscopeError(
                f"{path} is not the table that {name} was written with (its checksum is another), so one was changed; "
                f"{AGAIN}"
            )


def _sum(path: Path) -> str:
    """Return the checksum of a file's bytes, whatever ends its lines: git and editors may change that."""
    return xxhash.xxh3_64_hexdigest(path.read_bytes().replace(b"\r\n", b"\n"))


def write_info(path: Path, format_: str, version: int, info: Mapping[str, Any]) -> None:
    """Write what the tables of a result are, durably."""
    with write_durably(path) as temporary:
        said = json.dumps({"format": format_, "version": version, **info}, indent=1)
        temporary.write_text(said + "\n", encoding="utf-8")


def read_info(path: Path, format_: str, version: int, command: str, admitted: tuple[int, ...] = ()) -> Any:
    """Read what :func:`write_info` wrote, in this version or one of those ``admitted``.

    Raises:
        FedscopeError: no JSON, another result's, another version's.
    """
    info = read_json(path, f"a result of `fedscope {command}`", AGAIN, RESULT)
    if not isinstance(info, dict) or info.get("format") != format_:
        raise FedscopeError(
            f'{path} is not a result of `fedscope {command}`: it does not say "format": "{format_}"; give another --out'
        )
    found = info.get("version")
    if found != version and found not in admitted:
        older = isinstance(found, int) and found < version
        if not isinstance(found, int):
            raise FedscopeError(f"{path} is damaged: its version is {str(found)[:40]!r}; {AGAIN}")
        remedy = "compute it again with --force" if older else "upgrade it: pip install --upgrade fedscope"
        raise FedscopeError(f"{path} has version {found}, but this fedscope reads version {version}; {remedy}")
    return info
