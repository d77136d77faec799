"""The data that a recorded run names or keeps, as its loop had them: which they are, and in what scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...analysis.named_code import refuse_named_code
from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError
from ...checkpoints.io.shell_words import quoted
from ...checkpoints.recorder.stored_data import NAME, is_own_code, read_kept

if TYPE_CHECKING:
    from ...checkpoints import Run
    from ...evaluation.tasks import Task
    from .. import Dataset

#: files of the user's own, which a loop reads itself
_OWN = ("npz", "folder")


def is_recorded(run: Run) -> bool:
    """Check whether another program trained the run, and says itself how."""
    return run.is_foreign and run.config is None


def data_named(runs: Sequence[Run], source: EvaluationConfig) -> Any:
    """Return the data that were given, else those that a recorded run names without more; None of a run that was
    trained, or that says a sum of its arrays.

    Raises:
        NamedCodeError: as :func:`~fedscope.analysis.named_code.refuse_named_code`.
    """
    if source.data is None and runs and is_recorded(runs[0]):
        refuse_named_code(runs[0], source)
        data = runs[0].info.get("data", {})
        return data.get("name") if "sha256" not in data else None
    if isinstance(source.data, str) and source.data.startswith("text:"):
        from ..models.pretrained import PREFIX, is_pretrained

        if "@" not in source.data and is_pretrained(source.model):  # in the tokens of the model
            return f"{source.data}@{source.model.removeprefix(PREFIX)}"
    return source.data


def refuse_changed_data(runs: Sequence[Run], source: EvaluationConfig) -> None:
    """Refuse the file that a recorded run names where it has changed; what is given with --data may be anything.

    Raises:
        FedscopeError: says how to measure on it all the same.
    """
    if source.data is None and runs and runs[0].is_foreign:
        from ...checkpoints.recorder.inputs import refuse_changed

        refuse_changed(runs[0].path, runs[0].info.get("data", {}))


def dataset_asked(runs: Sequence[Run], source: EvaluationConfig, task: Task) -> Dataset:
    """Return the data of --data, else those of the first run, in the scale that its models were trained in.

    Raises:
        FedscopeError: runs of other data, or in another scale; data that are gone or changed; a run that keeps the sum
            of its arrays alone, and no --data.
    """
    from ..data.recorded_splits import loaded_for
    from .given_scale import arrays_in_scale, data_in_scale

    refuse_changed_data(runs, source)
    given = data_named(runs, source)
    if source.data is None:
        _refuse_others(runs)
    scale = scale_of(runs, source, given)
    if given is not None:
        with loaded_for([run.info.get("data", {}) for run in runs]):
            dataset = data_in_scale(given, task, scale)
        return _as_trained(runs, dataset)
    first = runs[0]
    said = first.info.get("data", {})
    if is_recorded(first) and said.get("name") == NAME:
        arrays = read_kept(first.path, first.info)
        if arrays is None:
            raise FedscopeError(
                f"{first.path} keeps the sum of its data alone (keep_data=False), so give --data (data=) with the same "
                "arrays, or an npz:PATH of them"
            )
        with loaded_for([said]):
            return arrays_in_scale(NAME, arrays, task, bool(scale), one=said.get("splits") == "one")
    return _of_training(first, task, scale)


def _as_trained(runs: Sequence[Run], dataset: Dataset) -> Dataset:
    """Return data that were given, divided as the first run on the same ones has divided them for its tests."""
    from ..build import pooled_as
    from ..data.hold_out import hold_out

    same = next((run for run in runs if run.info.get("data", {}).get("sha256") == dataset.sha256), None)
    if same is None:
        return dataset
    held_out = same.info["data"].get("held_out") and not len(dataset.y_train)
    return pooled_as(same, hold_out(dataset) if held_out else dataset)


def refuse_other_splits(runs: Sequence[Run], source: EvaluationConfig, dataset: Dataset, remedy: str) -> None:
    """Refuse to measure runs on the same data together where they have other samples in its splits: with ``data.pool``
    one would be tested on what another was trained on.

    Args:
        dataset: on which they are to be measured, divided as the first of them has it.
        remedy: what to ask instead.

    Raises:
        FedscopeError: names two of the runs.
    """
    from ..data.same_data import same_split

    # a run that does not say its data has learnt these, as far as anybody knows
    own = [run for run in runs if run.info.get("data", {}).get("sha256", dataset.sha256) == dataset.sha256]
    for run in own[1:]:
        if not same_split(own[0], run, source.split):
            raise FedscopeError(
                f"{own[0].path} and {run.path} were trained on different parts of the data (their clients keep test "
                f"parts); {remedy}"
            )


def scale_of(runs: Sequence[Run], source: EvaluationConfig, data: Any) -> bool | None:
    """Decide whether samples are standardised: as was asked for, else as recorded runs say, else recorded runs' own
    data are not; None for what the name of the data means.

    Raises:
        FedscopeError: runs whose models were trained in other scales.
    """
    trained = [run for run in runs if not is_recorded(run)]
    said = {run.path: bool(run.info.get("data", {})["standardise"]) for run in runs if says_scale(run)}
    if trained and (source.standardise is False or False in said.values()):
        other = next((path for path, how in said.items() if not how), None)
        if other is None:
            raise FedscopeError(
                f"{trained[0].path} was trained on standardised samples, and --no-standardise takes others; leave it "
                "out"
            )
        raise FedscopeError(
            f"{trained[0].path} was trained on standardised samples, and {other} was recorded without; ask for one of "
            "them at a time"
        )
    if source.standardise is not None or trained or not runs:
        return source.standardise
    if len(said) > 1 and len(set(said.values())) > 1:
        yes, no = (next(path for path, how in said.items() if how is one) for one in (True, False))
        raise FedscopeError(
            f"{yes} was recorded with standardise=True, and {no} without; ask for one of them at a time, or give "
            "--standardise or --no-standardise"
        )
    if said:
        return next(iter(said.values()))
    recorded = runs[0].info.get("data", {})
    if data is None and "sha256" in recorded and recorded.get("name") != NAME:  # as fedscope writes it when it trains
        return bool(recorded["channel_means"]) if "channel_means" in recorded else None
    return scale_of_name(data)


def scale_of_name(data: Any) -> bool | None:
    """Decide whether samples are standardised where a recorded run does not say it: files of the user's own are not.

    None for what the name means: code and objects are taken as they are by that, a standardised Dataset as well.

    >>> scale_of_name("npz:mine.npz"), scale_of_name("digits")
    (False, None)
    """
    return False if isinstance(data, str) and data.partition(":")[0] in _OWN else None


def refuse_unlike(runs: Sequence[Run], source: EvaluationConfig, dataset: Dataset) -> str:
    """Refuse data that are others than a run says.

    Returns:
        Why they are others, where that was accepted; empty where they are not.

    Raises:
        FedscopeError: arrays with another sum; samples that a run's partition does not count like this.
    """
    from ..data.membership import refuse_outside

    for run in runs:
        seen = run.info.get("data", {}).get("sha256")
        if seen is not None and seen != dataset.sha256:
            if not run.is_foreign:
                raise FedscopeError(
                    f"--data {_data_name(source.data)} is not the data that {run.path} was trained on; "
                    f"{_remedy(run, source) or 'leave it out'}"
                )
            what = (
                f"{dataset.name} is not the data that {run.path} was recorded with (sha256 {dataset.sha256[:12]}..., "
                f"the run says {seen[:12]}...)"
            )
            if not source.accept_data:
                raise FedscopeError(
                    f"{what}; {_remedy(run, source) or _give_those(run)}, or --accept-data (accept_data=True), which "
                    "goes on and says so in every result"
                )
            return what
    unlike = (_partitions_unlike(run, source, dataset, refuse_outside) for run in runs if run.is_foreign)
    return next(filter(None, unlike), "")


def _give_those(run: Run) -> str:
    return f"give those{' or leave --data out' if _keeps(run) else ''}"


def _remedy(run: Run, source: EvaluationConfig) -> str:
    """Say what to give where a run's data come from code, which has to be given again; "" where they do not."""
    from ..import_string import CodeFile, is_call

    name = str(run.info.get("data", {}).get("name", ""))
    if name.startswith(("python:", "__main__:")):
        return "give the same as in the training"
    if not is_own_code(name):
        return ""
    given = source.data if isinstance(source.data, str) else ""
    stem = Path(given.partition(":")[0]).stem if isinstance(given, CodeFile) else given.partition(":")[0]
    if is_call(given) and f"{stem}:{given.partition(':')[2]}" == name:
        return (
            "the function returns other samples each time, or it has changed: have it return the same ones in the same "
            "order, with random numbers of a fixed seed, and train again"
        )
    return f"give --data {quoted(name)}"


