"""Runs of a table whose code has one name and several sources, called apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..settings.code_kinds import KINDS
from ..user_code.different_sources import Sources, methods_among
from .table_runs import TableRun


def apart_by_source(entries: Sequence[TableRun]) -> tuple[TableRun, ...]:
    """Return the runs, with code of one name that has several sources in them called by the first run of each:
    ``mine:FedX (source of a0)``. A name alone does not say that two runs were trained by one method."""
    sources = iter(methods_among([entry.run for entry in entries if entry.run is not None]))
    own = [{} if entry.run is None else next(sources) for entry in entries]
    firsts: dict[tuple[str, str], dict[Sources, TableRun]] = {}
    for entry, of_run in zip(entries, own, strict=True):
        for code, source in of_run.items():
            firsts.setdefault(code, {}).setdefault(source, entry)
    made = []
    for entry, of_run in zip(entries, own, strict=True):
        settings = dict(entry.settings)
        for (kind, name), source in of_run.items():
            known = firsts[kind, name]
            if len(known) > 1:
                suffix = f" (source of {_called(known[source], list(known.values()))})"
                for key in _places(kind):
                    if key in settings and not str(settings[key]).endswith(suffix):
                        settings[key] = f"{settings[key]}{suffix}"
        made.append(replace(entry, settings=settings))
    return tuple(made)


def _called(entry: TableRun, others: Sequence[TableRun]) -> str:
    alike = [one for one in others if one.name == entry.name]
    return entry.name if len(alike) == 1 or entry.run is None else str(entry.run.path)


def _places(kind: str) -> tuple[str, ...]:
    """Return the settings by which a table tells the methods of such code apart."""
    if kind in ("client", "server"):
        return ("label", "method", KINDS[kind].place)
    return ("label", KINDS[kind].place) if kind == "average" else (KINDS[kind].place,)
