"""A table, for what reads tables: a row a round, a column a number of it."""

from __future__ import annotations

import csv
from pathlib import Path

from ...checkpoints import FedscopeError
from ...checkpoints.io.safe_write import ELSEWHERE, refuse_strange
from ...checkpoints.io.untrusted import RESULT, read_text
from ...results.tables import write_csv
from .snapshot import Snapshot

NAME = "csv"


class CSVFile:
    """A file that is written anew, whole, whenever rounds have come; it holds no figures."""

    def __init__(self, path: Path, *, force: bool = False) -> None:
        self._path, self._force = path, force
        self._written: list[list[str]] | None = None
        self.where, self.looked_at = str(path), ""

    def write(self, run: Snapshot) -> None:
        """Replace the file where it is an earlier state of the same.

        Raises:
            FedscopeError: it holds something else; it cannot be written.
        """
        columns = list(dict.fromkeys(tag for point in run.points for tag in point.values))
        rows = [[point.round, *map(point.values.get, columns)] for point in run.points]
        now = [["round", *columns], *([_text(value) for value in row] for row in rows)]
        if now == self._written:
            return
        if self._written is None:
            refuse_strange(self._path, "a table", ELSEWHERE, replaced=True)
            if not self._force and not _is_earlier(self._read(), now):
                raise FedscopeError(
                    f"{self._path} is in the way, and holds something else than this run's numbers; give another name, "
                    "or --force to replace it"
                )
        write_csv(self._path, now[0], rows)
        self._written = now

    def close(self) -> None:
        """Everything is written."""

    def _read(self) -> list[list[str]]:
        if not self._path.exists():
            return []
        text = read_text(self._path, "a table", "give another name, or --force to replace it", RESULT, "replace")
        try:
            return list(csv.reader(text.splitlines()))
        except csv.Error:
            return [["not a table"]]


def _text(value: float | int | None) -> str:
    return "" if value is None else repr(value)


def _is_earlier(there: list[list[str]], now: list[list[str]]) -> bool:
    """Check whether a table says nothing else than another one, which may have more rounds and columns."""
    if not there:
        return True
    head, *rows = there
    ours = {row[0]: dict(zip(now[0], row, strict=True)) for row in now}
    return head[:1] == ["round"] and all(
        len(row) == len(head)
        and row[0] in ours
        and all(not cell or ours[row[0]].get(name) == cell for name, cell in zip(head, row, strict=True))
        for row in rows
    )
