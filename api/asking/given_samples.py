"""The samples that models are measured on, and the architecture that they fit: a run's own, or what was given."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..checkpoints import FedscopeError, Layout
from ..checkpoints.models.adapters import about_adapters
from ..checkpoints.models.wrappers import unwrapped
from .measured_on import Source

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor, nn

    from ..checkpoints import Partition, Run, Weights
    from ..landscape import Samples, Task
    from ..training import Dataset


def refuse_nameless(runs: Sequence[Run], source: Source) -> None:
    """Say what a run of another program does not, and how it is said instead.

    Raises:
        FedscopeError: a run that names no architecture or no data, and no --model or --data.
    """
    for run in runs:
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


def model_named(run: Run, source: Source) -> Any:
    """The architecture that was given, else the one that a recorded run names; None where neither does.

    Raises:
        FedscopeError: as :func:`refuse_calls`.
    """
    if source.model is not None:
        return source.model
    named = run.info.get("model")
    if named is not None and ":" in named:
        refuse_calls(run, "--model", named)
    return named


def data_named(runs: Sequence[Run], source: Source) -> Any:
    """The data that were given, else those that a recorded run names without more; None of a run that was trained.

    Raises:
        FedscopeError: as :func:`refuse_calls`.
    """
    if source.data is None and runs and runs[0].is_foreign and runs[0].config is None:
        from ..training.building import is_own_data

        data = runs[0].info.get("data", {})
        named = data.get("name") if "sha256" not in data else None
        if named is not None and is_own_data(named):
            refuse_calls(runs[0], "--data", named)
        return named
    return source.data


def refuse_changed_data(runs: Sequence[Run], source: Source) -> None:
    """Refuse the file that a recorded run names where it has changed; what is given with --data may be anything.

    Raises:
        FedscopeError: says how to measure on it all the same.
    """
    if source.data is None and runs and runs[0].is_foreign:
        from ..checkpoints.recorder.named_data import refuse_changed

        refuse_changed(runs[0].path, runs[0].info.get("data", {}))


def refuse_calls(run: Run, option: str, named: str) -> None:
    """Refuse what a run's file names beyond code in the folder that the user stands in, without arguments.

    A run may come from anybody: ``os:system('...')`` is a name, too, and so is code that lies inside the run.

    Raises:
        FedscopeError: a call with arguments, or code from elsewhere; says how to ask for it.
    """
    module, here = named.partition(":")[0], Path.cwd()
    own = module.isidentifier() and (here / f"{module}.py").is_file() and here != run.path.resolve()
    if "(" in named or not own or module in sys.stdlib_module_names:
        raise FedscopeError(
            f"{run.path} names {option.removeprefix('--')} {named}, and no code is called as a run's file says it; if "
            f"you know it, give {option} {shlex.quote(named)}"
        )


def asked_task(runs: Sequence[Run], source: Source) -> Task:
    """What is measured: --task, else what the first run has learnt, else what the data are for.

    Raises:
        FedscopeError: no such task; a run whose task is code of the user's own.
    """
    from ..training import given_task, learnt_by, task_of_data

    if source.task is not None:
        return given_task(source.task)
    data = data_named(runs, source)
    if runs and not (runs[0].is_foreign and runs[0].config is None and data is not None):
        return learnt_by(runs[0])
    return task_of_data(data) if isinstance(data, str) else given_task(None)


def given_data(data: Any, task: Task) -> Dataset:
    """A data set by its name, or what one's own arrays, ``Dataset`` or ``DataLoader`` hold, for a task.

    Raises:
        FedscopeError: no such data; targets that the task does not take.
    """
    from ..training import load_data, taken_data

    return load_data(data, task) if isinstance(data, str) else taken_data(data, task)


def task_settings(module: nn.Module, samples: Samples, weights: Weights) -> dict[str, Any]:
    """What a task of the user's own gives: its name stays when its code changes."""
    from ..landscape.evaluation.known_tasks import is_own

    if not is_own(samples.task):
        return {}
    values = _first(module, samples, weights, lambda outputs: samples.task.loss(outputs, samples.y[:4]))
    return {"task_behaviour": values}


