"""A sweep's plan: its runs, by name, each with its command; as a file it makes a folder a sweep."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError, explain_read_errors, write_durably
from ...checkpoints.io.untrusted import RESULT, read_json
from ...command_line import answering
from ...old_paths import names_of
from ...results import plain
from ...results.versions import versions
from ..config.config import Config, merge, methods_in, read_assignments, settings_class
from ..config.recipes import Cell, Tables, cells_of, recipe, tables_of
from ..config.sources import Setup, stored_tables
from ..settings.own_code import OwnCode, short_name
from ..settings.registry import METHOD_SECTIONS, canonical_method
from ..settings.values import format_value
from ..user_code.typed import typed_tables
from .axes import LABEL, METHOD, MOST, refuse_strange_key, with_values
from .own_code import code_sums, typed_cell
from .own_task import PLACE, refuse_unfit_task, with_typed_task
from .schedule import GIVEN, SharedHistory, shared_histories

FORMAT, VERSION, FILE = "fedscope-sweep", 1, "sweep.json"
#: letters of a run's name, at most: a file's name ends at 255 bytes, and a log's is longer
_LONGEST = 150
_NAME = re.compile(r"[\w][\w.-]*")
#: what a plan's file may ask for beside a configuration: no flag that names code
_FLAGS = ("--recipe", "--scale", "--method", "--set")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep.

    Attributes:
        name: of its folder; cell: what it has of each axis; seed: None where the sweep does not vary it.
        tables: its configuration, resolved; arguments: of ``fedscope train``, all but ``--out``.
        after: the run that it branches from, and after which round; None where it is trained from its start.
        code: of code that is not fedscope's the SHA-256 of its source, by kind and name: ``server=mypkg.fedx:FedX``.
    """

    name: str
    cell: Cell
    seed: int | None
    tables: Tables
    arguments: tuple[str, ...]
    after: tuple[str, int] | None = None
    code: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def config(self) -> Config:
        """Of the tables; made where it is needed, because it takes torch to know the methods, and a table does not.

        Code that nobody has given is a placeholder in it.
        """
        return Config.recorded(self.tables)

    @property
    def rounds(self) -> int:
        """The number of rounds that the run is to have."""
        return int(self.tables["run"]["rounds"])


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep, in the order of the table.

    Attributes:
        about: what it was made of: ``recipe``, ``scale``, ``settings``, ``axes``, ``seeds``, and the ``directory`` that
            relative paths in settings begin at.
        stored: the tables of the configuration that was given; {} for none.
        notes: what a scale has done, a sentence each.
    """

    runs: tuple[PlannedRun, ...]
    about: Mapping[str, Any]
    stored: Tables
    notes: tuple[str, ...] = ()

    def of(self, name: str) -> PlannedRun:
        """A run by its name."""
        return next(run for run in self.runs if run.name == name)

    @property
    def directory(self) -> Path | None:
        """The folder that relative paths in settings begin at; None where it is gone, for this process's."""
        folder = Path(str(self.about["directory"]))
        return folder if folder.is_dir() else None

    @property
    def rounds(self) -> int:
        """The number of rounds that are trained in all; a shared history counts once."""
        return sum(run.rounds - (run.after[1] if run.after else 0) for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """As ``sweep.json`` holds it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "created": datetime.now(UTC).isoformat(timespec="microseconds"),
            "versions": versions(),
            **self.about,
            "config": plain(self.stored),
            "notes": list(self.notes),
            "runs": [
                {
                    "name": run.name,
                    "settings": dict(run.cell),
                    "seed": run.seed,
                    "arguments": list(run.arguments),
                    "after": list(run.after) if run.after else None,
                    "config": run.tables,
                    **({"code": dict(run.code)} if run.code else {}),
                }
                for run in self.runs
            ],
        }

    def write(self, folder: Path) -> None:
        """Make a folder this sweep's."""
        with write_durably(folder / FILE) as temporary:
            temporary.write_text(json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def write_given(self, folder: Path) -> None:
        """Write the configuration that was given, for the runs' commands, where it is not there yet."""
        import tomli_w

        if self.stored and not (folder / GIVEN).exists():
            with write_durably(folder / GIVEN) as temporary:
                temporary.write_text(tomli_w.dumps(dict(self.stored)), encoding="utf-8")

    def refuse_edited(self, folder: Path) -> None:
        """Refuse a configuration in a sweep's folder that is not the one which the plan was made of: runs that are
        trained with it would not be the plan's.

        Raises:
            FedscopeError: names the first setting that differs, and the remedies.
        """
        path = folder / GIVEN
        if not self.stored or not path.exists():
            return
        here, planned = _keys_of(stored_tables(path)), _keys_of(self.stored)
        for key in sorted(here.keys() | planned.keys()):
            one, other = here.get(key), planned.get(key)
            if one != other:
                said, meant = ("not given" if value is None else format_value(value) for value in (one, other))
                raise FedscopeError(
                    f"{path} was edited since the sweep was planned with it: its {key} is {said}, and was {meant}; "
                    "restore it, or remove it, and it is written again; for another configuration begin another sweep"
                )


def _keys_of(tables: Tables) -> dict[str, Any]:
    """Return settings by ``section.key``."""
    found: dict[str, Any] = {}
    for section, table in plain(tables).items():
        found |= (
            {f"{section}.{key}": one for key, one in table.items()} if isinstance(table, dict) else {section: table}
        )
    return found


def plan_sweep(
    setup: Setup,
    axes: Sequence[Sequence[Cell]],
    seeds: Sequence[int] = (),
    settings: Tables | None = None,
    *,
    share: bool = True,
) -> Plan:
    """All runs of a sweep, each checked before any is trained.

    Args:
        axes: what is varied; () for what the recipe varies, which a scale makes smaller with all else. A seed sets
            ``run.seed`` and ``data.seed``, so that runs of one seed meet the same partition and the same cohorts.
        settings: of all runs whose method has them; they count more than the recipe, and none of them is varied.
        share: train rounds once that several runs have; see :func:`shared_histories`.

    Raises:
        FedscopeError: nothing to vary; a setting that there is not, of the wrong type or out of range, or that is given
            twice; two runs that are the same.
    """
    given, own = with_typed_task(typed_tables(plain(settings or {}, finite=False))), bool(setup.recipe and not axes)
    asked = tuple(tuple(typed_cell(plain(cell, finite=False)) for cell in axis) for axis in axes)
    varied = recipe(setup.recipe).axes if own else asked
    if not varied and not seeds:
        way = 'axes, as in {"run.participation": [0.1, 0.2]}, or seeds=[0, 1, 2]'
        if answering.get():
            way = "keys, as in run.participation=0.1,0.2, or --seeds 0..2"
        raise FedscopeError(f"there is nothing to vary; give {way}")
    _refuse_double_keys(varied, given, seeds, setup.recipe if own else "")
    cells = cells_of(varied)
    if (count := len(cells) * max(1, len(seeds))) > MOST:
        raise FedscopeError(f"these are {count:,} runs, more than {MOST:,}; vary less")
    _refuse_partly_known(setup, cells, given)
    unlabelled = {key for axis in varied if not any(LABEL in cell for cell in axis) for cell in axis for key in cell}
    runs: list[PlannedRun] = []
    smaller: list[str] = []
    used: set[tuple[str, str]] = set()
    for cell in cells:
        for seed in seeds or (None,):
            run, notes, keys = _planned_run(
                setup, given, cell, seed, own=own, unlabelled=unlabelled, noted=seed in (None, *seeds[:1])
            )
            runs.append(run)
            smaller += notes
            used |= keys
    method, tables = tables_of(cells[0])
    for section, table in given.items():
        for key in table:
            if (section, key) not in used:  # a setting of no run, which is said as of the first
                setup.config(method, merge(methods_in(given), tables, {section: {key: table[key]}}))
    notes = [setup.note(smaller)] if smaller else []
    if own and setup.scale is not None and len(different := list(_first_of_each(runs))) < len(runs):
        notes.append(f"{len(different)} of {len(runs)} runs differ at this scale; the others are left out")
        runs = different
    _refuse_same(runs)
    for run in runs:
        refuse_unfit_task(run.config)
    runs = _uniquely_named(runs)
    shared: list[SharedHistory | None] = shared_histories([run.config for run in runs]) if share else [None] * len(runs)
    runs = [
        run if of is None else replace(run, after=(runs[of.trunk].name, of.round))
        for run, of in zip(runs, shared, strict=True)
    ]
    about = {
        "recipe": setup.recipe,
        "scale": setup.scale,
        "settings": given,
        "axes": [[dict(cell) for cell in axis] for axis in varied],
        "seeds": list(seeds),
        "directory": str(Path.cwd()),
    }
    return Plan(tuple(runs), about, setup.stored, tuple(notes))


def _planned_run(
    setup: Setup, given: Tables, cell: Cell, seed: int | None, *, own: bool, unlabelled: set[str], noted: bool
) -> tuple[PlannedRun, Sequence[str], set[tuple[str, str]]]:
    """A run of a cell and a seed, notes on its scale where they are asked for, and which of the given settings it has.

    Args:
        given: the settings of all runs.
        own: whether the recipe varies the cells, so that a scale makes them smaller, too.
        unlabelled: keys of axes without labels, which names say next to a label.
    """
    method, tables = tables_of(cell)
    seeded = {} if seed is None else {"run": {"seed": seed}, "data": {"seed": seed}}
    fitting = _settings_that_fit(given, setup, method, merge(tables, seeded))
    below, above = (tables, (fitting, seeded)) if own else ({}, (methods_in(given), tables, fitting, seeded))
    config = setup.config(method, *above, cell=below)
    notes = setup.notes(config, method, *above, cell=below) if noted else ()
    here = _in_small(cell, config) if own and setup.scale is not None else cell
    named = {key: value for key, value in here.items() if LABEL not in here or key in unlabelled or key == LABEL}
    words = _arguments(setup, method, merge(below, *above), config)
    used = {(section, key) for section, table in fitting.items() for key in table}
    tables, sums = config.tables(), code_sums(config.tables())
    return PlannedRun(_name(named, seed, config), here, seed, tables, words, None, sums), notes, used


def read_plan(folder: Path, *, checked: bool = True) -> Plan:
    """Read the plan of a sweep's folder.

    Args:
        checked: whether every run's configuration is made, to see that it can be; that takes torch.

    Raises:
        FedscopeError: no sweep, a damaged plan, or one of a newer version.
    """
    path = folder / FILE
    if not path.is_file():
        raise FedscopeError(f"{folder} is not a sweep: it has no {FILE}; give the --out of fedscope sweep")
    with explain_read_errors(path, "the plan of a sweep"):
        raw = read_json(path, "the plan of a sweep", "restore it from a copy", RESULT)
        if raw["format"] != FORMAT:
            raise FedscopeError(f"{path} is not the plan of a sweep; give the --out of fedscope sweep")
        if raw["version"] > VERSION:
            raise FedscopeError(
                f"{path} is of version {raw['version']}, this fedscope knows {VERSION}; update fedscope"
            )
        runs = tuple(
            PlannedRun(
                entry["name"],
                entry["settings"],
                entry["seed"],
                entry["config"],
                tuple(entry["arguments"]),
                tuple(entry["after"]) if entry["after"] else None,
                dict(entry.get("code", {})),
            )
            for entry in raw["runs"]
        )
        if checked:
            for run in runs:
                _ = run.config
        _refuse_unsafe(path, runs)
        about = {key: raw[key] for key in ("recipe", "scale", "settings", "axes", "seeds", "directory")}
        return Plan(runs, about, raw["config"], tuple(raw["notes"]))


def _refuse_unsafe(path: Path, runs: Sequence[PlannedRun]) -> None:
    """Refuse a plan that would write outside of its folder, or ask for more than a configuration.

    Raises:
        FedscopeError: it was not written by fedscope.
    """
    names = Counter(run.name for run in runs)
    for run in runs:
        words = run.arguments[1:] if run.arguments[:1] == (GIVEN,) else run.arguments
        flags = words[::2]
        plain_words = len(words) % 2 == 0 and all(flag in _FLAGS for flag in flags)
        trunk = run.after is None or (run.after[0] in names and 1 <= run.after[1] < run.rounds)
        if not (_NAME.fullmatch(run.name) and names[run.name] == 1 and plain_words and trunk):
            raise FedscopeError(
                f"{path} is damaged: its run {run.name!r} does not belong to a sweep; restore it from a copy"
            )


def describe_difference(there: Plan, asked: Plan) -> str:
    """In what two plans differ first, as the end of a sentence; "" where they are of the same runs.

    How runs share their first rounds makes none: their results are the same.
    """
    for plan, other, word in ((asked, there, "without"), (there, asked, "with")):
        names = {run.name for run in other.runs}
        if missing := [run.name for run in plan.runs if run.name not in names]:
            return f", {word} {missing[0]}"
    for run in asked.runs:
        before, after = there.of(run.name).config.tables(), run.config.tables()
        for section, table in after.items():
            # the method first, as others have other settings
            for key in sorted({*table, *before[section]}, key=lambda key: (key != METHOD, key)):
                old, new = before[section].get(key), table.get(key)
                if old != new:
                    return f", with {section}.{key} = {format_value(old)} in {run.name}, not {format_value(new)}"
    return ""


def _settings_that_fit(given: Tables, setup: Setup, method: str | None, cell: Tables) -> Tables:
    """Of the settings given for all runs those that a run's methods have: ``average.window`` is none of a run without
    an average, and is given together with ``average.method=none,ima``."""
    names = setup.methods(method, methods_in(given), cell)
    known = {
        section: {selector, *(key.name for key in fields(settings_class(shelf, names[section])))}
        for section, (shelf, selector, _) in METHOD_SECTIONS.items()
    }
    return {
        section: {key: value for key, value in table.items() if key in known.get(section, table)}
        for section, table in given.items()
    }


def _refuse_partly_known(setup: Setup, cells: Sequence[Cell], given: Tables) -> None:
    """Refuse a varied setting that the methods of some combinations have, and those of others have not.

    Raises:
        FedscopeError: names both, and the remedy.
    """
    having: dict[str, dict[bool, Cell]] = {}
    for cell in cells:
        for key in cell:
            section, _, last = key.partition(".")
            if section not in METHOD_SECTIONS or _chooses(key):
                continue
            method, tables = tables_of(cell)
            name = setup.methods(method, methods_in(given), tables)[section]
            known = {one.name for one in fields(settings_class(METHOD_SECTIONS[section][0], name))}
            having.setdefault(key, {}).setdefault(last in known, cell)
    for key, found in having.items():
        if len(found) == 2:
            with_it, without = (
                _describe_cell({place: value for place, value in found[has].items() if _chooses(place)})
                for has in (True, False)
            )
            raise FedscopeError(
                f"{key} is varied, which {with_it} has and {without} does not; make two sweeps, one of the methods "
                "that have it and one of the others, and compare them: fedscope table SWEEP SWEEP"
            )


def _chooses(place: str) -> bool:
    """Check whether a key of a cell chooses a method or a model."""
    section, _, last = place.partition(".")
    return place == METHOD or (section in METHOD_SECTIONS and last == METHOD_SECTIONS[section][1])


def _arguments(setup: Setup, method: str | None, settings: Tables, config: Config) -> tuple[str, ...]:
    """``fedscope train`` with these gives the same configuration; a given file is in the sweep's folder."""
    words: list[str] = []
    if setup.recipe:
        words += ["--recipe", setup.recipe]
    elif setup.stored:
        words += [GIVEN]
    if setup.scale is not None:
        words += ["--scale", format_value(setup.scale)]
    if method:
        words += ["--method", method]
    said = merge(setup.unsaid(method, settings), settings)
    if setup.scale is not None:
        final = config.tables()
        # a command line's settings count more than the scale: what a recipe varies is said as the scale has made it
        for section, table in said.items():
            table |= {key: final[section].get(key, value) for key, value in table.items()}
        now = setup.config(method, read_assignments(_assignments(said))).tables()
        for section, table in final.items():
            other = {key: value for key, value in table.items() if now[section].get(key) != value}
            said.setdefault(section, {}).update(other)
    return (*words, *(word for text in _assignments(said) for word in ("--set", text)))


def _assignments(settings: Tables) -> list[str]:
    """``section.key=value``, as ``--set`` takes them."""
    return [
        f"{section}.{key}={format_value(value)}" for section, table in settings.items() for key, value in table.items()
    ]


def _in_small(cell: Cell, config: Config) -> Cell:
    """Scale what a recipe varies."""
    tables = config.tables()
    return {
        key: tables[key.partition(".")[0]].get(key.partition(".")[2], value) if "." in key else value
        for key, value in cell.items()
    }


def _first_of_each(runs: Sequence[PlannedRun]) -> Iterator[PlannedRun]:
    """Runs that no earlier one is the same as."""
    seen: set[str] = set()
    for run in runs:
        key = json.dumps(run.tables, sort_keys=True)
        if key not in seen:
            seen.add(key)
            yield run


def _refuse_double_keys(axes: Sequence[Sequence[Cell]], given: Tables, seeds: Sequence[int], recipe_name: str) -> None:
    """Refuse keys that no configuration has, and those of which it is not clear what counts."""
    owners: dict[str, int] = {}
    for number, axis in enumerate(axes):
        for key in {key: None for cell in axis for key in cell}:
            if key == LABEL:
                continue
            refuse_strange_key(key)
            if owners.setdefault(key, number) != number:
                raise FedscopeError(f"{key} is varied twice; give all of its values in one axis")
            section, _, last = key.partition(".")
            if last in given.get(section, {}):
                remedy = (
                    f"give what is to be varied yourself, as in {with_values(key)}" if recipe_name else "leave one out"
                )
                by = f"{recipe_name} varies" if recipe_name else "the sweep varies"
                flag = "--task" if key == PLACE else f"--set {key}"
                raise FedscopeError(f"{flag} sets what {by}; {remedy}")
    if seeds:
        for key in ("run.seed", "data.seed"):
            section, _, last = key.partition(".")
            if key in owners or last in given.get(section, {}):
                raise FedscopeError(f"{key} is given twice, by itself and by --seeds; leave one out")


def _refuse_same(runs: Sequence[PlannedRun]) -> None:
    seen: dict[str, PlannedRun] = {}
    for run in runs:
        key = json.dumps(run.tables, sort_keys=True)
        if key in seen:
            one, other = (_describe_cell(plan_sweep.cell) for plan_sweep in (seen[key], run))
            raise FedscopeError(f"{one} and {other} are the same run, setting by setting; leave one out")
        seen[key] = run


def _describe_cell(cell: Cell) -> str:
    """``method=fma average.method=ima``."""
    return " ".join(f"{key}={format_value(value)}" for key, value in cell.items())


def _name(cell: Cell, seed: int | None, config: Config) -> str:
    """``fedprox-participation0.1-seed0``: what a run's folder is called."""
    parts = [_word(key, value) for key, value in cell.items()]
    if not any(parts):
        parts = [config.title() if cell else ""]
    parts += [f"seed{seed}"] if seed is not None else []
    name = "-".join(part for part in parts if part)
    if len(name) > _LONGEST:
        name = f"{name[: _LONGEST - 9].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


def _word(key: str, value: Any) -> str:
    """A setting in a run's name: ``participation0.1``; of methods and names the value alone."""
    if key == "average.method" and value == "none":
        return ""
    last = key.rpartition(".")[2]
    if key == METHOD:
        value = canonical_method(value if isinstance(value, OwnCode) else str(value))
    if isinstance(value, OwnCode):  # of tasks, two of which may differ in their arguments alone, with these
        value = value.partition(":")[2] if key == PLACE else short_name(value)
    return _slug(f"{value}" if last in (METHOD, "name", "partition", LABEL) else f"{last}{format_value(value)}")


def _slug(text: str) -> str:
    """Letters that a folder's name has everywhere; it begins with one, and hides nothing."""
    exact = re.sub(r"(?<=\de)\+(?=\d)", "", text.lower())  # 1e+30 is not 1e-30
    return re.sub(r"[^a-z0-9_.]+", "-", exact).strip("-.")


def _uniquely_named(runs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Runs whose names are no other's: of equal ones the second ends with 2, ..."""
    used: set[str] = set()
    named = []
    for run in runs:
        name, number = run.name, 1
        while name in used or not name:
            number += 1
            name = f"{run.name}-{number}".strip("-")
        used.add(name)
        named.append(replace(run, name=name))
    return named


if not TYPE_CHECKING:  # a checker is to see what is really there
    __getattr__ = names_of(__name__)
