"""A task by its name, or what code of the user's own returns: ``--task mytask:make``, as ``--model`` names a network.

Such a function returns a :class:`~fedscope.evaluation.tasks.Task`, or a function ``loss(outputs, y) -> [n]``.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..checkpoints import FedscopeError, nearest
from ..checkpoints.io.shell_words import quoted
from ..evaluation.criteria import PlainCriterion, task_of_criterion
from ..evaluation.standard_tasks import CLASSIFICATION, TASKS, is_own_task
from ..evaluation.tasks import Plain, Task
from .data.split import parse_partition
from .import_string import ImportString, describe_type, is_call, names_a_file
from .settings.own_code import OwnCode
from .settings.registry import find, method_name, names

if TYPE_CHECKING:
    from .config.config import Config


def given_task(given: Any) -> Task:
    """A task by name, the user's own as ``module:factory`` or from a file, a :class:`Task`, a criterion of torch, or a
    function; None: classification. Code of a file is called by its module, as runs name it.

    Raises:
        FedscopeError: an unknown name; another object; what
            :class:`~fedscope.training.import_string.ImportString` refuses.
    """
    if given is None:
        return CLASSIFICATION
    if isinstance(given, OwnCode):  # of a sweep, whose name alone does not say the file
        return _take(
            _with_tensors(given.thing)(), str(given), f"--task {given}: {given.thing.spoken} returned", handed=False
        )
    if not isinstance(given, str):
        return _take(given, _name(given), "task is", handed=True)
    refuse_unknown_task(given, "--task")
    if given in TASKS:
        return TASKS[given]
    call = _with_tensors(ImportString.parse("--task", given))
    return _take(call(), call.importable, f"--task {given}: {call.spoken} returned", handed=False)


def task_of_data(name: str) -> Task:
    """Find the task of a data set where nothing else is said: what its file on the shelf says, else classes.

    >>> task_of_data("shakespeare:texts").name, task_of_data("npz:mine.npz").name
    ('sequences', 'classification')
    """
    shelf = name.partition(":")[0]
    if shelf not in names("data"):
        return CLASSIFICATION
    return TASKS[getattr(import_module(find("data", shelf).__module__), "TASK", CLASSIFICATION.name)]


def recorded_task(name: str | None, place: str) -> Task:
    """Return the task that a file names, which must be none of the user's own: a run's files never say what code is
    run.

    Raises:
        FedscopeError: code of the user's own.
    """
    if name is not None and is_call(name) and not isinstance(name, OwnCode):
        raise FedscopeError(
            f"{place}: its task {name} is your own code, which is never loaded from a file; give --task {quoted(name)}"
        )
    return given_task(name)


def trained_task(config: Config, given: Any, place: str) -> Task:
    """Return the task that a configuration names, where a training begins or goes on with it.

    Args:
        given: the same, where it is code of the user's own, which a configuration only names.
        place: the run, for sentences.

    Raises:
        FedscopeError: nothing was given, and it is code of the user's own; something else than the configuration says.
    """
    name = config.model.architecture.task
    if given is None:
        return recorded_task(name, place)
    task = given_task(given)
    if task.name != (name or CLASSIFICATION.name):
        raise FedscopeError(
            f"{place} is trained with the task {name or CLASSIFICATION.name}, and {task.name} is another; leave --task "
            "out"
        )
    return task


def resolve_task(config: Config, given: Any) -> tuple[Config, Task]:
    """A configuration that names what is learnt, and the task; what was given comes before what it names, and that
    before what the data are for.

    Raises:
        FedscopeError: the configuration names code of the user's own, which was not given; methods or a partition that
            need classes, and a task without.
    """
    named = config.model.architecture.task
    if given is None and named is not None:
        task = recorded_task(named, f"model.task = {named!r}")
    else:
        task = task_of_data(config.data.name) if given is None else given_task(given)
        task = CLASSIFICATION if isinstance(task, PlainCriterion) else task  # what is trained is known before its data
        name = None if task is CLASSIFICATION else task.name
        model = replace(config.model, architecture=replace(config.model.architecture, task=name))
        config = replace(config, model=model)
    refuse_without_classes(config, task)
    return config, task


def refuse_without_classes(config: Config, task: Task) -> None:
    """Refuse what is defined for classification alone.

    Raises:
        FedscopeError: names the method, or the partition, and the task.
    """
    if task.has_classes:
        return
    if config.client.needs_classes:
        raise FedscopeError(
            f"client.method = {method_name(config.client)!r} is defined for classification, and the task {task.name} "
            "has no class a sample; choose another method, as in --client sgd"
        )
    partition = parse_partition(config.data.partition)
    if partition.needs_classes:
        raise FedscopeError(
            f"data.partition = {config.data.partition!r} divides the samples by class, and the task {task.name} has "
            "none; give --partition iid, or natural if the data have users"
        )


def refuse_unknown_task(name: str, place: str) -> None:
    """Refuse a name that is no task's and no ``module:factory``; nothing is imported.

    Raises:
        FedscopeError: names the nearest one.
    """
    if name in TASKS:
        return
    if place == "model.task" and names_a_file(name):
        raise FedscopeError(
            f"{place} = {name!r} names a file, which a setting does not run; give --task {quoted(name)}"
        )
    if not is_call(name):
        raise FedscopeError(
            f"{place} {name} is not a task that fedscope knows{nearest(name, TASKS)}; it has {', '.join(TASKS)}, and "
            "takes your own as module:factory, torch's as torch.nn:CrossEntropyLoss(label_smoothing=0.1)"
        )
    ImportString.parse(place, name)


def _with_tensors(call: ImportString) -> ImportString:
    """A criterion of torch takes its weights as tensors, which no literal is."""
    if call.module != "torch.nn":
        return call
    from torch import get_default_dtype, tensor

    own = get_default_dtype()
    words = [(word, tensor(value, dtype=own) if isinstance(value, list) else value) for word, value in call.keywords]
    return replace(call, keywords=tuple(words))


def _take(given: Any, name: str, place: str, *, handed: bool) -> Task:
    """Take a task, a criterion of torch or a function as a task of this name.

    Args:
        handed: whether it is an object that was handed over, of whose criterion the name says all; what code of a
            ``module:factory`` returns is called by that.
    """
    criterion = task_of_criterion(given)
    if criterion is not None and (handed or isinstance(criterion, PlainCriterion)):
        return criterion
    task = given if criterion is None else criterion
    if isinstance(task, Task):
        if not is_own_task(task):
            return task
        named = copy(task)
        named.name = name
        return named
    if callable(task) and not isinstance(task, type):
        return Plain(name, task)
    raise FedscopeError(
        f"{place} {describe_type(task)}, which is not a task; give a fedscope.Task, a criterion of torch "
        "(nn.HuberLoss()), or a function loss(outputs, y) that gives one number a sample"
    )


def _name(given: Any) -> str:
    """Name a task that was handed over: the module and the name of its code."""
    code = given if hasattr(given, "__qualname__") else type(given)
    name = str(code.__qualname__).rpartition(".")[2]
    return f"{code.__module__}:{name if name.isidentifier() else 'function'}"
