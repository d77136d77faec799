"""Checks that a run that fedscope trained is measured with the network that it was trained with, where somebody gives
the network: its last recorded ``test_error`` and ``test_loss`` against the measured ones.

A source's text does not decide: a comment changes it and no number, and a file beside it changes numbers and not the
text. So the numbers do, and the text only says what is likely.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError, Run, real_path
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.runs.folders import CODE
from ...checkpoints.runs.recorded_error import ErrorCheck, check_once, errors_differ, format_error
from ..user_code.kept_imports import is_alike, other_import, text_name
from .explain_error import RecordedModels, RecordedNumbers, recorded_numbers

if TYPE_CHECKING:
    from torch import nn

    from .. import Dataset
    from ..settings.code_source import CodeSource

#: outcomes of this process, for folders that cannot be written: by the run's folder and the outcome's key
_SEEN: dict[tuple[str, str], ErrorCheck] = {}
#: what was said in this process, by the run's folder
_WARNED: set[tuple[str, str]] = set()
#: losses of one network differ by less than such a share, or so much; by another share where it computed in less than
#: single precision
_SHARE, _LEAST, _COARSE = 0.005, 1e-4, 0.02


def compare_network(
    run: Run,
    source: EvaluationConfig,
    dataset: Dataset,
    module_of: Callable[[Run], nn.Module],
    key_of: Callable[[RecordedNumbers, nn.Module, Dataset], str | None],
) -> tuple[str, bool]:
    """Make sure that a network that was given is the one that a run was trained with.

    The last round that has a ``test_error`` and its model is measured once on the run's own test split; the outcome is
    kept as those of recorded runs are.

    Args:
        dataset: on which the run is to be measured; another than its own is not compared with.
        module_of: gives the network; key_of: all that an outcome depends on, None where the models do not fit.

    Returns:
        What a result's provenance says of it, and whether that is a difference that was accepted; "" where nothing is
        to be said.

    Raises:
        FedscopeError: the network has other numbers; says how to go on.
    """
    from ...evaluation.standard_tasks import is_own_task

    if source.model is None:
        return "", False
    first = next(recorded_numbers(run), None)
    own = _own_data(run, dataset)
    if first is None or own is None:
        return _untold(
            run, source, "it has no test_error" if first is None else "its own data or task are not at hand"
        ), False
    module = module_of(run)
    key = key_of(first, module, own)
    if key is None:  # it does not fit, which whoever reads the models says
        return "", False

    def measure() -> ErrorCheck:
        loss, error = RecordedModels(run, module, own, source).of(first.round, first.model)
        return first.check(loss, error, own)

    outcome = check_once(run.path, key, _SEEN, measure)
    if not _differs(run, outcome):
        if other := _another_source(run, source):
            _warn_once(run, f"{other}; its network has the recorded numbers, so it is taken")
        return "", False
    told = _told(outcome, _called(source.model))
    if run.info.get("own_draws"):  # it answers differently each time: nothing sure is seen
        warn_user(f"{run.path}: {told}; the network draws random numbers by itself, so this may be chance")
        return f"{run.name}: {told}", False
    if not source.accept_data:
        task = ", or the task" if is_own_task(own.task) else ""
        why = (
            _another_source(run, source) or f"the class, its arguments, or a file that it imports{task} may be another"
        )
        raise FedscopeError(
            f"{run.path}: {told}, so it is not the network that the run was trained with ({why}); give that one, or "
            "--accept-data (accept_data=True), which goes on and says so in every result"
        )
    return f"{run.name}: {told}", True


def _own_data(run: Run, dataset: Dataset) -> Dataset | None:
    """Return the data on which the run's numbers were measured, for what it has learnt; None where nobody has them."""
    from .. import data_of, learnt_by

    said = run.info.get("data", {}).get("sha256")
    with suppress(FedscopeError):  # a task of the user's own, which is given and has no other name than the run's
        learnt = learnt_by(run)
        if dataset.task.name != learnt.name or said != dataset.sha256:
            return data_of(run, learnt)
        return _with_own_tests(run, dataset)
    learnt_as = (run.config or {}).get("model", {}).get("task")
    return _with_own_tests(run, dataset) if said == dataset.sha256 and dataset.task.name == learnt_as else None


