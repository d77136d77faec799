"""The layout of a table: settings of its runs that make rows, and those that make columns."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from ...checkpoints import FedscopeError, nearest
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.number_words import number_words
from ..curves.run_names import SEEDS, USUAL_TASK, with_average
from .table_runs import TableRun

#: the keys that name a method, in the order in which they are looked at
NAMING = ("label", "method", "average.method")
#: named together, as ``--method`` does, where not every method has every average
PAIR = ("method", "average.method")
#: the sections whose names make up ``method``
_METHODS = ("client.method", "server.method")
#: what a method takes from the number of rounds where nobody gives it: such a share of them, rounded up
FROM_ROUNDS = {"average.start": 0.75, "client.calibrate_from": 0.25}


def varied_settings(entries: Sequence[TableRun]) -> list[str]:
    """Return the settings in which runs differ on purpose: what follows from a label or a method is none of them.

    FedProx has a ``client.mu`` that others lack, which is no axis of a table; two of its runs with other ``client.mu``
    are. Nor is the round from which IMA averages, where it goes with the number of rounds.
    """
    keys = list(dict.fromkeys(key for entry in entries for key in entry.settings))
    found: list[str] = []
    for key in [*(name for name in NAMING if name in keys), *(key for key in keys if key not in NAMING)]:
        if key in _METHODS or _follows(key, found, entries) or _values(key, entries) < 2:
            continue
        if not any(_alike(key, other, entries) for other in found):
            found.append(key)
    return found


def _alike(key: str, other: str, entries: Sequence[TableRun]) -> bool:
    """Check whether two sections have one setting: ``client.gamma`` and ``server.gamma``, in all runs of one value."""
    return _last(key) == _last(other) and all(e.settings.get(key) == e.settings.get(other) for e in entries)


def unsaid_settings(entries: Sequence[TableRun], said: Sequence[str]) -> list[str]:
    """Settings of data, model and run that go with the method, and so are no column, though they are none of its own:
    FedProx of 4 rounds next to FMA of 8. A label stands for whatever it was given to. Those that methods have in common
    are :func:`~fedscope.training.tables.shared_settings.shared_settings`.

    Args:
        said: the keys that the table names.
    """
    if "label" in said:
        return []
    keys = dict.fromkeys(key for entry in entries for key in entry.settings)
    shared = [key for key in keys if key.startswith(("data.", "model.", "run.")) and key not in said]
    return [key for key in shared if _values(key, [one for one in entries if says(one, key)]) > 1]


def says(entry: TableRun, key: str) -> bool:
    """Check whether a setting of a run is known: what a recorded run leaves out may be anything."""
    return key in entry.settings or not entry.is_recorded


def _values(key: str, entries: Sequence[TableRun]) -> int:
    return len({repr(entry.settings.get(key)) for entry in entries})


def _follows(key: str, known: Sequence[str], entries: Sequence[TableRun]) -> bool:
    """Check whether the naming settings that are known already give a setting's value, with the number of rounds that
    of what is taken from it."""
    naming = [name for name in known if name in NAMING]
    if key in NAMING[1:] and "label" not in naming:
        return False
    if key in FROM_ROUNDS and all(is_default(key, entry) for entry in entries):
        naming.append("run.rounds")
    seen: dict[tuple[str, ...], str] = {}
    for entry in entries:
        name = tuple(repr(entry.settings.get(one)) for one in naming)
        if seen.setdefault(name, repr(entry.settings.get(key))) != repr(entry.settings.get(key)):
            return False
    return True


def is_default(key: str, entry: TableRun) -> bool:
    """Check whether a run has of :data:`FROM_ROUNDS` what nobody gave it, or does not have it."""
    value, rounds = entry.settings.get(key), entry.settings.get("run.rounds")
    return value is None or (isinstance(rounds, int) and value == ceil(FROM_ROUNDS[key] * rounds))


def axes_of(
    entries: Sequence[TableRun], rows: Sequence[str] = (), columns: Sequence[str] = (), beside: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the settings of rows and of columns: those asked for, else the first varied one, and all others.

    Args:
        beside: settings in which runs may differ and that are neither.

    Raises:
        FedscopeError: a setting that the runs do not have; runs that neither rows nor columns tell apart.
    """
    for option, keys in (("--rows", rows), ("--columns", columns)):
        refuse_unknown_keys(option, keys, entries)
    different = varied_settings(entries)
    left = [key for key in different if key not in (*rows, *columns, *beside)]
    in_sections = bool(set(_METHODS) & {*rows, *columns, *beside})
    if in_sections:
        left = _without_names(left, (*rows, *columns, *beside), entries)
    if "average.method" in left and (not _is_crossed(entries) or (rows and columns)):
        # somebody who says method means what --method chose, and that chose the average, too
        rows, columns = _with_pair(rows, ("method",)), _with_pair(columns, ("method",))
        left = [key for key in left if key not in (*rows, *columns)]
    if not rows and in_sections:
        usual = next((key for key in (*_METHODS, "average.method") if key not in (*columns, *beside)), "method")
        rows = (left[0] if left else usual,)
        left = [key for key in left if key not in rows]
    if not rows:
        first = next((key for key in NAMING if key in left), left[0] if left else "method")
        rows = PAIR if first in PAIR and not _is_crossed(entries) and "average.method" not in columns else (first,)
        left = [key for key in left if key not in rows]
    if not columns:
        columns, left = tuple(left), []
        if not in_sections and not set(NAMING) & set(rows) and not _is_crossed(entries):
            columns = _with_pair(columns, PAIR)
    if left:
        raise FedscopeError(
            f"runs differ in {list_few(left)}, too, which are neither rows nor columns; add them to --columns, or "
            "leave runs out"
        )
    return tuple(rows), tuple(columns)


