"""The runs of a table: what each is called by its settings, and what was measured of it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError, Run
from ..registry import METHOD_SECTIONS, names
from ..run_curve import Curve, metrics_of
from ..sweeps.plan import FILE
from ..sweeps.steps import RUNS
from ..sweeps.sweep import Sweep

#: settings that say where a run was computed, what is kept of it, and how often it is measured
_ASIDE = ("record.", "run.device", "run.engine", "run.evaluate")
SEEDS = ("run.seed", "data.seed")


@dataclass(frozen=True)
class Entry:
    """One run of a table.

    Attributes:
        name: its folder's; settings: all, by ``section.key``, with ``method`` and in some sweeps ``label``.
        seed: ``run.seed`` and ``data.seed``; data: the sha256 of its data; curve: what was measured.
        rounds: recorded, and how many it is to have; command: what makes it.
    """

    name: str
    settings: Mapping[str, Any]
    seed: tuple[Any, Any]
    data: str
    curve: Curve
    rounds: tuple[int, int]
    command: str


@dataclass(frozen=True)
class Gathered:
    """The runs of a table, and those that a sweep does not have yet.

    Attributes:
        missing: their names.
        varied: what the sweeps vary on purpose.
    """

    entries: tuple[Entry, ...]
    missing: tuple[str, ...] = ()
    varied: frozenset[str] = field(default_factory=frozenset)


def gather(given: Sequence[Run | Sweep | Path | str]) -> Gathered:
    """Open runs and sweeps.

    Raises:
        FedscopeError: nothing, what is neither, a run without rounds, or one given twice.
    """
    entries: list[Entry] = []
    missing: list[str] = []
    varied: set[str] = set()
    for one in given:
        if isinstance(one, Run):
            entries.append(_entry(one, one.name, {}, _own_command(one)))
            continue
        if not isinstance(one, Sweep):
            path = Path(one)
            if not (path / FILE).exists():
                run = Run.open(path)
                entries.append(_entry(run, run.name, {}, _own_command(run)))
                continue
            one = Sweep.open(path, checked=False)
        varied |= {key for run in one.plan.runs for key in run.cell}
        there = {run.path.name: run for run in one.runs}
        for planned in one.plan.runs:
            if planned.name not in there:
                missing.append(planned.name)
                continue
            label = {"label": planned.cell["label"]} if "label" in planned.cell else {}
            words = [str(one.path / word) if word == "config.toml" else word for word in planned.arguments]
            command = shlex.join(["fedscope", "train", *words, "--out", str(one.path / RUNS / planned.name)])
            entries.append(_entry(there[planned.name], planned.name, label, command))
    if not entries:
        none = f"none of the {len(missing)} runs of the sweep is complete" if missing else "no run was given"
        raise FedscopeError(f"there is nothing to make a table of: {none}; train first, as with fedscope sweep")
    return Gathered(tuple(entries), tuple(missing), frozenset(varied))


def _own_command(run: Run) -> str:
    return shlex.join(["fedscope", "train", str(run.path / "config.toml"), "--out", f"{run.path}-again"])


def _entry(run: Run, name: str, label: Mapping[str, str], command: str) -> Entry:
    last = run.round("last").number  # says that there is none
    tables = run.config or {}
    settings = {**label, "method": method_of(tables)}
    settings |= {
        f"{section}.{key}": json.dumps(value) if isinstance(value, list) else value
        for section, table in tables.items()
        for key, value in table.items()
    }
    seed = tuple(settings.pop(key, None) for key in SEEDS)
    kept = {key: value for key, value in settings.items() if not key.startswith(_ASIDE)}
    metrics = metrics_of(run)
    curve = Curve(name, metrics["round"].astype(int), {key: metrics[key] for key in metrics if key != "round"})
    of = int(tables.get("run", {}).get("rounds", last))
    return Entry(name, kept, (seed[0], seed[1]), run.info.get("data", {}).get("sha256", ""), curve, (last, of), command)


def method_of(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The client and the server of a configuration by the name that ``--method`` gives both, else by both names.

    >>> method_of({"client": {"method": "scaffold"}}), method_of({"client": {"method": "fedsam"},
    ...                                                           "server": {"method": "fedadam"}})
    ('scaffold', 'fedsam+fedadam')
    """
    client, server = (
        str(tables.get(section, {}).get(METHOD_SECTIONS[section][1], METHOD_SECTIONS[section][2]))
        for section in ("client", "server")
    )
    plain_client, plain_server = METHOD_SECTIONS["client"][2], METHOD_SECTIONS["server"][2]
    if client == plain_client:
        return server
    if server == client or (server == plain_server and client not in names("servers")):
        return client
    return f"{client}+{server}"
