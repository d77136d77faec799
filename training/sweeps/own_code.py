"""Code of the user's own in sweeps: what somebody typed or gave is trained; what only a plan's file names is not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError
from ...checkpoints.io.shell_words import quoted
from ..import_string import names_a_file
from ..settings.code_kinds import KINDS, named_in
from ..settings.own_code import OwnCode
from ..user_code.kept_source import entries_of
from ..user_code.provided_code import Given, names_code, with_code
from ..user_code.resolve import handed_code
from ..user_code.typed import typed_method, typed_tables

if TYPE_CHECKING:
    from ..config.recipes import Cell
    from .plan import Plan, PlannedRun


def typed_cell(cell: Cell) -> Cell:
    """Return a cell whose values come with the code that they name: texts that were typed, or objects.

    Raises:
        FedscopeError: code that cannot be imported, or that has settings of its own: they are varied by themselves.
    """
    made = dict(cell)
    places = {kind.place: kind for kind in KINDS.values()}
    for key, value in cell.items():
        if key == "method" and isinstance(value, str):
            made[key] = typed_method(value, f"method={value}")
        elif key in places and isinstance(value, str):
            kind = places[key]
            table = typed_tables({kind.section: {kind.key: value}})[kind.section]
            made[key] = table.pop(kind.key)
            _refuse_settings(key, made[key], table)
        elif key in places and not isinstance(value, str):
            code, settings = handed_code(places[key], value, f"{key}=")
            if not isinstance(value, type) and places[key].name in ("client", "server", "average"):
                fresh = type(value)().table()
                settings = {name: one for name, one in settings.items() if fresh.get(name) != one}
                _refuse_settings(key, code, settings)
            made[key] = code
    return made


def _refuse_settings(key: str, code: Any, settings: Mapping[str, Any]) -> None:
    if settings:
        section, name = key.partition(".")[0], next(iter(settings))
        raise FedscopeError(
            f"{key}: {code} is given with settings; vary them by themselves, as in {section}.{name}={settings[name]}"
        )


def code_sums(tables: Mapping[str, Any]) -> dict[str, str]:
    """Return of the code that a configuration names the SHA-256 of its source, by kind and name."""
    entries, _ = entries_of(tables)
    return {f"{entry['kind']}={entry['name']}": entry.get("sha256", "") for entry in entries}


def own_names(run: PlannedRun) -> Iterator[str]:
    """Yield the code of one's own that a planned run names, in its tables and in its command: ``server=mine:FedX``."""
    for kind, value in named_in(run.tables):
        if names_code(kind, value) and (":" in value or names_a_file(value)):
            yield f"{kind.name}={value}"


def _typed_names(run: PlannedRun) -> Iterator[str]:
    """Yield what a planned run's command would import."""
    from ..config.config import read_assignments

    words = list(run.arguments)
    sets = [text for flag, text in pairwise(words) if flag == "--set"]
    for kind, value in named_in(read_assignments(sets)):
        if isinstance(value, str) and names_code(kind, value) and (":" in value or names_a_file(value)):
            yield f"{kind.name}={value}"
    for flag, text in pairwise(words):
        if flag == "--method" and (":" in text or names_a_file(text)):
            yield next((name for name in own_names(run) if name.partition("=")[2] == text), f"method={text}")


def trusted_names(plan: Plan) -> frozenset[str]:
    """Return what a plan names together with the code: all of a plan that was typed, nothing of one from a file."""
    return frozenset(
        f"{kind.name}={value}"
        for run in plan.runs
        for kind, value in named_in(run.tables)
        if isinstance(value, OwnCode)
    )


def refuse_untrusted(runs: Sequence[PlannedRun], trusted: Collection[str], folder: Any) -> None:
    """Refuse to train runs whose plan names code that nobody gave.

    Raises:
        FedscopeError: names it, and says how it is given.
    """
    for run in runs:
        for name in (*own_names(run), *_typed_names(run)):
            if name not in trusted:
                raise FedscopeError(
                    f"{folder}: the plan's run {run.name} is trained with {name.replace('=', ' ', 1)}, your own code, "
                    f"which is never loaded from a file; if you know it, give --code {quoted(name)}"
                )


def refuse_unknown_process(plan: Plan) -> None:
    """Refuse code that processes of their own cannot import: of a notebook, a program, or arrays.

    Raises:
        FedscopeError: names it, and the remedy.
    """
    for run in plan.runs:
        for name in own_names(run):
            kind, _, value = name.partition("=")
            if value.startswith(("__main__:", "python:")):
                remedy = "save it with numpy.savez and give npz:PATH" if kind == "data" else "put it into a module"
                raise FedscopeError(
                    f"{kind} {value} is defined in a program or a notebook, and a sweep trains in other processes, "
                    f"which cannot import it; {remedy}, or call fedscope.train"
                )


def with_given_code(plan: Plan, given: Given) -> Plan:
    """Return a plan from a file with the code that was given for what it names.

    Raises:
        FedscopeError: another source than the one that the sweep began with.
    """
    runs = []
    for run in plan.runs:
        tables = with_code(run.tables, given)
        for name, now in code_sums(tables).items():
            before = run.code.get(name, "")
            if before and now != before and name in {f"{kind.name}={value}" for kind, value in named_in(tables)}:
                raise FedscopeError(
                    f"{name.replace('=', ' ', 1)} has another source than the sweep began with (sha256 {now[:12]}..., "
                    f"not {before[:12]}...); restore it, or begin another sweep"
                )
        runs.append(replace(run, tables=tables))
    return replace(plan, runs=tuple(runs))


def code_words(run: PlannedRun) -> list[str]:
    """Return ``--code`` for all own code that a run names, of a plan that :func:`refuse_untrusted` has let pass."""
    return [word for name in dict.fromkeys(own_names(run)) for word in ("--code", name)]


def without_code(run: PlannedRun) -> PlannedRun:
    """Return a planned run with names alone, as a job is sent it: the job's own commands import the code."""

    def names(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: names(part) for key, part in value.items()}
        return str.__str__(value) if isinstance(value, OwnCode) else value

    return replace(run, tables=names(run.tables), cell=names(run.cell), arguments=tuple(map(names, run.arguments)))