def _partitions_unlike(run: Run, source: EvaluationConfig, dataset: Dataset, refuse_outside: Any) -> str:
    """Check whether the labels of the samples that clients hold are those that the run has counted."""
    import numpy as np

    # of test samples alone the clients' part is not read
    if run.partition is None or not len(dataset.y_train):
        return ""
    named = dataset.name if source.data is None else _data_name(source.data)
    refuse_outside(run.partition, len(dataset.y_train), str(run.path), named)
    counts = run.partition.label_counts
    if not dataset.task.has_classes or dataset.y_train.ndim != 1 or counts.shape[1] == 1:
        return ""
    for k, rows in enumerate(run.partition.clients):
        labels = dataset.y_train[rows]
        there = labels >= 0  # a criterion may ignore others, whose class may have been counted all the same
        found = np.bincount(labels[there], minlength=counts.shape[1])
        if len(found) == counts.shape[1]:
            more = counts[k] - found
            if (more >= 0).all() and more.sum() <= (~there).sum():
                continue
        what = (
            f"client {k} of {run.path} holds {_format_counts(counts[k])} samples by class, but at the same places the "
            f"training samples of {dataset.name} have {_format_counts(found)}, so they are others, or in another order"
        )
        if not source.accept_data:
            raise FedscopeError(
                f"{what}; give the data that partition= counts, or --accept-data (accept_data=True), which goes on and "
                "says so in every result"
            )
        return what
    return ""


