"""A round's numbers: as JSON in its file, as a row of ``metrics.csv``, as arrays over rounds."""

from __future__ import annotations

import csv
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from .durable import write_durably
from .foreign_files import RESULT, read_text
from .own_files import append, refuse_strange

#: ``metrics.csv``, for sentences
TABLE = "a table of metrics"
COLUMNS = (
    "round",
    "lr",
    "participants",
    "train_loss",
    "test_loss",
    "test_error",
    "averaged_test_loss",
    "averaged_test_error",
    "client_error_mean",
    "client_error_std",
    "seconds",
    "client_test_error_mean",
    "client_test_error_std",
    "parameters_down",
    "parameters_up",
)

#: columns that only some runs have, behind the others: of data with domains, and where ``run.evaluate_all`` is set
FURTHER = re.compile(
    r"(averaged_)?(test_error_[A-Za-z0-9_.-]{1,80}|domain_error_(mean|std))|all_client_(test|deployed)_error_(mean|std|worst)"
    r"|server_(rule|rate|momentum|plain|left|statistics)|soup_clients"
)

#: the last column: of the row before it, as eight hexadecimal digits; further columns' names count as before the row
CHECK = "crc32"

Metrics = Mapping[str, float | int | None]


def further(metrics: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """The columns beside :data:`COLUMNS` that some rounds' numbers have, in the order in which they come up.

    >>> further([{"lr": 0.1}, {"lr": 0.1, "test_error_photo": 0.2, "note": 1}])
    ('test_error_photo',)
    """
    found = dict.fromkeys(name for names in metrics for name in names if name not in COLUMNS)
    return tuple(name for name in found if FURTHER.fullmatch(name))


def head_of(more: Sequence[str] = ()) -> str:
    """The first line of a table with these further columns."""
    return ",".join((*COLUMNS, *more, CHECK)) + "\n"


def to_json(metrics: Metrics) -> str:
    """One JSON object. What is no number (None, NaN) is null; infinities are 1e999, a number to every JSON reader.

    >>> to_json({"test_loss": float("nan"), "train_loss": float("inf"), "participants": 10})
    '{"test_loss": null, "train_loss": 1e999, "participants": 10}'
    """
    return "{" + ", ".join(f"{json.dumps(name)}: {_number(value)}" for name, value in metrics.items()) + "}"


def from_json(text: str) -> dict[str, float | int | None]:
    """The inverse of :func:`to_json`; null is NaN."""
    return {name: math.nan if value is None else value for name, value in json.loads(text).items()}


def to_row(round: int, metrics: Metrics, more: Sequence[str] = ()) -> str:
    """One line of ``metrics.csv``; what does not apply, or is no number, is empty.

    Args:
        more: the table's further columns.

    >>> to_row(3, {"lr": 0.1}).split(",")[:3], to_row(3, {"lr": 0.1})[-9:]
    (['3', '0.1', ''], '6ca80a1e\\n')
    """
    values = {**metrics, "round": round}
    row = ",".join(_cell(values.get(name)) for name in (*COLUMNS, *more))
    return f"{row},{_sum(row, more)}\n"


def write_table(path: Path, rows: Iterable[tuple[int, Metrics]]) -> None:
    """Write ``metrics.csv`` anew, durably."""
    _write(path, _table(rows))


def append_row(path: Path, round: int, metrics: Metrics, more: Sequence[str] = ()) -> None:
    """Add a round. Not fsynced: a row that is lost in a crash is mended from the round's file.

    Args:
        more: the further columns that the table has.
    """
    with append(path, TABLE) as file:
        file.write(to_row(round, metrics, more).encode())


def read_table(path: Path) -> dict[int, dict[str, float]]:
    """The rows by round, NaN where empty. No file is no row.

    What is torn, not a row of numbers or another row than was written (its crc32 says so) is left out. Tables of other
    programs, and of fedscope before it wrote that column, have no crc32.

    Raises:
        FedscopeError: no regular file, or one that is too long for a table.
    """
    try:
        text = read_text(path, TABLE, "restore it from a copy", RESULT, errors="replace")
    except FileNotFoundError:
        return {}
    whole = text[: text.rfind("\n") + 1]  # a row without its line's end may lack digits
    head, *lines = whole.split("\n")
    names = _cells(head)
    if not names:  # nothing is left of the table
        return {}
    more = tuple(names[len(COLUMNS) : -1])
    if names[-1] == CHECK and (head + "\n" != head_of(more) or further([more]) != more):
        return {}
    rows: dict[int, dict[str, float]] = {}
    for line in lines:
        if names[-1] == CHECK:
            line, _, found = line.rpartition(",")
            if found != _sum(line, more):
                continue
        try:
            cells = _cells(line)
            if len(cells) != len(names) - (names[-1] == CHECK):
                continue
            row = {name: float(cell) if cell else math.nan for name, cell in zip(names, cells, strict=False)}
            rows[int(row["round"])] = row
        except (ValueError, KeyError, OverflowError):
            continue
    return rows


def to_arrays(
    rounds: Sequence[int], rows: Mapping[int, Metrics], of: Callable[[int], Metrics]
) -> dict[str, np.ndarray]:
    """Each column over ``rounds``, float64, NaN where empty: from the table's rows, else from ``of(round)``."""
    known = [rows[t] if t in rows else of(t) for t in rounds]
    names = (*COLUMNS, *further(known))
    arrays = {name: np.array([_float(row.get(name)) for row in known], dtype=np.float64) for name in names}
    arrays["round"] = np.array(rounds, dtype=np.float64)
    return arrays


def mend_table(path: Path, rounds: Sequence[int], of: Callable[[int], Metrics]) -> tuple[str, ...]:
    """Rebuild ``metrics.csv`` from the round files if it says anything else; returns its further columns.

    Raises:
        FedscopeError: something else than a file lies in its place.
    """
    refuse_strange(path, TABLE)  # rows are appended to it
    rows = [(t, of(t)) for t in rounds]
    expected = _table(rows)
    if not (path.is_file() and path.stat().st_size == len(expected) and path.read_bytes() == expected.encode()):
        _write(path, expected)
    return further(metrics for _, metrics in rows)


def _table(rows: Iterable[tuple[int, Metrics]]) -> str:
    rows = list(rows)
    more = further(metrics for _, metrics in rows)
    return head_of(more) + "".join(to_row(round, metrics, more) for round, metrics in rows)


def _write(path: Path, text: str) -> None:
    with write_durably(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [""])
    except csv.Error:
        return [""]


def _sum(row: str, more: Sequence[str] = ()) -> str:
    """With the further columns' names, so that a changed one makes none of its numbers another's."""
    return f"{zlib.crc32(row.encode(), zlib.crc32(','.join(more).encode())):08x}"


def _float(value: float | int | None) -> float:
    return math.nan if value is None else float(value)


def _number(value: float | int | None) -> str:
    if value is None or math.isnan(value):
        return "null"
    if math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    return _cell(value)


def _cell(value: float | int | None) -> str:
    if value is None or math.isnan(value):
        return ""
    return repr(value.item() if isinstance(value, np.generic) else value)
