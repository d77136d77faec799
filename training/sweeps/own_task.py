"""Tasks of one's own in sweeps: their name is a setting of a run, ``model.task``, and ``--task`` gives their code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError
from ..import_string import CodeFile, ImportString, is_call
from ..settings.code_source import source_of
from ..settings.own_code import OwnCode

if TYPE_CHECKING:
    from ..config.config import Config

#: among the code of a plan, and the setting that names it
TASK, PLACE = "task", "model.task"
_SECTION, _KEY = PLACE.split(".")


def typed_task(text: str) -> str:
    """Return a task that was typed, with its code, which is imported and called; any other text as it is.

    A criterion that says no more than classification does is that, as for a run.

    Raises:
        FedscopeError: a task that there is not; what :func:`~fedscope.training.tasks.given_task` refuses.
    """
    from ...evaluation.criteria import PlainCriterion  # loads torch, which a plan does not need
    from ...evaluation.standard_tasks import CLASSIFICATION
    from ..tasks import given_task, refuse_unknown_task

    if isinstance(text, OwnCode):
        return text
    typed = CodeFile.typed("--task", text)
    if not is_call(typed):
        refuse_unknown_task(typed, PLACE)
        return text
    if isinstance(given_task(typed), PlainCriterion):
        return CLASSIFICATION.name
    call = ImportString.parse("--task", typed)
    return OwnCode.of(call.importable, call, source_of(call.found()))


def handed_task(task: Any) -> str:
    """Return a task that Python was given for all runs of a sweep, by its name; see :func:`typed_task`.

    Raises:
        FedscopeError: an object that no name makes anew in another process.
    """
    if isinstance(task, str):
        return typed_task(task)
    from ..tasks import given_task

    named = given_task(task).name
    if is_call(named) and not named.startswith("torch.nn:"):
        raise FedscopeError(
            f"task= is the object {named}, and a sweep trains in other processes; give the name of a function that "
            "makes it, as in task='mytask:make'"
        )
    return typed_task(named)


def with_typed_task(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return tables that were typed, with the code of the task that they name; see :func:`typed_task`."""
    made = {section: dict(table) for section, table in tables.items()}
    named = made.get(_SECTION, {}).get(_KEY)
    if isinstance(named, str):
        made[_SECTION][_KEY] = typed_task(named)
    return made


def refuse_unfit_task(config: Config) -> None:
    """Refuse a task of one's own that a run's client method or partition is not defined for, before any is trained.

    Raises:
        FedscopeError: names both, and a remedy.
    """
    from ..tasks import resolve_task

    if isinstance(config.model.architecture.task, OwnCode):
        resolve_task(config, None)


def tasks_of_options(texts: Iterable[str]) -> dict[str, OwnCode]:
    """Return what ``--task`` gives for what a plan's file names, by ``task=`` and its name.

    Raises:
        FedscopeError: what :func:`typed_task` refuses.
    """
    given = map(typed_task, texts)
    return {f"{TASK}={task}": task for task in given if isinstance(task, OwnCode)}


def task_named(tables: Mapping[str, Any]) -> str | None:
    """Return the task of one's own that a configuration's tables name; None where they name none."""
    table = tables.get(_SECTION)
    named = table.get(_KEY) if isinstance(table, Mapping) else None
    return named if isinstance(named, str) and is_call(named) else None


def task_sum(tables: Mapping[str, Any]) -> dict[str, str]:
    """Return of the task's source the SHA-256, by ``task=`` and its name, and of what it imports, where its code is
    there."""
    task = task_named(tables)
    if not isinstance(task, OwnCode):
        return {}
    name = f"{TASK}={task}"
    return {name: task.source.sha256, **{imported_place(name, at): sum_ for at, sum_ in task.source.sums.items()}}


def imported_place(name: str, module: str) -> str:
    """Name a module that code imports in a plan.

    >>> imported_place("server=mine:FedX", "helpers")
    'server=mine:FedX imports helpers'
    """
    return f"{name} imports {module}"


def planned_imports(code: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the SHA-256 of what code imports, by module, of all that a plan says of code."""
    begins = imported_place(name, "")
    return {place.removeprefix(begins): sum_ for place, sum_ in code.items() if place.startswith(begins)}


def with_task(tables: Mapping[str, Any], given: Mapping[str, OwnCode]) -> dict[str, Any]:
    """Return a configuration's tables, in which the task's name comes with the code that was given for it."""
    task = given.get(f"{TASK}={task_named(tables)}")
    return dict(tables) if task is None else {**tables, _SECTION: {**tables[_SECTION], _KEY: task}}
