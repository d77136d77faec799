"""The samples that models are measured on, and the architecture that they fit: a run's own, or what was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from ...analysis.named_code import refuse_named_code
from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError, Layout
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.adapters import settings_of_run
from ...checkpoints.models.expected import STATISTICS
from ...checkpoints.models.factor_names import about_adapters
from ...checkpoints.models.unregistered import say_unregistered
from ...checkpoints.models.wrappers import unwrap
from .adapter_settings import refuse_misfit_adapters, refuse_unlike_runs
from .any_model import any_model
from .behaviour import behaviour_settings, task_settings
from .recorded_data import data_named as data_named
from .recorded_data import dataset_asked, is_recorded, refuse_other_splits, refuse_unlike
from .recorded_error import compare_recorded

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import nn

    from ...checkpoints import Run
    from ...evaluation.measured_statistics import MeasuredStatistics
    from ...evaluation.samples import Samples
    from ...evaluation.tasks import Task
    from .. import Dataset


#: where no model is known that an architecture is built for
NO_SHAPES: Mapping[str, Sequence[int]] = MappingProxyType({})


def refuse_nameless(runs: Sequence[Run], source: EvaluationConfig) -> None:
    """Say what a run of another program does not, and how it is said instead.

    Raises:
        FedscopeError: a run that names no architecture or no data, and no --model or --data.
    """
    for run in runs:
        if not is_recorded(run):
            refuse_named_code(run, source)
        lacks = []
        if run.is_foreign and run.config is None and model_named(run, source) is None:
            lacks.append(("architecture", "--model"))
        if run.is_foreign and "name" not in run.info.get("data", {}) and not source.data:
            lacks.append(("data", "--data"))
        if lacks:
            what = " nor ".join(name for name, _ in lacks)
            raise FedscopeError(
                f"{run.path} was recorded by {run.info['source']} and names {'no' if len(lacks) == 1 else 'neither'} "
                f"{what}; give {' and '.join(option for _, option in lacks)}"
            )


def model_named(run: Run, source: EvaluationConfig) -> Any:
    """Return the architecture that was given, else the one that a recorded run names; None where neither does.

    Raises:
        NamedCodeError: as :func:`~fedscope.analysis.named_code.refuse_named_code`.
    """
    if source.model is not None:
        return source.model
    refuse_named_code(run, source)
    return run.info.get("model")


def asked_task(runs: Sequence[Run], source: EvaluationConfig) -> Task:
    """Choose the task that is measured: --task, else that of a folder's network (``hf:FOLDER``), else what the first
    run has learnt, else what the data are for.

    Raises:
        FedscopeError: no such task; a run whose task is code of the user's own.
    """
    from .. import given_task, learnt_by, task_of_data
    from ..models.pretrained import is_pretrained, task_of_folder

    if source.task is not None:
        return given_task(source.task)
    if is_pretrained(source.model):
        return given_task(task_of_folder(source.model, source.base))
    data = data_named(runs, source)
    if runs and not (is_recorded(runs[0]) and data is not None):
        return learnt_by(runs[0])
    return task_of_data(data) if isinstance(data, str) else given_task(None)


def given_module(
    model: Any, dataset: Dataset, shapes: Mapping[str, Sequence[int]] = NO_SHAPES, base: Path | str | None = None
) -> nn.Module:
    """An architecture by its name, or a module as it is, without what only wraps it (``DataParallel``, ...).

    Args:
        base: of an adapter, where it was given.
        shapes: of the tensors of a model that it is built for, whose head says how many outputs it has where the data
            have only some of the classes.

    Raises:
        FedscopeError: no such architecture; data that it does not take.
    """
    from ...evaluation.layered_replica import without_memory
    from ...evaluation.validation import refuse_shapeless
    from .. import build_module, model_settings
    from ..build import outputs_of
    from ..models.custom import in_float32
    from ..models.pretrained import PretrainedFolder, heed_masks

    if not isinstance(model, str):
        model = unwrap(model)
        if not callable(getattr(model, "named_parameters", None)):
            raise FedscopeError(
                f"model= was given as {type(model).__name__}, which does not say how a network computes; give the "
                "module, a class or function that makes it, or its name, as cnn or module:factory"
            )
        refuse_shapeless(model)
        if unknown := say_unregistered(cast("nn.Module", model)):
            warn_user(f"model= is not whole: {unknown}")
        return in_float32(cast("nn.Module", model), f"a {type(model).__name__} is")
    architecture = model_settings(model)
    if base is not None and isinstance(architecture, PretrainedFolder) and Path(base).is_dir():
        architecture = replace(architecture, base=str(base))
    outputs = outputs_of(architecture, dataset, shapes)
    module = build_module(architecture, dataset.shape, outputs)
    architecture.refuse_samples(replace(dataset, classes=outputs))
    if isinstance(architecture, PretrainedFolder):
        heed_masks(module, dataset, model)
    return without_memory(cast("nn.Module", unwrap(module)))


def shapes_of(layout: Layout) -> dict[str, Sequence[int]]:
    """Return the shapes of a model's tensors, by name."""
    return {entry.name: entry.shape for entry in layout.entries}