def _format_counts(counts: Any) -> str:
    return "[" + ", ".join(map(str, counts[:10].tolist())) + (", ...]" if len(counts) > 10 else "]")


def says_scale(run: Run) -> bool:
    return is_recorded(run) and "standardise" in run.info.get("data", {})


def _keeps(run: Run) -> bool:
    data = run.info.get("data", {})
    return data.get("name") != NAME or "file" in data


def _data_name(data: Any) -> str:
    return data if isinstance(data, str) else type(data).__name__


def _of_training(run: Run, task: Task, scale: bool | None) -> Dataset:
    from .. import data_of
    from .given_scale import as_given

    dataset = data_of(run, task)
    return as_given(dataset) if scale is False and dataset.means else dataset


def _refuse_others(runs: Sequence[Run]) -> None:
    """Refuse recorded runs that name other data than the first run, on whose they would be measured.

    Raises:
        FedscopeError: says which.
    """
    first = runs[0].info.get("data", {})
    for run in runs[1:]:
        own = run.info.get("data", {})
        told = next((key for key in ("sha256", "file_sha256", "name") if key in first and key in own), None)
        if told is not None and first[told] != own[told] and (run.is_foreign or runs[0].is_foreign):
            raise FedscopeError(
                f"{runs[0].path} and {run.path} were trained on different data ({_short(first)} and {_short(own)}); "
                "say with --data on which to measure, or ask for one of them at a time"
            )


def _short(data: dict[str, Any]) -> str:
    told = data.get("sha256") or data.get("file_sha256")
    return f"{data.get('name', 'data')}{f', sha256 {told[:12]}...' if told else ''}"
