"""From a configuration, or a recorded run, to the things it names: data, module, partition, and what methods may know
of the module."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from os import PathLike, fspath
from typing import Any

import numpy as np
import torch
from torch import nn

from ..checkpoints import FedscopeError, Layout, Partition, Run, Weights, expand_home, format_size, nearest
from ..checkpoints.io.errors import list_few
from ..checkpoints.io.shell_words import quoted
from ..checkpoints.io.warn_user import warn_user
from ..checkpoints.models.weights import tensors_of
from ..checkpoints.recorder.inputs import spell_data
from ..evaluation.process_switches import float32_by_default
from ..evaluation.seeded import forked, seeded
from ..evaluation.standard_tasks import CLASSIFICATION, PADDED
from ..evaluation.tasks import Task
from ..evaluation.tied_parameters import tied_names
from ..evaluation.trainable_parameters import frozen_parameters
from .config.config import Config
from .data.custom import load_given, load_own
from .data.dataset import Dataset
from .data.hold_out import hold_out
from .data.own_partition import Listed
from .data.recorded_splits import loaded_for
from .data.same_data import is_pooled
from .data.split import partition, pool_splits, with_client_test_parts
from .import_string import CodeFile, describe_error, is_call, is_there
from .models.base import Architecture
from .models.custom import Factory, OwnModel
from .models.model_info import ModelInfo, find_head
from .models.pretrained import PretrainedFolder, is_pretrained
from .rng import generator
from .settings.code_kinds import KINDS
from .settings.code_source import CodeSource
from .settings.entry_points import installed
from .settings.own_code import OwnCode
from .settings.registry import find, method_name, names
from .tasks import recorded_task, task_of_data
from .user_code.provided_code import with_code, with_given
from .user_code.resolve import handed_code

#: a model is held so often at least, trained or measured: the module, its weights as they are read, a worker's copy
HELD = 3


def load_data(name: str, task: Task | None = None) -> Dataset:
    """``digits``, ``npz:PATH``, ``folder:PATH``, or what the user's own ``module:factory`` returns, as a data set.

    Args:
        task: what is learnt of it; by default what it is for: classes, of ``shakespeare`` sequences.

    Raises:
        FedscopeError: an unknown name, or what the loader refuses.
    """
    if isinstance(name, OwnCode):
        return load_given(name, task or CLASSIFICATION)
    name = spell_data(name)
    shelf, _, argument = name.partition(":")
    task = task_of_data(name) if task is None else task
    if _means_own_data(name):
        return load_own(name, task)
    loader: Any = find("data", shelf)
    if shelf not in names("data"):  # of an installed package
        return load_given(OwnCode.of(name, partial(loader, argument) if argument else loader, CodeSource()), task)
    loaded: Dataset = loader(argument, task)
    return loaded


def data_to_train_on(name: str, task: Task | None = None) -> Dataset:
    """A data set that a run can be trained on, and that its name brings back.

    Of samples that code of the user's own gives without saying which are for tests, some are set aside: see
    :func:`~fedscope.training.data.hold_out.hold_out`.

    Raises:
        FedscopeError: the name of code that is not here; test samples only; what the loader refuses.
    """
    if not isinstance(name, OwnCode) and _means_own_data(name):
        raise FedscopeError(
            f"data.name = {name!r} is code of your own, which is never loaded from a file; if you know it, give "
            f"--code {quoted(f'data={name}')}"
        )
    if not isinstance(name, OwnCode) and name.startswith("npz:"):
        from .data.published.npz import has_test_samples_alone

        if has_test_samples_alone(name.partition(":")[2]):  # before it is said that they standardise nothing
            raise FedscopeError(_without_training_samples(name))
    data = load_data(name, task)
    if (isinstance(name, OwnCode) or name.partition(":")[0] in installed("data")) and not len(data.y_train):
        data = hold_out(data)
    if not len(data.y_train):
        raise FedscopeError(_without_training_samples(data.name))
    if note := labels_note(data):
        warn_user(f"{data.name}: {note}")
    return data


def _without_training_samples(name: str) -> str:
    return (
        f"{name} lacks x_train and y_train, and training needs them; add them to the file, or hand over its arrays in "
        "Python, data=(x, y), of which a fifth is set aside for tests"
    )


def labels_note(data: Dataset) -> str:
    """Describe what is odd about the labels of a data set that a model is trained on; "" where nothing is.

    Labels of the test split that no training sample has, which no model can learn, and the other way round; labels that
    leave gaps, for each of which the model has an output.
    """
    if not data.task.has_classes or not len(data.y_train):
        return ""
    # what a criterion ignores is no label
    train, test = (set(np.unique(y).tolist()) - {PADDED} for y in (data.y_train, data.y_test))
    notes = []
    if unseen := sorted(test - train):
        share = float(np.isin(data.y_test, unseen).mean())
        notes.append(
            f"no training sample has {'the label' if len(unseen) == 1 else 'the labels'} {list_few(unseen, 6)}, which "
            f"{100 * share:.3g} % of the test samples have"
        )
    if data.classes_seen and (untested := sorted(train - test)):
        notes.append(
            f"no test sample has {'the label' if len(untested) == 1 else 'the labels'} {list_few(untested, 6)}"
        )
    gaps = data.classes - len(train | test)
    if gaps and data.classes_seen:
        notes.append(
            f"a model has {data.classes:,} outputs for the {len(train | test):,} classes that occur, as labels count "
            "from 0 to the greatest; number them without gaps, or say classes in the file"
        )
    return "; ".join(notes)


def is_own_data(name: str) -> bool:
    """Check whether a data set's name is code of the user's own, ``module:factory``, which only a user may name.

    >>> is_own_data("mydata:load"), is_own_data("npz:mine"), is_own_data("digits")
    (True, False, False)
    """
    shelf = name.partition(":")[0]
    return is_call(name) and shelf not in names("data") and shelf not in installed("data")


def _means_own_data(name: str) -> bool:
    """Check whether code of the user's own is meant, and no data set whose name has a slip."""
    shelf = name.partition(":")[0]
    return isinstance(name, CodeFile) or (is_own_data(name) and (is_there(shelf) or not nearest(shelf, names("data"))))