def _without_names(left: Sequence[str], axes: Sequence[str], entries: Sequence[TableRun]) -> list[str]:
    """Return what is left to tell apart where clients or servers are an axis: ``method`` and ``label`` only name what
    the axes say already, or ``method`` what the section says that is none."""
    kept: list[str] = []
    for key in left:
        if key not in NAMING[:2] or not _is_given_by(axes, key, entries):
            sections = [one for one in _METHODS if one not in axes and not _is_given_by(axes, one, entries)]
            kept += sections if key == "method" and sections else [key]
    return kept


def _is_given_by(axes: Sequence[str], key: str, entries: Sequence[TableRun]) -> bool:
    """Check whether runs of the same values on the axes have one value of a setting."""
    seen: dict[tuple[str, ...], set[str]] = {}
    for entry in entries:
        seen.setdefault(tuple(repr(entry.settings.get(one)) for one in axes), set()).add(repr(entry.settings.get(key)))
    return all(len(values) == 1 for values in seen.values())


def refuse_unknown_keys(option: str, keys: Sequence[str], entries: Sequence[TableRun]) -> None:
    """Refuse what is no setting of the runs.

    Raises:
        FedscopeError: names the option and the nearest key.
    """
    known = list(dict.fromkeys(key for entry in entries for key in entry.settings))
    for key in keys:
        if key in known:
            continue
        if all(part.strip() in known for part in key.split(",")):
            parts = " ".join(f"{option} {part.strip()}" for part in key.split(","))
            raise FedscopeError(f"{option} {key!r} are several settings; write {parts}")
        if key in SEEDS:
            raise FedscopeError(
                f"{option} {key!r} is what every cell is a mean over, ± the deviation; leave it out (single runs have "
                "their own values in the .csv)"
            )
        same = [place for place in known if place.rpartition(".")[2] == key]
        hint = f'; did you mean "{same[0]}"?' if same else nearest(key, known)
        raise FedscopeError(
            f"{option} {key!r} is not a setting of these runs{hint or '; write section.key, as run.rounds, or method'}"
        )


def _with_pair(keys: Sequence[str], naming: Sequence[str]) -> tuple[str, ...]:
    """Return the keys, with the whole name of a method in the place of the first that is a part of it."""
    made: list[str] = []
    for key in keys:
        made += PAIR if key in naming else (key,)
    return tuple(dict.fromkeys(made))


def _is_crossed(entries: Sequence[TableRun]) -> bool:
    """Check whether several methods each have all of several averages, which are columns then: a paper's "+ IMA"."""
    pairs = {tuple(str(entry.settings.get(key)) for key in PAIR) for entry in entries}
    methods, averages = ({pair[i] for pair in pairs} for i in (0, 1))
    return len(methods) > 1 and len(averages) > 1 and len(pairs) == len(methods) * len(averages)


def words_of(keys: Sequence[str], entry: TableRun) -> str:
    """Name a run by some of its settings: values alone where they say what they are, in words that tell them apart.

    >>> from types import SimpleNamespace
    >>> settings = {"method": "fma", "average.method": "ima", "run.participation": 0.1}
    >>> run = SimpleNamespace(is_recorded=False, settings=settings, words={})
    >>> words_of(("method", "average.method", "run.participation"), run)
    'ima, participation 0.1'
    >>> run = SimpleNamespace(settings={"client.lr": 0.1, "server.lr": 1.0}, words={})
    >>> words_of(("client.lr", "server.lr"), run)
    'client lr 0.1, server lr 1'
    """
    if set(PAIR) <= set(keys):
        method, average = (str(entry.settings.get(key) or "none") for key in PAIR)
        both = with_average(method, average, is_plain=not entry.is_recorded)
        others = words_of([key for key in keys if key not in PAIR], entry)
        return ", ".join(part for part in (both, others) if part)
    names = [_last(key) for key in keys]
    return ", ".join(
        _word(key, entry, key.replace(".", " ") if names.count(name) > 1 else name)
        for key, name in zip(keys, names, strict=True)
    )


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _word(key: str, entry: TableRun, name: str) -> str:
    """One setting of a run; ``name`` is what it is called next to its value."""
    value = entry.settings.get(key)
    if key == "average.method" and value in (None, "none"):
        return "no average"
    if key == "label" and value is None:  # a run beside labelled ones is called by its method
        value = entry.settings.get("method")
    if key == "model.task" and value is None and says(entry, key):
        value = USUAL_TASK
    if value is None:
        name = key.partition(".")[0] if name == "name" else name  # of data.name
        return f"no {name}" if says(entry, key) else f"{name} not said"
    known = {} if isinstance(value, bool) else entry.words.get(key, {})  # where True is 1
    said = (known.get(value) if isinstance(value, int | float) else None) or number_words(value)
    return said if _last(key) in ("label", "method", "name", "partition") else f"{name} {said}"


def position(key: str, value: Any) -> float | None:
    """Place a setting on an axis; of a partition its first number. None where it is no number.

    >>> position("run.participation", 0.1), position("data.partition", "dirichlet:0.3"), position("method", "ima")
    (0.1, 0.3, None)
    """
    if isinstance(value, str):
        value = value.partition(":")[2].partition(",")[0] if key == "data.partition" else ""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
