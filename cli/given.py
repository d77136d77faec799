"""On what runs are measured: their own data and architecture, or those of --data and --model where they name none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .options import Source

if TYPE_CHECKING:
    from torch import nn

    from ..checkpoints import Run
    from ..training import Dataset


def refuse_nameless(runs: Sequence[Run], source: Source) -> None:
    """Say what a run of another program does not, and how it is said instead.

    Raises:
        FedscopeError: a run that names no architecture or no data, and no --model or --data.
    """
    from ..checkpoints import FedscopeError

    for run in runs:
        lacks = []
        if run.is_foreign and run.config is None and not source.model:
            lacks.append(("architecture", "--model"))
        if run.is_foreign and not names_data(run) and not source.data:
            lacks.append(("data", "--data"))
        if lacks:
            what = " nor ".join(name for name, _ in lacks)
            raise FedscopeError(
                f"{run.path} was recorded by {run.info['source']} and names {'no' if len(lacks) == 1 else 'neither'} "
                f"{what}; give {' and '.join(option for _, option in lacks)}"
            )


def names_data(run: Run) -> bool:
    """Whether a run says on which data it was trained."""
    return {"name", "sha256"} <= set(run.info.get("data", {}))


def dataset_of(runs: Sequence[Run], source: Source) -> Dataset:
    """The data of whole runs: those of --data, else those that the first one was trained on.

    Raises:
        FedscopeError: a run that does not say what is needed; --data that are not what a run says it was trained on.
    """
    from ..checkpoints import FedscopeError
    from ..decomposition.theory import refuse_outside
    from ..training import data_of, load_data

    refuse_nameless(runs, source)
    if source.data is None:
        return data_of(runs[0])
    dataset: Dataset = load_data(source.data)
    for run in runs:
        seen = run.info.get("data", {}).get("sha256")
        if seen not in (None, dataset.sha256):
            raise FedscopeError(f"--data {source.data} is not the data that {run.path} was trained on; leave it out")
        if seen is None and run.partition is not None:
            refuse_outside(run.partition, len(dataset.samples("train")), str(run.path), source.data)
    return dataset


def module_for(run: Run, source: Source, dataset: Dataset) -> nn.Module:
    """A run's architecture: that of --model, else the one of its configuration; its parameters are not loaded.

    Raises:
        FedscopeError: the run's models do not fit it; the run names none.
    """
    from ..checkpoints import FedscopeError, Layout
    from ..training import build_module, model_settings, module_of

    refuse_nameless([run], source)
    if source.model is None:
        return module_of(run)
    module = build_module(model_settings(source.model), dataset.shape, dataset.classes)
    difference = Layout.of(module).difference(run.layout)
    if difference:
        raise FedscopeError(f"{run.path} does not fit the architecture of --model {source.model}: {difference}")
    return module


def given_settings(runs: Sequence[Run], source: Source) -> dict[str, Any]:
    """What a result's provenance says of --data and --model, and of what a model of the user's own answers."""
    from .sources import behaviour

    said: dict[str, Any] = {"data": source.data, "architecture": source.model}
    if source.model is not None and ":" in source.model:
        dataset, round_ = dataset_of(runs, source), runs[0].round("last")
        weights = round_.read("global") if "global" in round_.models else round_.clients().row(0)
        said["behaviour"] = behaviour(module_for(runs[0], source, dataset), dataset.samples("test"), weights)
    return said


def refuse_replays(runs: Sequence[Run], instead: str) -> None:
    """Refuse draws by replay of runs whose local training is not known.

    Args:
        instead: what to give, for the sentence.

    Raises:
        FedscopeError: a run without a configuration.
    """
    from ..checkpoints import FedscopeError

    for run in runs:
        if run.is_foreign and run.config is None:
            raise FedscopeError(
                f"{run.path} was recorded by {run.info['source']}, whose training cannot be replayed; give {instead}"
            )


def refuse_without_partition(run: Run, source: Source) -> None:
    """D is the training data of the clients that the partition names; on test data a run can do without.

    Raises:
        FedscopeError: training data are asked for.
    """
    from ..checkpoints import FedscopeError

    if not run.is_foreign:
        run.require("partition.h5")
    if source.split == "train":
        raise FedscopeError(
            f"{run.path} does not say which client holds which samples (no partition.h5), and --split train is all "
            "clients' data; give --split test, where the bias is not split"
        )