def without_numbers(architecture: Architecture, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the module without its numbers: tensors of the meta device, which have shapes and take no memory.

    Raises:
        FedscopeError: what the architecture refuses; sizes beyond what a tensor can have.
    """
    try:
        with forked(), torch.device("meta"), _default_dtype(architecture):
            return architecture.build(shape, classes)
    except (RuntimeError, OverflowError, TypeError, ValueError, MemoryError) as error:
        raise FedscopeError(
            f"{_describe_model(architecture, shape, classes)} has tensors of sizes that torch cannot have "
            f"({describe_error(error)}); make it smaller"
        ) from error


def _describe_model(architecture: Architecture, shape: tuple[int, ...], classes: int) -> str:
    return f"model.name = {method_name(architecture)!r} for samples of shape {list(shape)} and {classes:,} outputs"


def _refuse_too_large(architecture: Architecture, shape: tuple[int, ...], classes: int) -> None:
    """Refuse a module that memory does not hold, before any of it is taken.

    Raises:
        FedscopeError: says how many parameters it would have.
    """
    from .local.resources import free_memory

    module = without_numbers(architecture, shape, classes)
    needed = sum(value.numel() * value.element_size() for value in tensors_of(module).values())
    free = free_memory()
    if free is not None and HELD * needed > free:
        raise FedscopeError(
            f"{_describe_model(architecture, shape, classes)} would have {Layout.of(module).size:,} parameters, "
            f"{format_size(needed)} in each of {HELD} copies or more, but {format_size(free)} of memory are free; make "
            "its layers smaller"
        )


def build_module(architecture: Architecture, shape: tuple[int, ...], classes: int, *, seed: int = 0) -> nn.Module:
    """A module with the initial parameters that ``run.seed`` draws; torch's own random state is left as it was.

    Raises:
        FedscopeError: what the architecture refuses; one of fedscope's own that memory does not hold.
    """
    if not isinstance(architecture, Factory | OwnModel):
        _refuse_too_large(architecture, shape, classes)
    with seeded(int(generator(seed, "model").integers(0, 2**63 - 1))), _default_dtype(architecture):
        return architecture.build(shape, classes)


@contextmanager
def _default_dtype(architecture: Architecture) -> Iterator[None]:
    """Have fedscope's own architectures in float32, whatever ``torch.set_default_dtype`` says: another program that
    asks the run does not know. Code of the user's own is run as its program has set torch up."""
    with nullcontext() if isinstance(architecture, Factory | OwnModel) else float32_by_default():
        yield


def outputs_of(architecture: Architecture, data: Dataset, shapes: Mapping[str, Sequence[int]]) -> int:
    """Count the outputs of a stored model: its head's, where the data's number is but that of their labels.

    Args:
        shapes: of the stored model's tensors, by name; a prefix of the names does not count.

    Returns:
        ``data.classes`` where they are known, or where no head is found that has more.
    """
    if not data.classes_seen or isinstance(architecture, Factory | OwnModel):
        return data.classes
    head = find_head(without_numbers(architecture, data.shape, data.classes), architecture.head)
    rows = [
        shape[0] for name, shape in shapes.items() if head and f".{name}".endswith(f".{head}.weight") and len(shape) > 1
    ]
    return max(data.classes, rows[0]) if len(rows) == 1 else data.classes


def refuse_tokens(architecture: Architecture, name: str, module: nn.Module, data: Dataset) -> None:
    """Refuse tokens for a model on numbers, whose layers would say so in torch's words once a client trains.

    A network of the user's own may look them up in a parameter or count them, which the trial with a sample shows.

    Raises:
        FedscopeError: names the model, and one that takes them.
    """
    tokens = isinstance(data.x_train, np.ndarray) and data.x_train.dtype.kind == "i"
    own = isinstance(architecture, Factory | OwnModel)
    if tokens and not own and not any(isinstance(layer, nn.Embedding) for layer in module.modules()):
        raise FedscopeError(
            f"model.name = {name!r} takes numbers, but a sample of {data.name} is {data.shape[0]} tokens, which have "
            "to be embedded; give --model gru"
        )


def refuse_two_types(name: str, module: nn.Module) -> None:
    """Refuse parameters in float32 beside others in float64: training has one vector, which is in the wider type, and
    a run keeps each tensor in its own, so that a resumed run would go on from rounded numbers.

    Raises:
        FedscopeError: names one of each.
    """
    first: dict[torch.dtype, str] = {}
    for tensor, value in module.named_parameters():
        first.setdefault(value.dtype, tensor)
    if len(first) > 1:
        found = " and in ".join(f"{str(dtype).removeprefix('torch.')} ({tensor})" for dtype, tensor in first.items())
        raise FedscopeError(
            f"model.name = {name!r} has parameters in {found}, and training takes them in one type, which a resumed "
            "run would lack; give the network one type: module.float() or module.double()"
        )


def model_settings(name: str) -> Architecture:
    """An architecture by name, with its own default settings, the user's own as ``module:factory``, or that of a folder
    as ``hf:FOLDER``.

    Raises:
        FedscopeError: an unknown name; no way to write a factory.
    """
    if is_pretrained(name):
        return PretrainedFolder(path=name)
    if ":" in name:
        return Factory(path=name)
    made: Architecture = find("models", name)()
    return made


def initial_model(module: nn.Module) -> Weights:
    """Return a module's parameters and buffers as stored weights."""
    return Layout.of(module).flatten({name: value.detach().numpy() for name, value in tensors_of(module).items()})


def config_of(run: Run) -> Config:
    """Return the resolved configuration of a recorded run.

    Code that it names and nobody has given (:attr:`Run.code`) is a placeholder, see :meth:`Config.recorded`.

    Raises:
        FedscopeError: the run came from another program and has none; a setting that this fedscope does not take.
    """
    run.require("config.toml")
    try:
        return Config.recorded(with_code(run.config or {}, run.code))
    except FedscopeError as error:
        raise FedscopeError(f"{run.path / 'config.toml'}: {error}") from None


def data_of(run: Run, task: Task | None = None, given: Any = None) -> Dataset:
    """Return the data set that a run was trained on, verified.

    Args:
        task: what is measured on it; by default what the run has learnt.
        given: where it is now, ``npz:PATH``, or the arrays themselves; by default where the run says that it was.

    Raises:
        FedscopeError: it is gone, it is code of the user's own, or its arrays are not those that the run saw; the run's
            task is code of the user's own, and ``task`` was not given.
    """
    recorded: dict[str, Any] = run.info.get("data", {})
    if not {"name", "sha256"} <= recorded.keys():
        raise FedscopeError(f"{run.path} does not say on which data it was trained")
    name = with_given(run.code, "data", recorded["name"]) if given is None else _named(given)
    # a run's files never say what code is run
    if given is None and not isinstance(name, OwnCode) and is_own_data(name):
        raise FedscopeError(
            f"{run.path}: its data {name} come from your own code, which is never loaded from a run; give --data"
            + ("" if name.startswith("python:") else f", or to train or replay --code {quoted(f'data={name}')}")
        )
    if given is None and not isinstance(name, OwnCode) and is_gone(name):
        raise FedscopeError(
            f"{run.path}: its data {name} are not there; if they lie elsewhere now, give --data with that place"
        )
    with loaded_for([recorded]):
        data = load_data(name, learnt_by(run) if task is None else task)
    if recorded.get("held_out") and not len(data.y_train):
        data = hold_out(data)
    if data.sha256 != recorded["sha256"]:
        if given is not None:
            raise FedscopeError(
                f"--data {name} is not the data that {run.path} was trained on (sha256 {data.sha256[:12]}..., the run "
                f"saw {recorded['sha256'][:12]}...); give those of {recorded['name']}, wherever they lie now, or train "
                "a new run"
            )
        if isinstance(name, OwnCode):
            drawn = "" if name.startswith("python:") else ", and where a function draws them, seed it"
            raise FedscopeError(
                f"{run.path}: {name} gives other data than the run saw (sha256 {data.sha256[:12]}..., not "
                f"{recorded['sha256'][:12]}...); give the same arrays{drawn}"
            )
        raise FedscopeError(
            f"{run.path}: the data set {recorded['name']} has changed since the run was trained "
            f"(sha256 {data.sha256[:12]}..., the run saw {recorded['sha256'][:12]}...); restore the file"
        )
    return pooled_as(run, data)


def pooled_as(run: Run, data: Dataset) -> Dataset:
    """Return data whose splits are those that a run had: with ``data.pool`` it is tested on what its clients set aside.

    Args:
        data: as they were loaded.

    Raises:
        FedscopeError: the run does not say what its clients set aside.
    """
    return with_client_test_parts(pool_splits(data), partition_of(run)) if is_pooled(run) else data


def is_gone(name: str) -> bool:
    """Check whether data are a file or a folder of the user's own that is not there.

    >>> is_gone("npz:/nowhere.npz"), is_gone("folder:/"), is_gone("digits")
    (True, False, False)
    """
    shelf, _, place = name.partition(":")
    return shelf in ("npz", "folder") and not expand_home(place).exists()


def _named(given: Any) -> str:
    """Name data as a configuration does; objects come with their name."""
    if isinstance(given, str | PathLike):
        return given if isinstance(given, OwnCode) else str(spell_data(fspath(given)))
    return handed_code(KINDS["data"], given, "data=")[0]


def learnt_by(run: Run) -> Task:
    """Find the task that a run has learnt; a classification where another program does not say it.

    Raises:
        FedscopeError: code of the user's own.
    """
    model = (run.config or {}).get("model", {})
    return recorded_task(model.get("task"), str(run.path))


def partition_of(run: Run) -> Partition:
    """Read which samples each client of a run has.

    Raises:
        FedscopeError: the run came from another program and does not say it.
    """
    run.require("partition.h5")
    assert run.partition is not None, "just required"
    return run.partition


def split_dataset(config: Config, data: Dataset) -> tuple[Dataset, Partition]:
    """A data set as a configuration uses it, and which samples each client has.

    Raises:
        FedscopeError: what :func:`~fedscope.training.data.split.partition` refuses.
    """
    if not config.data.pool:
        return data, partition_for(config, data)
    together = pool_splits(data)
    split = partition_for(config, together)
    return with_client_test_parts(together, split), split


def partition_for(config: Config, data: Dataset) -> Partition:
    """Split the samples over the clients of a configuration.

    Raises:
        FedscopeError: what :func:`~fedscope.training.data.split.partition` refuses.
    """
    has_classes = data.task.has_classes
    _refuse_other_rows(config, data)
    return partition(
        config.data.partition,
        # without classes all samples are of one
        data.y_train if has_classes else np.zeros(len(data.y_train), np.int64),
        data.classes if has_classes else 1,
        config.data.clients,
        seed=config.data.seed,
        client_test=config.data.client_test,
        share=config.data.share,
        groups={kind: groups.train for kind, groups in data.groups.items()},
    )


def _refuse_other_rows(config: Config, data: Dataset) -> None:
    """Refuse indices of samples where those that are trained on are counted otherwise than they were given.

    Raises:
        FedscopeError: says how to give both.
    """
    if not isinstance(getattr(config.data.partition, "thing", None), Listed):
        return
    if data.held_out:
        raise FedscopeError(
            "partition= lists samples by number, but a fifth of data=(x, y) is set aside for tests, so that these "
            "numbers are other samples of x; give data=((x, y), (x_test, y_test))"
        )
    if config.data.share < 1:
        raise FedscopeError(
            f"partition= lists samples by number, and data.share = {config.data.share:g} leaves some of them out; "
            "leave data.share out, and list fewer samples"
        )


def module_of(run: Run) -> nn.Module:
    """Return the architecture of a run, with the run's layout checked against it; its parameters are not loaded."""
    config = config_of(run)
    architecture, shape, classes = config.model.architecture, tuple(run.info["data"]["shape"]), run.info["classes"]
    try:
        if isinstance(architecture, OwnModel):  # which knows its sizes itself, and may load numbers as it is made
            made = build_module(architecture, shape, classes, seed=config.run.seed)
            difference = Layout.of(made).difference(run.layout)
        else:  # compared before it takes memory: a file may claim any size
            difference = Layout.of(without_numbers(architecture, shape, classes)).difference(run.layout)
    except FedscopeError as error:
        raise FedscopeError(f"{run.path}: {error}") from error
    if difference:
        raise FedscopeError(
            f"{run.path}: its model {config.model.name} is not the one this fedscope builds: {difference}"
        )
    return build_module(architecture, shape, classes, seed=config.run.seed)


def model_info(config: Config, module: nn.Module, classes: int, task: Task = CLASSIFICATION) -> ModelInfo:
    """Collect what the methods of a configuration may know of its model.

    Raises:
        FedscopeError: a method that needs to know the head, and a model in which none is known.
    """
    head = find_head(module, config.model.architecture.head)
    for section, method in (("client", config.client), ("average", config.average)):
        if method.needs_head and head is None:
            raise FedscopeError(
                f"{section}.method = {method_name(method)!r} needs to know which layer of the model is its head, and "
                f"{config.model.name} has no linear layer; name the layer: --set model.head=NAME"
            )
    tied, frozen = tied_names(module), frozen_parameters(module)
    return ModelInfo(Layout.of(module), classes, config.data.clients, config.run.seed, head, task, tied, frozen)
