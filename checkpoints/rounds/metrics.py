"""A round's numbers: as JSON in its file, as a row of ``metrics.csv``, as arrays over rounds."""

from __future__ import annotations

import csv
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..io.atomic import write_durably
from ..io.safe_write import append, refuse_strange
from ..io.untrusted import RESULT, read_text

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

_RECORDED = (
    "server_(rule|rate|momentum|plain|left|statistics)"
    "|drift_(norm|mean_norm|kept|cosine|to_mean|conflict|distance|step)|consensus_(before|start)"
)

#: columns that only some runs have, behind the others: of data with domains, where ``run.evaluate_all`` is set,
#: where drift is measured, and where not all nodes are kept that start from models of their own
FURTHER = re.compile(
    r"(averaged_)?(test_error_[A-Za-z0-9_.-]{1,80}|domain_error_(mean|std))|all_client_(test|deployed)_error_(mean|std|worst)"
    rf"|soup_clients|{_RECORDED}"
)

#: names of a loop's own numbers, which are columns behind the others too
OWN = re.compile(r"[A-Za-z_][A-Za-z0-9_./@-]{0,79}")
#: of which a table has so many, those that came first: with a name a client each round would write it anew
MOST_OWN = 200

#: what a run counts itself, and a loop that counts it too need not leave out of its numbers
COUNTED = ("round", "participants")
#: columns that recording a loop makes itself, here and in the tables of ``curves``
MADE = re.compile(f"round|participants|run|crc32|{_RECORDED}")

#: the last column: of the row before it, as eight hexadecimal digits; the run's identity, where it has one, and further
#: columns' names count as before the row
CHECK = "crc32"

Metrics = Mapping[str, float | int | None]


def is_column(name: str) -> bool:
    """Check whether a number of this name has a column in ``metrics.csv``.

    >>> [is_column(name) for name in ("test_error", "test_error_photo", "val/top-5", "top 5", "crc32")]
    [True, True, True, False, False]
    """
    known = name in COLUMNS or FURTHER.fullmatch(name) is not None
    return known or (OWN.fullmatch(name) is not None and not MADE.fullmatch(name))


def is_own_column(name: str) -> bool:
    """Check whether a column is one that a loop has named itself.

    >>> is_own_column("top5"), is_own_column("test_error"), is_own_column("drift_kept")
    (True, False, False)
    """
    return is_column(name) and name not in COLUMNS and not FURTHER.fullmatch(name)