def name_of(given: Any) -> str | None:
    """Name data or a model that may be an object, for provenance."""
    return given if given is None or isinstance(given, str) else type(given).__name__


def dataset_of(runs: Sequence[Run], source: EvaluationConfig) -> Dataset:
    """Return the data of whole runs: those of --data, else those that the first one was trained on.

    Raises:
        FedscopeError: a run that does not say what is needed; --data that are not what a run says it was trained on;
            as :func:`~.recorded_error.compare_recorded`.
    """
    return _data_of_runs(runs, source)[0]


def _data_of_runs(runs: Sequence[Run], source: EvaluationConfig) -> tuple[Dataset, dict[str, Any]]:
    """Return the data of whole runs, and what a result's provenance says of how they were compared with recorded
    runs'."""
    refuse_nameless(runs, source)
    if source.model is not None:
        refuse_unlike_runs(runs)
    task = asked_task(runs, source)
    dataset = dataset_asked(runs, source, task)
    refuse_other_splits(runs, source, dataset, "ask for one of them at a time")
    if data_named(runs, source) is not None:
        refuse_unlike([run for run in runs if not run.is_foreign], source, dataset)
    said = compare_recorded(runs, source, dataset, lambda run: module_for(run, source, dataset))
    return dataset, said


def module_for(run: Run, source: EvaluationConfig, dataset: Dataset) -> nn.Module:
    """A run's architecture: that of --model, else the one of its configuration; its parameters are not loaded.

    Raises:
        FedscopeError: the run's models do not fit it; the run names none.
    """
    from ...evaluation.recorded_precision import in_recorded_precision
    from ...evaluation.rename_module import rename_as_recorded
    from .. import module_of
    from .base import base_named, is_implied, with_base

    refuse_nameless([run], source)
    model = source.model if not run.is_foreign or run.config is not None else model_named(run, source)
    if model is None:
        return module_of(run)
    base = base_named(model, source.base, [run])
    whole = given_module(model, dataset, shapes_of(run.layout), base)
    told = [(str(run.path), settings_of_run(run.info))]
    refuse_misfit_adapters(told, model, whole, run.layout, base, is_given=source.base is not None)
    implied = is_implied(source.base, [run])
    adapted = with_base(whole, run.layout.names, base, str(run.path), implied=implied)
    module = rename_as_recorded(in_recorded_precision(adapted, run.layout), run.layout)
    read_as(module, run)
    difference = Layout.of(module).difference(run.layout)
    if difference:
        raise FedscopeError(f"{run.path} does not fit the architecture of --model {name_of(model)}: {difference}")
    return module


def read_as(module: nn.Module, run: Run) -> None:
    """Have the rounds of a run read in the order of an architecture that has the same tensors."""
    run.layout = run.layout.as_in(Layout.of(module))