def _with_own_tests(run: Run, dataset: Dataset) -> Dataset:
    """Return a run's data with its own test split: with ``data.pool`` they may have that of another run, whose training
    split is the same."""
    from ..build import partition_of
    from ..data.same_data import is_pooled
    from ..data.split import with_client_test_parts

    return with_client_test_parts(dataset, partition_of(run)) if is_pooled(run) else dataset


def _differs(run: Run, outcome: ErrorCheck) -> bool:
    """Check whether numbers are of two networks: the training and this measure alike, on the same samples."""
    if errors_differ(outcome.recorded_error, outcome.error, outcome.samples):
        return True
    share = _SHARE if run.info.get("precision", "float32") == "float32" else _COARSE
    return abs(outcome.recorded_loss - outcome.loss) > max(_LEAST, share * abs(outcome.recorded_loss))  # NaN: False


def _told(outcome: ErrorCheck, name: str) -> str:
    """Both numbers."""
    errors = (outcome.recorded_error, outcome.error)
    if all(map(math.isfinite, errors)) and errors_differ(*errors, outcome.samples):
        what, (recorded, measured) = "test_error", map(format_error, errors)
    else:
        what, recorded, measured = "test_loss", f"{outcome.recorded_loss:.4g}", f"{outcome.loss:.4g}"
    return (
        f"{what} of round {outcome.round} was recorded as {recorded}, but with {name} {outcome.model} has "
        f"{measured} on all {outcome.samples:,} test samples of {outcome.data}"
    )


def _untold(run: Run, source: EvaluationConfig, why: str) -> str:
    """Say, and return, that nothing compares a network; "" where it has the name and the source of the run's."""
    if _is_same_code(run, source):
        return ""
    other = _another_source(run, source)
    clause = f"no number tells whether {_called(source.model)} is the network that it was trained with, because {why}"
    _warn_once(run, f"{other}; {clause}" if other else clause)
    return f"{run.name}: {other or clause}"


def _warn_once(run: Run, sentence: str) -> None:
    place = str(real_path(run.path)), sentence
    if place not in _WARNED:
        _WARNED.add(place)
        warn_user(f"{run.path}: {sentence}")


def _entries(run: Run) -> list[dict[str, Any]]:
    """What a run keeps of its network's code, an entry for each source that it was trained with; nothing of fedscope's
    own."""
    from ..user_code.kept_source import sources_in

    return [entry for (kind, _), own in sources_in(run).items() if kind == "model" for entry in own]


def _is_same_code(run: Run, source: EvaluationConfig) -> bool:
    """Check whether a network that was given has the name and the source of the run's, as far as it is seen."""
    from ..import_string import CodeFile
    from ..settings.own_code import name_of

    entries, model = _entries(run), source.model
    name = model if isinstance(model, str) else name_of(type(model))
    if isinstance(name, CodeFile):
        path, _, rest = name.partition(":")
        name = f"{Path(path).stem}:{rest}"
    if not entries:
        return name == str((run.config or {}).get("model", {}).get("name", ""))
    given = _source_given(model)
    same = given is not None and any(is_alike(entry, given) for entry in entries) and not given.edited
    return same and name == entries[-1]["name"]


def _another_source(run: Run, source: EvaluationConfig) -> str:
    """A clause where the file of a network that was given has another text than the run keeps; "" elsewhere, as where
    a module's class lies in another file than the function that has made it."""
    known, given = [entry for entry in _entries(run) if entry.get("sha256")], _source_given(source.model)
    if not known or given is None or given.file != known[-1].get("file", ""):
        return ""
    alike = [entry for entry in known if given.sha256 == entry["sha256"]]
    if any(is_alike(entry, given) for entry in alike):
        return ""
    if alike:
        module = other_import(alike[-1], given.sums)
        text = run.path / CODE / text_name(alike[-1].get("text", "model.py"), module)
        return f"{given.file} imports {module}, which has another source than the run was trained with, see {text}"
    text = run.path / CODE / known[-1].get("text", "model.py")
    return f"{given.file or 'the model'} has another source than the run was trained with, see {text}"


def _source_given(model: object) -> CodeSource | None:
    from ..import_string import ImportString, is_call
    from ..settings.code_source import source_of

    if not isinstance(model, str):
        return source_of(model)
    return source_of(ImportString.parse("--model", model).found()) if is_call(model) else None


def _called(model: object) -> str:
    return f"--model {model}" if isinstance(model, str) else f"a {type(model).__name__} as the model"