def given_module(model: Any, dataset: Dataset) -> nn.Module:
    """An architecture by its name, or a module as it is, without what only wraps it (``DataParallel``, ...).

    Raises:
        FedscopeError: no such architecture; data that it does not take.
    """
    from ..training import build_module, model_settings

    if not isinstance(model, str):
        return cast("nn.Module", unwrapped(model))
    architecture = model_settings(model)
    module = build_module(architecture, dataset.shape, dataset.classes)
    architecture.refuse_samples(dataset)
    return cast("nn.Module", unwrapped(module))


def name_of(given: Any) -> str | None:
    """What provenance calls data or a model that may be an object."""
    return given if given is None or isinstance(given, str) else type(given).__name__


def dataset_of(runs: Sequence[Run], source: Source) -> Dataset:
    """The data of whole runs: those of --data, else those that the first one was trained on.

    Raises:
        FedscopeError: a run that does not say what is needed; --data that are not what a run says it was trained on.
    """
    from ..decomposition.cohort.membership import refuse_outside
    from ..training import data_of

    refuse_nameless(runs, source)
    data = data_named(runs, source)
    refuse_changed_data(runs, source)
    if data is None:
        return data_of(runs[0], asked_task(runs, source))
    dataset = given_data(data, asked_task(runs, source))
    for run in runs:
        seen = run.info.get("data", {}).get("sha256")
        if seen not in (None, dataset.sha256):
            raise FedscopeError(f"--data {name_of(data)} is not the data that {run.path} was trained on; leave it out")
        # of test samples alone the clients' part is not read
        if seen is None and run.partition is not None and len(dataset.y_train):
            refuse_outside(run.partition, len(dataset.samples("train")), str(run.path), str(name_of(data)))
    return dataset


def module_for(run: Run, source: Source, dataset: Dataset) -> nn.Module:
    """A run's architecture: that of --model, else the one of its configuration; its parameters are not loaded.

    Raises:
        FedscopeError: the run's models do not fit it; the run names none.
    """
    from ..landscape.evaluation.recorded_names import named_as_recorded
    from ..training import module_of

    refuse_nameless([run], source)
    model = source.model if not run.is_foreign or run.config is not None else model_named(run, source)
    if model is None:
        return module_of(run)
    module = named_as_recorded(given_module(model, dataset), run.layout)
    read_as(module, run)
    difference = Layout.of(module).difference(run.layout)
    if difference:
        raise FedscopeError(f"{run.path} does not fit the architecture of --model {name_of(model)}: {difference}")
    return module


def read_as(module: nn.Module, run: Run) -> None:
    """Have the rounds of a run read in the order of an architecture that has the same tensors."""
    run.layout = run.layout.as_in(Layout.of(module))


def given_settings(runs: Sequence[Run], source: Source) -> dict[str, Any]:
    """What a result's provenance says of --data and --model, and of what a model of the user's own answers."""
    from ..landscape.evaluation.known_tasks import CLASSIFICATION

    model = model_named(runs[0], source)
    said: dict[str, Any] = {"data": name_of(data_named(runs, source)), "architecture": name_of(model)}
    if is_own_model(model):
        dataset, round_ = dataset_of(runs, source), runs[0].round("last")
        weights = round_.read("global") if "global" in round_.models else round_.clients().row(0)
        said["behaviour"] = behaviour(module_for(runs[0], source, dataset), dataset.samples("test"), weights)
    clauses = [*map(halves_read, runs), *(about_adapters(run.layout.names) for run in runs)]
    said |= {"models_read": read} if (read := "; ".join(dict.fromkeys(filter(None, clauses)))) else {}
    task = asked_task(runs, source)
    return said | ({} if task is CLASSIFICATION else {"task": task.name})


def halves_read(run: Run) -> str:
    """A clause for a run whose models are stored in half precision; empty for others."""
    stored = sorted({entry.stored for entry in run.layout.entries if entry.stored})
    return f"{' and '.join(stored)} tensors are read as float32" if stored else ""


def averaged_statistics(runs: Sequence[Run]) -> dict[str, Any]:
    """What a result on averages of clients says of the running statistics of normalization layers, where there are
    any: ``normalization_policy`` is ``averaged``."""
    kept = [entry for run in runs for entry in run.layout.buffers if entry.dtype.startswith("float")]
    return {"normalization_policy": "averaged"} if kept else {}


