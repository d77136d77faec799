"""Results as tables: CSV files, and the JSON beside them that says what they are."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .durable import write_durably
from .errors import FedscopeError


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
        FedscopeError: other columns.
    """
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != tuple(columns):
            raise FedscopeError(
                f"{path} is not a table of `fedscope {command}`: its columns must be {', '.join(columns)}; compute it "
                "again with --force"
            )
        return list(reader)


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
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FedscopeError(f"{path} is not JSON ({error}); compute it again with --force") from error
    if not isinstance(info, dict) or info.get("format") != format_:
        raise FedscopeError(
            f'{path} is no result of `fedscope {command}`: it does not say "format": "{format_}"; give another --out'
        )
    found = info.get("version")
    if found != version:
        older = isinstance(found, int) and found < version
        remedy = "compute it again with --force" if older else "upgrade it: pip install --upgrade fedscope"
        raise FedscopeError(f"{path} has version {found}, but this fedscope reads version {version}; {remedy}")
    return info
