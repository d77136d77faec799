"""Results as tables: CSV files, and the JSON beside them that says what they are."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .durable import write_durably
from .errors import FedscopeError
from .texts import RESULT, read_json, read_text

AGAIN = "compute it again with --force"


def beside(base: Path, suffix: str) -> Path:
    """``BASE.factors.csv``; not by ``with_suffix``, because a base like ``run.v2`` has a dot that is no suffix.

    >>> beside(Path("figures/run.v2"), ".factors.csv").name
    'run.v2.factors.csv'
    """
    return base.with_name(base.name + suffix)


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a table, durably: floats as the shortest text that reads back as the same, None as an empty field.

    NumPy's floats are written as Python's.
    """
    with write_durably(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([repr(float(value)) if isinstance(value, float) else value for value in row] for row in rows)


def read_csv(path: Path, columns: Sequence[str], command: str) -> list[dict[str, str]]:
    """The rows of a table that ``fedscope COMMAND`` wrote, by column.

    Raises:
        FedscopeError: other columns; no UTF-8, no CSV; a row with more or fewer fields.
    """
    reader = csv.DictReader(io.StringIO(read_text(path, f"a table of `fedscope {command}`", AGAIN, RESULT), newline=""))
    try:
        if tuple(reader.fieldnames or ()) != tuple(columns):
            raise FedscopeError(
                f"{path} is not a table of `fedscope {command}`: its columns must be {', '.join(columns)}; {AGAIN}"
            )
        rows = list(reader)
    except csv.Error as error:
        raise FedscopeError(f"{path} is damaged: line {reader.reader.line_num} is no CSV ({error}); {AGAIN}") from None
    for line, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise FedscopeError(f"{path} is damaged: row {line} has not {len(columns)} fields; {AGAIN}")
    return rows


def number(text: str) -> float | None:
    """A field of a table; None where it is empty.

    >>> number("0.5"), number("")
    (0.5, None)
    """
    return float(text) if text else None


def write_info(path: Path, format_: str, version: int, info: Mapping[str, Any]) -> None:
    """Write what the tables of a result are, durably."""
    with write_durably(path) as temporary:
        said = json.dumps({"format": format_, "version": version, **info}, indent=1)
        temporary.write_text(said + "\n", encoding="utf-8")


def read_info(path: Path, format_: str, version: int, command: str) -> Any:
    """Read what :func:`write_info` wrote.

    Raises:
        FedscopeError: no JSON, another result's, another version's.
    """
    info = read_json(path, f"a result of `fedscope {command}`", AGAIN, RESULT)
    if not isinstance(info, dict) or info.get("format") != format_:
        raise FedscopeError(
            f'{path} is no result of `fedscope {command}`: it does not say "format": "{format_}"; give another --out'
        )
    found = info.get("version")
    if found != version:
        older = isinstance(found, int) and found < version
        if not isinstance(found, int):
            raise FedscopeError(f"{path} is damaged: its version is {str(found)[:40]!r}; {AGAIN}")
        remedy = "compute it again with --force" if older else "upgrade it: pip install --upgrade fedscope"
        raise FedscopeError(f"{path} has version {found}, but this fedscope reads version {version}; {remedy}")
    return info