def is_own_model(model: Any) -> bool:
    """Whether it is code of the user's own, which may change and keep its name."""
    return model is not None and (not isinstance(model, str) or ":" in model)


def behaviour(module: nn.Module, samples: Samples, weights: Weights) -> list[float] | None:
    """What a module of the user's own answers: its layers' names stay when its code changes, and so does its address.

    The outputs of a model for four samples; None where it has none, which the evaluator refuses with the reason.
    """
    return _first(module, samples, weights, lambda outputs: outputs)


def _first(
    module: nn.Module, samples: Samples, weights: Weights, values: Callable[[Tensor], Tensor]
) -> list[float] | None:
    """What is made of a model's outputs for four samples."""
    from ..landscape import Replica

    try:
        replica = Replica(module)
        replica.load(weights.parameters, weights.buffers)
        made = values(replica.logits(replica.prepare(samples.x[:4])))
        return [float(value) for value in made.flatten().tolist()]
    except Exception:
        return None


def limited(dataset: Dataset, source: Source) -> Samples:
    """A split of the data, or the subset that --limit asks for."""
    samples = dataset.samples(cast(Any, source.split))
    return samples if source.limit is None else samples.limit(source.limit, source.seed)


def global_training_data(
    dataset: Dataset, partition: Partition, client_ids: npt.NDArray[np.int64] | None = None
) -> Samples:
    """D: all clients' training data, without what clients keep aside as their test part; or those of some clients."""
    from ..decomposition.cohort.membership import held_by

    samples, rows = dataset.samples("train"), held_by(partition, client_ids)
    if len(rows) == len(samples.y):
        return samples
    return replace(samples, x=samples.x[rows], y=samples.y[rows], indices=rows)


def samples_of_clients(
    dataset: Dataset,
    partition: Partition | None,
    source: Source,
    client_ids: npt.NDArray[np.int64] | None = None,
) -> tuple[Samples, bool]:
    """D of all clients or of these, or the test split, of --limit a part; and whether they are all of D."""
    if source.split != "train":
        return limited(dataset, source), False
    assert partition is not None, "refused where there is none"
    samples = global_training_data(dataset, partition, client_ids)
    whole = source.limit is None or source.limit >= len(samples)
    return (samples if source.limit is None else samples.limit(source.limit, source.seed)), whole


def common_samples(runs: Sequence[Run], dataset: Dataset, source: Source) -> Samples:
    """What whole runs are measured on: the test split, or the training data D of all clients, of --limit a part.

    Raises:
        FedscopeError: runs with other data, so that their numbers would not lie on one axis.
    """
    import numpy as np

    samples: Samples | None = None
    for run in runs:
        # what a run does not say, --data has said
        same = run.info.get("data", {}).get("sha256", dataset.sha256) == dataset.sha256
        own = dataset.samples("test")
        if same and source.split == "train":
            if run.partition is None and run.is_foreign:
                raise no_partition(run, "and --split train is all clients' data; give --split test")
            run.require("partition.h5")
            assert run.partition is not None, "just required"
            own = global_training_data(dataset, run.partition)
        if not same or (samples is not None and not np.array_equal(own.indices, samples.indices)):
            why = "different data" if not same else "different parts of the data (their clients keep test parts)"
            raise FedscopeError(f"{runs[0].path} and {run.path} were trained on {why}; ask for one of them at a time")
        samples = own
    assert samples is not None, "a command has a run"
    return samples if source.limit is None else samples.limit(source.limit, source.seed)


def no_partition(run: Run, why: str) -> FedscopeError:
    """What is raised where a partition is needed; ``why`` it is, and what can be given instead."""
    return FedscopeError(f"{run.path} does not say which client holds which samples (no partition.h5), {why}")


def refuse_without_partition(run: Run, source: Source) -> None:
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
    """The data of a result's provenance, and the task; the seed where a subset was drawn with one."""
    from ..landscape.evaluation.measured_once import task_of

    return {
        "data": samples.name,
        "data_sha256": samples.sha256,
        "split": samples.split,
        "samples": len(samples.y),
        "seed": seed,
        **task_of(samples),
    }
