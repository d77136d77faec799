"""How a run in a folder goes on: whether ``fedscope train`` can, and the options that name the run's own code again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import FedscopeError
from .untrusted import read_json, read_toml

#: names of what no module holds: arrays, and code of a program or a notebook
UNNAMED = ("python:", "__main__:")


def code_words(info: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Return ``--code KIND=NAME`` for all own code of a run; nothing of what only the program has that trained it.

    Args:
        info: what ``run.json`` says.
        config: with it only the code that these settings name, which a branch takes, and ``--task NAME`` of a task of
            one's own; that of rounds before a branch is for what goes on with them itself.

    >>> code_words({"code": [{"kind": "server", "name": "mine:FedX"}, {"kind": "model", "name": "__main__:Net"}]})
    ('--code', 'server=mine:FedX')
    >>> code_words({"code": [{"kind": "server", "name": "mine:FedX"}]}, {"server": {"method": "fma"}})
    ()
    >>> code_words({}, {"model": {"name": "mlp", "task": "mine:ordered"}})
    ('--task', 'mine:ordered')
    """
    tables = [table for table in (config or {}).values() if isinstance(table, Mapping)]
    named = None if config is None else {str(value) for table in tables for value in table.values()}
    words: list[str] = []
    for kind, name in _codes(info):
        if named is not None and name not in named:
            continue
        if _is_import(name) and f"{kind}={name}" not in words:
            words += ("--code", f"{kind}={name}")
    return (*words, *_task_words(config or {}))


def code_words_at(path: Path, *, branch: bool = False) -> tuple[str, ...]:
    """Return them of the run in a folder; nothing where no run can be read there.

    Args:
        branch: those of a branch alone, which its configuration names.
    """
    try:
        info, settings = read_json(path / "run.json", "a run's run.json", ""), path / "config.toml"
        # a run that another program recorded lacks it
        config = read_toml(settings, "a run's configuration", "") if settings.exists() else {}
        return code_words(info, config) if branch else (*code_words(info), *_task_words(config))
    except (FedscopeError, OSError):
        return ()


def _codes(info: Any) -> list[tuple[str, str]]:
    """Return kind and name of all code that a ``run.json`` names, which may hold anything: it is also read for what is
    wrong with another file."""
    listed = info.get("code") if isinstance(info, Mapping) else None
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list | tuple) else []
    found = [(entry.get("kind"), entry.get("name")) for entry in entries]
    return [(a, b) for a, b in found if isinstance(a, str) and isinstance(b, str) and a.isidentifier()]


def _is_import(name: object) -> bool:
    """Check whether it is the name of something in a module, and nothing else."""
    return isinstance(name, str) and ":" in name and name.isprintable() and not name.startswith(UNNAMED)


def is_recorded_at(path: Path) -> bool:
    """Whether the run in a folder is one that another program trained; False where no run can be read there."""
    try:
        info = read_json(path / "run.json", "a run's run.json", "")
        return isinstance(info, Mapping) and "source" in info
    except (FedscopeError, OSError):
        return False


def _task_words(config: Mapping[str, Any]) -> tuple[str, ...]:
    model = config.get("model")
    task = model.get("task") if isinstance(model, Mapping) else None
    return ("--task", task) if isinstance(task, str) and _is_import(task) else ()