def given_settings(
    runs: Sequence[Run], source: EvaluationConfig, adapters: str = "factors", *, module: nn.Module | None = None
) -> dict[str, Any]:
    """Describe --data, --model, and the answers of a model and of a task of the user's own, for a result's provenance.

    Args:
        adapters: what the question does with adapters, as
            :func:`~fedscope.checkpoints.models.adapters.about_adapters` takes it.
        module: the first run's, where it is there; by default it is made, and a base is then in memory twice.
    """
    from ...evaluation.standard_tasks import CLASSIFICATION, is_own_task
    from .base import base_digest, base_named

    model = model_named(runs[0], source)
    said: dict[str, Any] = {"data": name_of(data_named(runs, source)), "architecture": name_of(model)}
    foreign = any(run.is_foreign for run in runs)
    if foreign or source.model is not None:
        dataset, compared_as = _data_of_runs(runs, source)
        said |= compared_as | ({} if dataset.means or not foreign else {"standardised": False})
    task = asked_task(runs, source)
    if is_own_model(model) or is_own_task(task):
        dataset = dataset_of(runs, source)
        weights = any_model(runs[0])  # after the data, whose comparison may read the run in the module's order
        module = module_for(runs[0], source, dataset) if module is None else module
        if weights is not None and is_own_model(model):
            said |= behaviour_settings(module, dataset.samples("test"), weights)
        if weights is not None:
            said |= task_settings(module, dataset.samples("test"), weights)
    clauses = [*map(halves_read, runs), *(about_adapters(run.layout.names, adapters) for run in runs)]
    said |= {"models_read": read} if (read := "; ".join(dict.fromkeys(filter(None, clauses)))) else {}
    if (base := base_named(model, source.base, runs)) is not None:
        module = module_for(runs[0], source, dataset_of(runs, source)) if module is None else module
        said["base"] = {"path": str(base), "sha256": base_digest(module, runs[0].layout.names)}
    return said | ({} if task is CLASSIFICATION else {"task": task.name})


def digest_of_data(runs: Sequence[Run], source: EvaluationConfig) -> dict[str, Any]:
    """Tell which samples a question measures on, ``data_sha256`` of all arrays, where its runs do not fix them.

    Nothing of runs that were trained here, nor of recorded ones that keep the sum of their arrays or of their file:
    others are refused, or said as ``data_accepted``. So results of earlier versions, which never say it, stay those of
    these runs.
    """
    if not any(run.is_foreign for run in runs):
        return {}
    from ...checkpoints.recorder.inputs import named_data
    from ..data.same_data import is_fixed_by_name

    named = data_named(runs, source)
    if is_fixed_by_name(named):
        return {}
    dataset = dataset_of(runs, source)
    kept = [run.info.get("data", {}) for run in runs]
    if all(data.get("sha256") == dataset.sha256 for data in kept):
        return {}
    given = named_data(named) if isinstance(source.data, str) and isinstance(named, str) else {}
    files = [data.get("file_sha256") for data in kept]
    if all(files) and (source.data is None or set(files) == {given.get("file_sha256")}):
        return {}
    return {"data_sha256": dataset.sha256}


def halves_read(run: Run) -> str:
    """A clause for a run whose models are stored in half precision; empty for others."""
    stored = sorted({entry.stored for entry in run.layout.entries if entry.stored})
    return f"{' and '.join(stored)} tensors are read as float32" if stored else ""


def averaged_statistics(runs: Sequence[Run], *measured: MeasuredStatistics | None) -> dict[str, Any]:
    """Return what a result on averages of clients says of the running statistics of normalization layers, where there
    are any: ``normalization_policy`` is ``averaged``, or ``re-estimate`` where they were measured on the averages."""
    if said := [one.provenance() for one in measured if one is not None and one.x is not None]:
        return said[0]
    return next(filter(None, (averaged_buffers(run.layout) for run in runs)), {})


def averaged_buffers(layout: Layout) -> dict[str, Any]:
    """Return the same of averages of models of a layout."""
    kept = [
        entry
        for entry in layout.buffers
        if entry.dtype.startswith("float") and entry.name.rpartition(".")[2] in STATISTICS
    ]
    return {"normalization_policy": "averaged"} if kept else {}


def is_own_model(model: Any) -> bool:
    """Check whether it is code of the user's own, which may change and keep its name."""
    return model is not None and (not isinstance(model, str) or ":" in model)


