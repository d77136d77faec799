"""Losses of runs of several tasks in a table: which columns they share, where no loss is better than another's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few
from ..curves.measures import CurveMeasure
from ..curves.run_curve import task_learnt
from ..curves.run_names import USUAL_TASK
from .distinct_draws import Placed
from .table_runs import TableRun

#: a setting, of which runs have losses that are no measure of each other
TASK = "model.task"


def tasks_of(entries: Sequence[TableRun]) -> dict[str, Any]:
    """Return for a table's ``attrs`` the tasks of its runs, where one has another than the usual."""
    tasks = [_task(entry) for entry in entries]
    return {"tasks": tasks} if set(tasks) - {USUAL_TASK} else {}


def _task(entry: TableRun) -> str:
    return USUAL_TASK if entry.run is None else task_learnt(entry.run)


def unlike_losses(there: Iterable[Placed], measures: Sequence[CurveMeasure]) -> dict[str, list[str]]:
    """Return of each column whose rows have losses of several tasks these tasks; {} where no measure is a loss."""
    found: dict[str, dict[str, None]] = {}
    for one in there:
        found.setdefault(one.column, {})[_task(one.entry)] = None
    is_loss = any(measure.is_loss for measure in measures)
    return {column: list(tasks) for column, tasks in found.items() if is_loss and len(tasks) > 1}


def notes_on_losses(entries: Sequence[TableRun], unlike: dict[str, list[str]]) -> list[str]:
    """Say that they do not compare."""
    if not unlike:
        return []
    tasks = dict.fromkeys(task for own in unlike.values() for task in own)
    return [
        f"rows have the losses of different tasks ({list_few(tasks, 4)}), which do not compare, so that none is the "
        f"best{_apart(entries)}"
    ]


def _apart(entries: Sequence[TableRun]) -> str:
    """Return how they are set apart, at the end of a sentence; "" where no run says its task as a setting."""
    return f"; --columns {TASK} sets them apart" if any(TASK in entry.settings for entry in entries) else ""


def refuse_choice_by_loss(
    entries: Sequence[TableRun], best_of: Sequence[str], place: Callable[[TableRun], str], by: CurveMeasure
) -> None:
    """Refuse to choose between the losses of different tasks.

    Raises:
        FedscopeError: names two of them.
    """
    seen: dict[str, str] = {}
    for entry in entries if best_of and by.is_loss else ():
        task = _task(entry)
        if (other := seen.setdefault(place(entry), task)) != task:
            raise FedscopeError(
                f"--best-of {' '.join(best_of)} would choose by {by.name} between the losses of {other} and {task}, "
                "which do not compare; give an error or an accuracy as the first --measure"
            )
