"""The federation of a run that another program trained: its partition, and its data where they are to be had."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError, Run, expand_home, npz_names, read_npz
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.recorder.coerce_tokens import LABELS, TOKENS
from ...checkpoints.recorder.stored_data import NAME, read_kept
from ...command_line import answering
from ...training.inputs.recorded_data import dataset_asked, is_recorded, refuse_unlike

if TYPE_CHECKING:
    import numpy as np

    from ...evaluation.tasks import Task
    from ...training import Dataset

GIVE = "give them with --data"
#: said of counts alone where a command writes them: what shows the samples is another result
_AGAIN = "; with --data give --force, too, where these counts were written"
#: a file's names of targets
_TARGETS = ("y_test", "y_train", "y")
#: the name of the task of classes
_CLASSES = "classification"
__all__ = ["dataset_of", "is_recorded"]


def dataset_of(run: Run, given: Any) -> Dataset | None:
    """Read the data that a recorded run names or keeps; None where they are not to be had, which is told, as the run
    counts the classes of its clients' samples itself.

    Args:
        given: data in their place; None for those of the run.

    Raises:
        FedscopeError: data that were given, and are no data or not the run's.
    """
    try:
        dataset = _read(run, given)
    except FedscopeError as error:
        if given is not None:
            raise
        warn_user(f"{run.path}: no samples are shown, only how many there are: {error}{_again()}")
        return None
    if not len(dataset.y_train):
        warn_user(
            f"{run.path}: no samples are shown, only how many there are: {dataset.name} has no training samples; "
            f"{GIVE}{_again()}"
        )
        return None
    return dataset


def _again() -> str:
    return _AGAIN if answering.get() else ""


def _read(run: Run, given: Any) -> Dataset:
    said = run.info.get("data", {})
    if given is None and "name" not in said:
        raise FedscopeError(f"the run does not say its data; {GIVE}")
    source = EvaluationConfig("train", data=given, accept_data=True)
    dataset = dataset_asked([run], source, _task(run, given))
    if others := refuse_unlike([run], source, dataset):  # says it, as they are accepted for once
        raise FedscopeError(f"{others}; give the run's own")
    return dataset


def _task(run: Run, given: Any) -> Task:
    """Choose a task that reads the data: a recorded run does not say one."""
    from ...evaluation.standard_tasks import CLASSIFICATION, TASKS
    from ...training.tasks import task_of_data

    name = given if given is not None else run.info["data"]["name"]
    if name == NAME:
        arrays = read_kept(run.path, run.info) or {}
        return TASKS[_kind(arrays.get("y_test"))]
    if not isinstance(name, str):
        return CLASSIFICATION
    shelf, _, path = name.partition(":")
    return TASKS[_kind_of_file(expand_home(path))] if shelf == "npz" else task_of_data(name)


def _kind_of_file(path: Path) -> str:
    """Tell what is learnt of the arrays of a file; classes where it cannot be read, which reading it says."""
    try:
        names = npz_names(path)
        name = next((name for name in (*_TARGETS, *LABELS) if name in names), "")
        if name or TOKENS not in names:
            return _kind(read_npz(path, only=(name,)).get(name))
    except (FedscopeError, OSError):
        return _CLASSES
    return "sequences"


def _kind(y: np.ndarray | None) -> str:
    if y is None or y.dtype.kind not in "biuf":
        return _CLASSES
    if y.ndim == 1:
        whole = y.dtype.kind != "f" or bool((y == y.round()).all())
        return _CLASSES if whole else "regression"
    return "sequences" if y.dtype.kind in "iu" else "regression"