def limit_samples(dataset: Dataset, source: EvaluationConfig) -> Samples:
    """A split of the data, or the subset that --limit asks for."""
    samples = dataset.samples(cast(Any, source.split))
    return samples if source.limit is None else samples.limit(source.limit, source.seed)


def global_training_data(dataset: Dataset, run: Run, client_ids: npt.NDArray[np.int64] | None = None) -> Samples:
    """D: all clients' training data, without what clients keep aside as their test part; or those of some clients.

    Raises:
        FedscopeError: a run without a partition; fewer training samples than it names, as data may be that were
            accepted (``accept_data``).
    """
    from ..data.membership import indices_held, refuse_outside

    run.require("partition.h5")
    partition = run.partition
    assert partition is not None, "just required"
    refuse_outside(partition, len(dataset.y_train), str(run.path), dataset.name)
    samples, rows = dataset.samples("train"), indices_held(partition, client_ids)
    if len(rows) == len(samples.y):
        return samples
    return replace(samples, x=samples.x[rows], y=samples.y[rows], indices=rows)


def samples_of_clients(
    dataset: Dataset, run: Run, source: EvaluationConfig, client_ids: npt.NDArray[np.int64] | None = None
) -> tuple[Samples, bool]:
    """D of all clients or of these, or the test split, of --limit a part; and whether they are all of D.

    Raises:
        FedscopeError: as :func:`global_training_data`.
    """
    if source.split != "train":
        return limit_samples(dataset, source), False
    samples = global_training_data(dataset, run, client_ids)
    whole = source.limit is None or source.limit >= len(samples)
    return (samples if source.limit is None else samples.limit(source.limit, source.seed)), whole


def common_samples(runs: Sequence[Run], dataset: Dataset, source: EvaluationConfig) -> Samples:
    """Choose the samples that whole runs are measured on: the test split, or the training data D of all clients, of
    --limit a part.

    Raises:
        FedscopeError: runs with other data, so that their numbers would not lie on one axis; as
            :func:`global_training_data`.
    """
    import numpy as np

    samples: Samples | None = None
    for run in runs:
        # what a run does not say, --data has said
        # of a recorded run that was compared already
        same = run.is_foreign or run.info.get("data", {}).get("sha256", dataset.sha256) == dataset.sha256
        own = dataset.samples("test")
        if same and source.split == "train":
            if run.partition is None and run.is_foreign:
                raise no_partition(run, "and --split train is all clients' data; give --split test")
            own = global_training_data(dataset, run)
        if not same or (samples is not None and not np.array_equal(own.indices, samples.indices)):
            why = "different data" if not same else "different parts of the data (their clients keep test parts)"
            raise FedscopeError(f"{runs[0].path} and {run.path} were trained on {why}; ask for one of them at a time")
        samples = own
    assert samples is not None, "a command has a run"
    return samples if source.limit is None else samples.limit(source.limit, source.seed)


def no_partition(run: Run, why: str) -> FedscopeError:
    """Make the error for a partition that is needed; ``why`` it is, and what can be given instead."""
    return FedscopeError(f"{run.path} does not say which client holds which samples (no partition.h5), {why}")


def require_own_data(run: Run) -> None:
    """Refuse a run without a partition, which says what is a client's own.

    Raises:
        FedscopeError: the run has none.
    """
    if run.partition is None and run.is_foreign:
        raise no_partition(run, "so no data are a client's own; record it by a Recorder with partition= and labels=")
    run.require("partition.h5")


def refuse_without_partition(run: Run, source: EvaluationConfig) -> None:
    """D is the training data of the clients that the partition names; on test data a run can do without.

    Raises:
        FedscopeError: training data are asked for.
    """
    if not run.is_foreign:
        run.require("partition.h5")
    if source.split == "train":
        raise no_partition(
            run, "and --split train is all clients' data; give --split test, where the bias is not split"
        )


def describe_samples(samples: Samples, seed: int | None) -> dict[str, Any]:
    """Describe the data of a result's provenance, and the task; the seed where a subset was drawn with one."""
    from ...evaluation.resumable import task_of

    return {
        "data": samples.name,
        "data_sha256": samples.sha256,
        "split": samples.split,
        "samples": len(samples.y),
        "seed": seed,
        **task_of(samples),
    }