def further(metrics: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return the columns besides :data:`COLUMNS` that some rounds' numbers have, in the order in which they come up;
    of a loop's own the first :data:`MOST_OWN`.

    >>> further([{"lr": 0.1}, {"lr": 0.1, "test_error_photo": 0.2, "top5": 1, "top, 5": 1}])
    ('test_error_photo', 'top5')
    """
    found = dict.fromkeys(name for names in metrics for name in names if name not in COLUMNS)
    own = [name for name in found if is_own_column(name)]
    beyond = set(own[MOST_OWN:])
    return tuple(name for name in found if is_column(name) and name not in beyond)


def head_of(more: Sequence[str] = ()) -> str:
    """Return the first line of a table with these further columns."""
    return ",".join((*COLUMNS, *more, CHECK)) + "\n"


def to_json(metrics: Metrics) -> str:
    """Return one JSON object. What is no number (None, NaN) is null; infinities are 1e999, a number to every JSON
    reader.

    >>> to_json({"test_loss": float("nan"), "train_loss": float("inf"), "participants": 10})
    '{"test_loss": null, "train_loss": 1e999, "participants": 10}'
    """
    return "{" + ", ".join(f"{json.dumps(name)}: {_number(value)}" for name, value in metrics.items()) + "}"


def from_json(text: str) -> dict[str, float | int | None]:
    """Invert :func:`to_json`; null is NaN."""
    return {name: math.nan if value is None else value for name, value in json.loads(text).items()}


def to_row(round: int, metrics: Metrics, more: Sequence[str] = (), identity: str = "") -> str:
    """Write one line of ``metrics.csv``; what does not apply, or is no number, is empty.

    Args:
        more: the table's further columns.
        identity: of the run, where it has one, here and below.

    >>> to_row(3, {"lr": 0.1}).split(",")[:3], to_row(3, {"lr": 0.1})[-9:]
    (['3', '0.1', ''], '6ca80a1e\\n')
    """
    values = {**metrics, "round": round}
    row = ",".join(_cell(values.get(name)) for name in (*COLUMNS, *more))
    return f"{row},{_sum(row, more, identity)}\n"


def write_table(path: Path, rows: Iterable[tuple[int, Metrics]], identity: str = "") -> None:
    """Write ``metrics.csv`` anew, durably."""
    _write(path, _table(rows, identity))


def append_row(path: Path, round: int, metrics: Metrics, more: Sequence[str] = (), identity: str = "") -> None:
    """Add a round. Not fsynced: a row that is lost in a crash is mended from the round's file.

    Args:
        more: the further columns that the table has.
    """
    with append(path, TABLE) as file:
        file.write(to_row(round, metrics, more, identity).encode())


class MetricRows(NamedTuple):
    """The rows of a table of metrics.

    Attributes:
        own: the rows by round that were written for the run, NaN where empty.
        others: those that were not, as their crc32 says, or the lack of one; the last of each round.
        strange: how many whole lines are no rows of the run, others among them.
        summed: whether there is a crc32 a row.
        headless: a clause on why the first line of a file that is there names no columns of a table; "" where it does.
    """

    own: dict[int, dict[str, float]]
    others: dict[int, dict[str, float]]
    strange: int
    summed: bool
    headless: str = ""


def read_table(path: Path, identity: str = "") -> dict[int, dict[str, float]]:
    """Read the rows by round, NaN where empty: those that :func:`read_rows` finds to be the run's own."""
    return read_rows(path, identity).own


def read_rows(path: Path, identity: str = "") -> MetricRows:
    """Read the rows of a table. No file is no row.

    What is torn, not a row of numbers or another row than was written (its crc32 says so) is none of the run. Tables of
    other programs, and of fedscope before it wrote that column, have no crc32: they are believed where the run has no
    identity.

    Raises:
        FedscopeError: no regular file, or one that is too long for a table.
    """
    try:
        text = read_text(path, TABLE, "restore it from a copy", RESULT, errors="replace")
    except FileNotFoundError:
        return MetricRows({}, {}, 0, False)
    whole = text[: text.rfind("\n") + 1]  # a row without its line's end may lack digits
    head, *lines = whole.split("\n")
    names = _cells(head)
    lines = lines[:-1]  # what is behind the last line's end
    if "round" not in names:  # nothing is left of the table, or it never was one
        why = "its first line names no columns" if whole.strip() else "its only line has no end"
        return MetricRows({}, {}, len(lines) + bool(names), False, why if text.strip() else "it is empty")
    more, summed = tuple(names[len(COLUMNS) : -1]), names[-1] == CHECK
    if summed and (head + "\n" != head_of(more) or further([more]) != more):
        return MetricRows({}, {}, len(lines), summed)
    own: dict[int, dict[str, float]] = {}
    others: dict[int, dict[str, float]] = {}
    strange = 0
    for line in lines:
        is_own = not (summed or identity)
        if summed:
            line, _, found = line.rpartition(",")
            is_own = found == _sum(line, more, identity)
        strange += not is_own
        try:
            cells = _cells(line)
            if len(cells) != len(names) - summed:
                continue
            row = {name: float(cell) if cell else math.nan for name, cell in zip(names, cells, strict=False)}
            (own if is_own else others)[int(row["round"])] = row
        except (ValueError, KeyError, OverflowError):
            continue
    return MetricRows(own, others, strange, summed)


def to_arrays(
    rounds: Sequence[int], rows: Mapping[int, Metrics], of: Callable[[int], Metrics]
) -> dict[str, np.ndarray]:
    """Return each column over ``rounds``, float64, NaN where empty: from the table's rows, else from ``of(round)``."""
    known = [rows[t] if t in rows else of(t) for t in rounds]
    names = (*COLUMNS, *further(known))
    arrays = {name: np.array([_float(row.get(name)) for row in known], dtype=np.float64) for name in names}
    arrays["round"] = np.array(rounds, dtype=np.float64)
    return arrays


def mend_table(
    path: Path,
    rounds: Sequence[int],
    of: Callable[[int], Metrics],
    identity: str = "",
    lost: Mapping[int, Metrics] | None = None,
) -> tuple[str, ...]:
    """Rebuild ``metrics.csv`` from the round files if it says anything else; returns its further columns.

    Args:
        lost: the rows of rounds whose files are gone, which stay.

    Raises:
        FedscopeError: something else than a file lies in its place.
    """
    refuse_strange(path, TABLE)  # rows are appended to it
    rows = sorted({**(lost or {}), **{t: of(t) for t in rounds}}.items())
    expected = _table(rows, identity)
    if not (path.is_file() and path.stat().st_size == len(expected) and path.read_bytes() == expected.encode()):
        _write(path, expected)
    return further(metrics for _, metrics in rows)


def _table(rows: Iterable[tuple[int, Metrics]], identity: str = "") -> str:
    rows = list(rows)
    more = further(metrics for _, metrics in rows)
    return head_of(more) + "".join(to_row(round, metrics, more, identity) for round, metrics in rows)


def _write(path: Path, text: str) -> None:
    with write_durably(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [""])
    except csv.Error:
        return [""]


def _sum(row: str, more: Sequence[str] = (), identity: str = "") -> str:
    """With the further columns' names, so that a changed one makes none of its numbers another's; and with the run's
    identity, so that another run's row is none of it."""
    before = zlib.crc32(",".join(more).encode(), zlib.crc32(identity.encode()))
    return f"{zlib.crc32(row.encode(), before):08x}"


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
