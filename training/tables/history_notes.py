"""What a table says of branches: until which round other settings than a run's own have made it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...checkpoints.io.errors import list_few
from ..curves.run_names import SEEDS
from .table_runs import ASIDE, TableRun


def history_notes(entries: Sequence[TableRun]) -> list[str]:
    """Say of which runs the first rounds were made with other settings: their rows name those of the last rounds.

    An average that had not begun by then has made no round, as in the branches of a sweep.
    """
    notes: dict[str, list[str]] = {}
    for entry in entries:
        if entry.run is None or entry.run.config is None:
            continue
        for last, tables in entry.run.info.get("branch", {}).get("history", ()):
            if other := list(_other(tables, entry.run.config, last)):
                words = f"rounds up to {last} were made with other settings ({list_few(other, 3)})"
                notes.setdefault(words, []).append(entry.name)
    return [f"{list_few(names, 5)}: {words}" for words, names in notes.items()]


def _other(before: Mapping[str, Any], now: Mapping[str, Any], last: int) -> Iterator[str]:
    """Yield the keys in which a history differs, those that name a method first; how long a run is and its seeds are
    no settings of a round."""
    keys = [
        f"{section}.{key}"
        for section, table in before.items()
        if isinstance(table, Mapping) and (section != "average" or _has_begun(table, last))
        for key in dict.fromkeys((*table, *_table(now, section)))
        if table.get(key) != _table(now, section).get(key)
    ]
    kept = [key for key in keys if key not in SEEDS and key != "run.rounds" and not key.startswith(ASIDE)]
    yield from sorted(kept, key=lambda key: not key.endswith(".method"))


def _has_begun(average: Mapping[str, Any], last: int) -> bool:
    start = average.get("start")
    return isinstance(start, int) and start <= last


def _table(tables: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    table = tables.get(section, {})
    return table if isinstance(table, Mapping) else {}
