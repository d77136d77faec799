"""A sweep's plan: its runs, by name, each with its command; as a file it makes a folder a sweep."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...checkpoints import FedscopeError, nearest, reading, versions, write_durably
from ..config import Config, merge
from ..recipe_files import Cell, cells_of, recipe, tables_of
from ..registry import canonical_method
from ..setup import Setup
from ..words import word_of
from .sharing import Shared, shared_histories

FORMAT, VERSION, FILE = "fedscope-sweep", 1, "sweep.json"
#: the configuration that a sweep was given, kept in its folder
GIVEN = "config.toml"


@dataclass(frozen=True)
class Planned:
    """One run of a sweep.

    Attributes:
        name: of its folder; cell: what it has of each axis; seed: None where the sweep does not vary it.
        config: resolved; arguments: of ``fedscope train``, all but ``--out``.
        after: the run that it branches from, and after which round; None where it is trained from its start.
    """

    name: str
    cell: Cell
    seed: int | None
    config: Config
    arguments: tuple[str, ...]
    after: tuple[str, int] | None = None


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep, in the order of the table.

    Attributes:
        about: what it was made of: ``recipe``, ``scale``, ``settings``, ``keys``, ``seeds``.
        stored: the tables of the configuration that was given; {} for none.
    """

    runs: tuple[Planned, ...]
    about: Mapping[str, Any]
    stored: Mapping[str, Mapping[str, Any]]

    def of(self, name: str) -> Planned:
        """A run by its name."""
        return next(run for run in self.runs if run.name == name)

    @property
    def rounds(self) -> int:
        """How many rounds are trained in all; a shared history counts once."""
        return sum(run.config.run.rounds - (run.after[1] if run.after else 0) for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """As ``sweep.json`` holds it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": versions(),
            **self.about,
            "runs": [
                {
                    "name": run.name,
                    "settings": dict(run.cell),
                    "seed": run.seed,
                    "arguments": list(run.arguments),
                    "after": list(run.after) if run.after else None,
                    "config": run.config.tables(),
                }
                for run in self.runs
            ],
        }

    def write(self, folder: Path) -> None:
        """Make a folder this sweep's."""
        import tomli_w

        folder.mkdir(parents=True, exist_ok=True)
        if self.stored:
            with write_durably(folder / GIVEN) as temporary:
                temporary.write_text(tomli_w.dumps(dict(self.stored)), encoding="utf-8")
        with write_durably(folder / FILE) as temporary:
            temporary.write_text(json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def planned(
    setup: Setup,
    axes: Sequence[Sequence[Cell]],
    seeds: Sequence[int] = (),
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    share: bool = True,
) -> Plan:
    """All runs of a sweep, each checked before any is trained.

    Args:
        axes: what is varied; () for what the recipe varies. A seed sets ``run.seed`` and ``data.seed``, so that runs of
            one seed meet the same partition and the same cohorts.
        settings: of all runs; they count more than the recipe, less than what is varied.
        share: train rounds once that several runs have; see :func:`shared_histories`.

    Raises:
        FedscopeError: nothing to vary; a setting that there is not, of the wrong type or out of range; two runs that
            are the same.
    """
    given = dict(settings or {})
    own = recipe(setup.recipe).axes if setup.recipe and not axes else tuple(tuple(axis) for axis in axes)
    if not own and not seeds:
        raise FedscopeError("there is nothing to vary; give keys, as in run.participation=0.1,0.2, or --seeds 0..2")
    _refuse_strange_keys(own)
    runs: list[Planned] = []
    for cell in cells_of(own):
        method, tables = tables_of(cell)
        for seed in seeds or (None,):
            seeded: dict[str, dict[str, Any]] = {}
            if seed is not None:
                seeded = {"run": {"seed": seed}, "data": {"seed": seed}}
            config = setup.config(method, given, tables, seeded)
            parts = [_word(key, value) for key, value in cell.items() if key != "label"]
            parts = [_slug(str(cell["label"]))] if "label" in cell else parts
            parts += [f"seed{seed}"] if seed is not None else []
            name = "-".join(part for part in parts if part)
            runs.append(Planned(name, cell, seed, config, _arguments(setup, method, given, tables, seeded)))
    _refuse_same(runs)
    names = [run.name for run in runs]
    if double := {name for name in names if names.count(name) > 1}:
        runs = [replace(run, name=f"{run.name}-{i}") if run.name in double else run for i, run in enumerate(runs, 1)]
    shared: list[Shared | None] = shared_histories([run.config for run in runs]) if share else [None] * len(runs)
    runs = [
        run if of is None else replace(run, after=(runs[of.trunk].name, of.round))
        for run, of in zip(runs, shared, strict=True)
    ]
    about = {
        "recipe": setup.recipe,
        "scale": setup.scale,
        "settings": given,
        "axes": [[dict(cell) for cell in axis] for axis in own],
        "seeds": list(seeds),
    }
    return Plan(tuple(runs), about, setup.stored)


def read_plan(folder: Path) -> Plan:
    """The plan of a sweep's folder.

    Raises:
        FedscopeError: no sweep, a damaged plan, or one of a newer version.
    """
    path = folder / FILE
    if not path.is_file():
        raise FedscopeError(f"{folder} is no sweep: it has no {FILE}; give the --out of fedscope sweep")
    with reading(path, "the plan of a sweep"):
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw.get("format") != FORMAT:
            raise FedscopeError(f"{path} is not the plan of a sweep; give the --out of fedscope sweep")
        if raw.get("version", 0) > VERSION:
            raise FedscopeError(
                f"{path} is of version {raw['version']}, this fedscope knows {VERSION}; update fedscope"
            )
        runs = tuple(
            Planned(
                entry["name"],
                entry["settings"],
                entry["seed"],
                Config.recorded(entry["config"]),
                tuple(entry["arguments"]),
                tuple(entry["after"]) if entry["after"] else None,
            )
            for entry in raw["runs"]
        )
        about = {key: raw[key] for key in ("recipe", "scale", "settings", "axes", "seeds")}
    stored: Mapping[str, Mapping[str, Any]] = {}
    if (folder / GIVEN).exists():
        from ..config import read_toml

        stored = read_toml(folder / GIVEN)
    return Plan(runs, about, stored)


def _arguments(setup: Setup, method: str | None, *above: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """``fedscope train`` with these gives the same configuration; a given file is in the sweep's folder."""
    words: list[str] = []
    if setup.recipe:
        words += ["--recipe", setup.recipe]
    elif setup.stored:
        words += [GIVEN]
    if setup.scale is not None:
        words += ["--scale", f"{setup.scale:g}"]
    if method:
        words += ["--method", method]
    for section, table in merge(*above).items():
        for key, value in table.items():
            words += ["--set", f"{section}.{key}={word_of(value)}"]
    return tuple(words)


def _refuse_strange_keys(axes: Sequence[Sequence[Cell]]) -> None:
    """Refuse keys that no configuration has, where methods differ and each cell alone could not say it well."""
    sections = ("data", "model", "client", "server", "average", "run", "record")
    for axis in axes:
        for key in {key for cell in axis for key in cell}:
            section, dot, _ = key.partition(".")
            if key not in ("method", "label") and not (dot and section in sections):
                raise FedscopeError(
                    f"{key!r} is not a setting{nearest(key, ('method', *sections))}; write section.key, as in "
                    "run.participation"
                )


def _refuse_same(runs: Sequence[Planned]) -> None:
    seen: dict[str, Planned] = {}
    for run in runs:
        key = json.dumps(run.config.tables(), sort_keys=True)
        if key in seen:
            raise FedscopeError(
                f"{seen[key].name} and {run.name} would be the same run, setting by setting; leave one out"
            )
        seen[key] = run


def _word(key: str, value: Any) -> str:
    """A setting in a run's name: ``participation0.1``; of methods and names the value alone."""
    if key in ("method", "average.method") and value == "none":
        return ""
    last = key.rpartition(".")[2]
    if key == "method":
        value = canonical_method(str(value))
    return _slug(f"{value}" if last in ("method", "name", "partition", "label") else f"{last}{word_of(value)}")


def _slug(text: str) -> str:
    return re.sub(r"[^\w.]+", "-", text).strip("-").lower()
