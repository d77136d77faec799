"""Settings that several methods have, as epochs and rate: what differs in them between two rows is no part of either
method, unless both have it by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from inspect import get_annotations
from typing import Any

from ..settings.registry import METHOD_SECTIONS, find, names
from .layout import FROM_ROUNDS, is_default, says
from .table_runs import TableRun


@dataclass(frozen=True)
class SharedSetting:
    """A setting in which runs of several methods differ.

    Attributes:
        entries: the runs that have it.
        by_default: whether each of them has what its method has by default.
    """

    key: str
    entries: tuple[TableRun, ...]
    by_default: bool


def shared_settings(entries: Sequence[TableRun], left_out: Sequence[str]) -> list[SharedSetting]:
    """Return the settings of methods in which runs differ, though their methods have them in common: from the class
    that both derive from, as all clients have ``epochs``. FedCM's ``client.alpha`` and FedDyn's have but one name.

    Args:
        left_out: the keys that the table names, and what it chose from.
    """
    keys = dict.fromkeys(key for entry in entries for key in entry.settings if _section(key) in _SECTIONS)
    found = []
    for key in keys:
        own = [entry for entry in entries if key in entry.settings and says(entry, key)]
        if key in left_out or _is_choice(key) or not _differ(key, own) or _is_said(key, left_out, own):
            continue
        families: dict[type, list[TableRun]] = {}
        for entry in own:
            if (family := _family(key, entry)) is not None:
                families.setdefault(family, []).append(entry)
        for members in families.values():
            if _differ(key, members):
                found.append(SharedSetting(key, tuple(members), all(_has_default(key, entry) for entry in members)))
    return found


_SECTIONS: Mapping[str, Any] = {section: place for section, place in METHOD_SECTIONS.items() if section != "model"}


def _section(key: str) -> str:
    return key.partition(".")[0]


def _is_choice(key: str) -> bool:
    return key.rpartition(".")[2] == "method"


def _differ(key: str, entries: Sequence[TableRun]) -> bool:
    return len({repr(entry.settings[key]) for entry in entries}) > 1


def _is_said(key: str, said: Sequence[str], entries: Sequence[TableRun]) -> bool:
    """Check whether a table names another section's setting of the same name, with the same value in all runs."""
    name = key.rpartition(".")[2]
    same = [other for other in said if other.rpartition(".")[2] == name]
    return any(all(entry.settings.get(other) == entry.settings[key] for entry in entries) for other in same)


def _class(key: str, entry: TableRun) -> type[Any]:
    """Return the class of the run's method; its base where the method is not fedscope's, of which no code is run."""
    from ..methods.base import AverageMethod, ClientMethod, ServerMethod

    bases: Mapping[str, type] = {"client": ClientMethod, "server": ServerMethod, "average": AverageMethod}
    shelf, _, default = _SECTIONS[_section(key)]
    name = str(entry.settings.get(f"{_section(key)}.method", default))
    if entry.is_recorded or name not in names(shelf):
        return bases[_section(key)]
    return find(shelf, name)


def _family(key: str, entry: TableRun) -> type | None:
    """Return the class that has declared a setting first; None where it is the own one of an unknown method."""
    name, kind = key.rpartition(".")[2], _class(key, entry)
    declared = [one for one in kind.__mro__ if name in get_annotations(one)]
    return declared[-1] if declared else None


def _has_default(key: str, entry: TableRun) -> bool:
    if entry.is_recorded:  # another program's defaults are not known
        return False
    if key in FROM_ROUNDS:
        return is_default(key, entry)
    name, kind = key.rpartition(".")[2], _class(key, entry)
    return any(one.name == name and one.default == entry.settings[key] for one in fields(kind))
