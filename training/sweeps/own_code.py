"""Code of the user's own in sweeps: what somebody typed or gave is trained; what only a plan's file names is not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError, expand_home, real_path
from ...checkpoints.io.shell_words import quoted
from ..import_string import ImportString, is_elsewhere, names_a_file
from ..settings.code_kinds import KINDS, named_in
from ..settings.code_source import digest_now
from ..settings.own_code import OwnCode, called_as, short_name
from ..user_code.kept_imports import imports_of
from ..user_code.kept_source import entries_of
from ..user_code.provided_code import Given, names_code, with_code
from ..user_code.resolve import handed_code
from ..user_code.typed import typed_method, typed_tables
from .own_task import PLACE, TASK, imported_place, planned_imports, task_named, task_sum, typed_task, with_task

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
            made[key] = typed_method(value, "method")
        elif key == PLACE and isinstance(value, str):
            made[key] = typed_task(value)
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
    """Return of the code that a configuration names the SHA-256 of its source, by kind and name, and of what it
    imports, see :func:`~.own_task.imported_place`."""
    entries, _ = entries_of(tables)
    sums = task_sum(tables)
    for entry in entries:
        name = f"{entry['kind']}={entry['name']}"
        sums[name] = entry.get("sha256", "")
        sums |= {imported_place(name, module): sum_ for module, sum_ in imports_of(entry).items()}
    return sums


def own_names(run: PlannedRun) -> Iterator[str]:
    """Yield the code of one's own that a planned run names in its tables: ``server=mine:FedX``."""
    yield from _names_in(run.tables)


def _names_in(tables: Mapping[str, Any]) -> Iterator[str]:
    for kind, value in named_in(tables):
        if isinstance(value, str) and names_code(kind, value) and (":" in value or names_a_file(value)):
            yield f"{kind.name}={value}"
    if (task := task_named(tables)) is not None:
        yield f"{TASK}={task}"


def _named(tables: Mapping[str, Any]) -> list[str]:
    """List what tables name of every kind, in one order, whether it is code of one's own or not."""
    task = task_named(tables)
    return [f"{kind.name}={value}" for kind, value in named_in(tables)] + ([] if task is None else [f"{TASK}={task}"])


def _typed_names(run: PlannedRun) -> Iterator[str]:
    """Yield what a planned run's command would import."""
    from ..config.config import read_assignments

    words = list(run.arguments)
    sets = [text for flag, text in pairwise(words) if flag == "--set"]
    yield from _names_in(read_assignments(sets))
    for flag, text in pairwise(words):
        if flag == "--method" and (":" in text or names_a_file(text)):
            yield next((name for name in own_names(run) if name.partition("=")[2] == text), f"method={text}")


@dataclass(frozen=True)
class GivenAs:
    """Code that a sweep was given, as it gives it to the processes that train.

    Attributes:
        word: behind ``--code``: ``server=fedx:FedX``, of a file that they would not find
            ``server=/methods/fedx.py:FedX``; of a task, whose option is ``--task``, ``task=losses:huber(0.5)``.
        file: that its source is of; "" where there is none.
        imports: the files of what it imports, by module.
    """

    word: str
    file: str = ""
    imports: Mapping[str, str] = field(default_factory=dict)


def given_with(plan: Plan, directory: Path | None = None) -> dict[str, GivenAs]:
    """Return what a plan names together with the code: all of a plan that was typed, nothing of one from a file.

    Such code was typed for this very command, so that where it lies is known from that, and from no plan's file.

    Args:
        directory: where a command is given it; by default the plan's.
    """
    directory = directory or Path(str(plan.about["directory"]))
    return {
        name: _given_as(name.partition("=")[0], code, directory)
        for run in plan.runs
        for name, code in code_in(run.tables).items()
    }


def code_in(tables: Mapping[str, Any]) -> dict[str, OwnCode]:
    """Return the code that a configuration's tables come with, by kind and name: ``server=mine:FedX``."""
    found = {f"{kind.name}={value}": value for kind, value in named_in(tables) if isinstance(value, OwnCode)}
    task = task_named(tables)
    return found | ({f"{TASK}={task}": task} if isinstance(task, OwnCode) else {})


def _given_as(kind: str, code: OwnCode, directory: Path) -> GivenAs:
    """Say code as a command in the folder of a plan is given it, which looks for modules there and in its Python."""
    module, _, name = code.partition(":")
    path = code.source.path
    imports = {one.module: one.path for one in code.source.imports}
    if isinstance(code.thing, ImportString) and code.thing.file:  # it may only name what comes from elsewhere
        path = str(real_path(expand_home(code.thing.file)))
    there = f"{path}:{name}"
    package = "." in module or Path(path).stem == "__init__"
    found = not is_elsewhere(path) or real_path(path) == real_path(directory / f"{module}.py")
    if not path or package or found or not names_a_file(there):
        return GivenAs(f"{kind}={code}", code.source.path, imports)
    called = "" if Path(path).stem == module or kind == TASK else f"{code}="
    return GivenAs(f"{kind}={called}{there}", code.source.path, imports)


