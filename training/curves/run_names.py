"""Names of runs, and which draw of its settings each is: method, settings and seeds, from what its files say.

One place for all who ask: ``ls``, ``table``, bands of ``curves`` and reports call a run the same. Loads no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...checkpoints import Run, real_path
from ...checkpoints.runs.info import sha256_of
from ..settings.registry import METHOD_SECTIONS, halves

SEEDS = ("run.seed", "data.seed")
#: what a run is called of which nobody knows how it was trained
UNKNOWN = "method not known"
#: the task of a run whose file names none
USUAL_TASK = "classification"
_METHODS = ("client", "server", "average")


def method_of(run: Run) -> str:
    """Name a run's method, its average over rounds left out.

    Of a run trained here as ``--method`` calls it, else by its client and server; of a recorded one ``method``, else
    ``source``. A name stands only for what a file says: a run without settings is not FMA.
    """
    if run.is_foreign and (told := run.info.get("method")) is not None:
        return str(told)
    if run.config is not None and (not run.is_foreign or any(name in run.config for name in _METHODS)):
        return method_of_tables(run.config, is_plain=not run.is_foreign)
    return str(run.info.get("source") or UNKNOWN)


def average_of(run: Run) -> str:
    """Return the average over rounds that a run's settings name; ``none`` where they name none."""
    table = (run.config or {}).get("average")
    return str(table.get("method", "none")) if isinstance(table, Mapping) else "none"


def title_of(run: Run) -> str:
    """A run's method with its average over rounds, as folders are called: ``fedprox``, ``ima``, ``fedprox-ima``."""
    if run.is_foreign and average_of(run) == "none":
        return method_of(run)
    return with_average(method_of(run), average_of(run), is_plain=not run.is_foreign).replace("+", "-")


def with_average(method: str, average: str, *, is_plain: bool = True) -> str:
    """A method with its average over rounds in a word; an average of plain FMA is called by its own name alone.

    Args:
        is_plain: whether ``fma`` is fedscope's.

    >>> with_average("fma", "ima"), with_average("fedprox", "ima"), with_average("fma", "none")
    ('ima', 'fedprox+ima', 'fma')
    """
    if average == "none":
        return method
    return average if method == METHOD_SECTIONS["server"][2] and is_plain else f"{method}+{average}"


def method_of_tables(tables: Mapping[str, Any], *, is_plain: bool = True) -> str:
    """Return the client and the server of a configuration by the name that ``--method`` gives both, else by both names.

    Args:
        is_plain: whether one that is not named is fedscope's plain one; else nobody knows it, and the other is named.

    >>> method_of_tables({"client": {"method": "scaffold"}}), method_of_tables({"client": {"method": "fedsam"},
    ...                                                                         "server": {"method": "fedadam"}})
    ('scaffold', 'fedsam+fedadam')
    >>> feddyn = {"server": {"method": "feddyn"}}
    >>> method_of_tables(feddyn), method_of_tables(feddyn, is_plain=False)
    ('sgd+feddyn', 'feddyn')
    """
    told = [str(name) for section in ("client", "server") if (name := _table(tables, section).get("method"))]
    if len(told) == 1 and not is_plain:
        return told[0]
    client, server = (
        str(_table(tables, section).get(METHOD_SECTIONS[section][1], METHOD_SECTIONS[section][2]))
        for section in ("client", "server")
    )
    return "+".join(halves(client, server))


def settings_of(run: Run) -> dict[str, Any]:
    """All settings of a run that it says, by ``section.key``, without its seeds; lists as JSON.

    Of a recorded run those that its recorder was given; its data's name is a setting too, as of runs trained here.
    """
    if run.config is not None:
        flat = {
            f"{section}.{key}": value
            for section, table in run.config.items()
            if isinstance(table, Mapping)
            for key, value in table.items()
        }
        if flat.get("model.task") == USUAL_TASK:  # said, as by a sweep over tasks, or left out
            flat["model.task"] = None
    else:
        flat = dict(run.info.get("settings", {}))
    if run.is_foreign and "name" in run.info.get("data", {}):
        flat["data.name"] = run.info["data"]["name"]
    return {
        key: json.dumps(value) if isinstance(value, list | Mapping) else value
        for key, value in flat.items()
        if key not in SEEDS
    }


def both_seeds(run: Run) -> tuple[Any, Any]:
    """``run.seed`` and ``data.seed``; None where nobody says them."""
    if run.is_foreign and "seed" in run.info:
        return run.info["seed"], None
    config = run.config or {}
    return _table(config, "run").get("seed"), _table(config, "data").get("seed")


def _table(tables: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    table = tables.get(section)
    return table if isinstance(table, Mapping) else {}


def is_copy(one: Run, other: Run) -> bool:
    """Check whether two folders hold one run: the last round that both have is the same, byte for byte.

    Of the last common one, because a copy may have gone on since. Nothing is concluded from what is missing.
    """
    if real_path(one.path) == real_path(other.path):
        return True
    common = sorted(set(one.rounds) & set(other.rounds))
    if not common:
        return False
    paths = [run.round(common[-1]).path for run in (one, other)]
    return paths[0].stat().st_size == paths[1].stat().st_size and sha256_of(paths[0]) == sha256_of(paths[1])