def source_changed(run: PlannedRun, given: Mapping[str, GivenAs]) -> str | None:
    """Say that a file with code of a run says something else than when the sweep began, before the run is trained in
    vain; None where none does."""
    for name in own_names(run):
        if name not in given:
            continue
        code = name.replace("=", " ", 1)
        files = {name: (given[name].file, code)}
        files |= {imported_place(name, at): (file, f"what {code} imports") for at, file in given[name].imports.items()}
        for place, (file, what) in files.items():
            before = run.code.get(place)
            if not before or not file or (now := digest_now(file)) == before:
                continue
            sums = f"(sha256 {now[:12]}..., not {before[:12]}...)"
            other = f"says another source of {what} than the sweep began with {sums}"
            how = other if now else f"is gone, with {what} that the sweep began with"
            return f"{file} {how}; restore it, or begin another sweep with another --out"
    return None


def refuse_untrusted(runs: Sequence[PlannedRun], trusted: Collection[str], folder: Any) -> None:
    """Refuse to train runs whose plan names code that nobody gave.

    Raises:
        FedscopeError: names it, and says how it is given.
    """
    for run in runs:
        for name in (*own_names(run), *_typed_names(run)):
            if name not in trusted:
                how = " ".join(map(quoted, _option(name, name)))
                raise FedscopeError(
                    f"{folder}: the plan's run {run.name} is trained with {name.replace('=', ' ', 1)}, your own code, "
                    f"which is never loaded from a file; if you know it, give {how}"
                )


def _option(name: str, word: str) -> tuple[str, str]:
    """Return the option that gives code, and the word behind it."""
    return ("--task", word.removeprefix(f"{TASK}=")) if name.startswith(f"{TASK}=") else ("--code", word)


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
        tables = with_task(with_code(run.tables, {**given, **_of_one_source(run, given)}), given)
        sums = code_sums(tables)
        for name, code in zip(_named(run.tables), _named(tables), strict=True):
            before = run.code.get(name, "")
            now = sums.get(code, before)
            if before and now != before:
                raise FedscopeError(
                    f"{code.replace('=', ' ', 1)} has another source than the sweep began with (sha256 {now[:12]}..., "
                    f"not {before[:12]}...); restore it, or begin another sweep"
                )
            _refuse_other_import(run.code, name, code, sums)
        runs.append(replace(run, tables=tables))
    return replace(plan, runs=tuple(runs))


def _refuse_other_import(planned: Mapping[str, str], name: str, code: str, sums: Mapping[str, str]) -> None:
    """Refuse code that imports another file than the sweep began with. Raises as :func:`with_given_code`."""
    for module, before in planned_imports(planned, name).items():
        now = sums.get(imported_place(code, module), before)
        if now != before:
            raise FedscopeError(
                f"{code.replace('=', ' ', 1)} imports {module}, which has another source than the sweep began with "
                f"(sha256 {now[:12]}..., not {before[:12]}...); restore it, or begin another sweep"
            )


def _of_one_source(run: PlannedRun, given: Given) -> dict[str, OwnCode]:
    """Of code that was given what has the source of a name in the plan, under that name: of two files of one name it
    has been that of the one that was met first."""
    found: dict[str, OwnCode] = {}
    for kind, value in named_in(run.tables):
        before = run.code.get(f"{kind.name}={value}")
        if not before or isinstance(value, OwnCode):
            continue
        alike = [
            code
            for name, code in given.items()
            if name.partition("=")[0] == kind.name
            and code.source.sha256 == before
            and short_name(code) == short_name(value)
        ]
        if alike and str(value) not in map(str, alike):
            found[f"{kind.name}={value}"] = called_as(alike[0], str(value))
    return found


def planned_code_words(run: PlannedRun, given: Mapping[str, GivenAs]) -> list[str]:
    """Return ``--code``, and ``--task``, for all own code that a run names, of a plan that :func:`refuse_untrusted` has
    let pass."""
    names = dict.fromkeys(own_names(run))
    return [word for name in names for word in _option(name, given[name].word if name in given else name)]


def without_code(run: PlannedRun) -> PlannedRun:
    """Return a planned run with names alone, as a job is sent it: the job's own commands import the code."""

    def names(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: names(part) for key, part in value.items()}
        return str.__str__(value) if isinstance(value, OwnCode) else value

    return replace(run, tables=names(run.tables), cell=names(run.cell), arguments=tuple(map(names, run.arguments)))
