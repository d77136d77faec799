"""Data in the scale that a program had them in: standardised by their training split, or as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.warn_user import warn_user
from ...evaluation.criteria import EntryCriterion, LabelCriterion
from ...evaluation.standard_tasks import Regression, Sequences
from ...evaluation.tasks import Task
from ...evaluation.uint8_images import Uint8Images
from ..build import load_data
from ..data.arrays import blocks
from ..data.custom import as_they_are, taken_data
from ..data.dataset import SPLITS, Dataset


def data_in_scale(data: Any, task: Task, standardise: bool | None) -> Dataset:
    """A data set by its name, or what was handed over, standardised or not.

    Of a name ``standardise=False`` gives what :func:`~fedscope.training.build.load_data` standardises as it was
    before, whole numbers divided by the greatest of their type; of data that are taken as they are, True standardises
    them as :func:`standardised_as_given` does.

    Args:
        standardise: None for what the name means: a file or a set that fedscope knows is standardised where it has
            training samples, code and arrays of the user's own are not.

    Raises:
        FedscopeError: no such data; nothing to standardise them by.
    """
    if not isinstance(data, str):
        dataset = taken_data(data, task)
    elif data.startswith("npz:") and standardise is not None:
        from ..data.published.npz import load

        return load(data.partition(":")[2], task, standardise)
    else:
        dataset = load_data(data, task)
    if standardise:
        _refuse_tokens(dataset, task)
    if standardise is None or bool(dataset.means) == standardise or _is_tokens(dataset):
        return dataset
    return standardised_as_given(dataset) if standardise else as_given(dataset)


def arrays_in_scale(
    name: str, arrays: Mapping[str, np.ndarray], task: Task, standardise: bool, *, one: bool = False
) -> Dataset:
    """Arrays that a run keeps, in the shape that networks take them.

    Args:
        one: whether the test samples are the training samples, too.
    """
    dataset = as_they_are(name, "", arrays, inputs=True, task=task)
    if one:
        dataset = replace(dataset, x_train=dataset.x_test, y_train=dataset.y_test)
    if standardise:
        _refuse_tokens(dataset, task)
    if not standardise or _is_tokens(dataset):
        return dataset
    return standardised_as_given(dataset, whole=arrays["x_test"].dtype.kind in "iu")


def as_given(dataset: Dataset) -> Dataset:
    """Undo the standardising: x σ + μ, of pixels the very numbers, of floats up to rounding."""
    x = [_unscale(getattr(dataset, f"x_{split}"), dataset) for split in SPLITS]
    return replace(dataset, x_train=x[0], x_test=x[1], means=(), deviations=())


def standardised_as_given(dataset: Dataset, *, whole: bool = False) -> Dataset:
    """Samples as networks take them, standardised by the training split; their axes stay.

    Images [n, c, ...] get one mean and deviation a channel, rows [n, d] one a feature, [n, h, w] one in all. A
    deviation of 0 counts as 1.

    Args:
        whole: one in all of rows, too, as of flattened images of whole numbers.

    Raises:
        FedscopeError: no training samples.

    >>> import numpy as np
    >>> x = np.float32([[0, 1], [2, 1]])
    >>> made = standardised_as_given(taken_data(((x, np.array([0, 1])), (x, np.array([0, 1])))))
    >>> made.x_test.tolist(), made.means, made.deviations
    ([[-1.0, 0.0], [1.0, 0.0]], (1.0, 1.0), (1.0, 1.0))
    """
    if not len(dataset.y_train):
        raise FedscopeError(
            f"{dataset.name} has no training samples to standardise by; give x_train and y_train as well, or leave "
            "standardising out (--no-standardise, standardise=False)"
        )
    train = np.asarray(dataset.x_train)
    axes = tuple(axis for axis in range(train.ndim) if whole or axis != (1 if train.ndim != 3 else -1))
    count = np.prod([train.shape[axis] for axis in axes])
    means = sum(part.sum(axis=axes, keepdims=True, dtype=np.float64) for part in blocks(train)) / count
    squares = sum(((part - means) ** 2).sum(axis=axes, keepdims=True) for part in blocks(train)) / count
    deviations = np.sqrt(squares)
    deviations[deviations == 0] = 1
    scale = means.astype(np.float32), deviations.astype(np.float32)
    x_train = (train - scale[0]) / scale[1]
    same = dataset.x_test is dataset.x_train
    x_test = x_train if same else (np.asarray(dataset.x_test) - scale[0]) / scale[1]
    said: dict[str, Any] = {"means": tuple(means.ravel().tolist()), "deviations": tuple(deviations.ravel().tolist())}
    return replace(dataset, x_train=x_train, x_test=x_test, **said)


def _refuse_tokens(dataset: Dataset, task: Task) -> None:
    """Refuse to standardise whole numbers that are tokens only because the task, which is not of tokens, says nothing
    else: they may be measurements. Of a task of the user's own, which may be of tokens, it is said.

    Raises:
        FedscopeError: such numbers.
    """
    if not _is_tokens(dataset) or isinstance(task, Sequences) or isinstance(dataset.task, Sequences):
        return
    taken = f"{dataset.name}: x_test has type {dataset.x_test.dtype}, which is taken as tokens and"
    remedy = (
        "give measurements as floats, or leave standardising out (--no-standardise, standardise=False) where they are "
        "token ids"
    )
    if isinstance(task, LabelCriterion | EntryCriterion | Regression):
        raise FedscopeError(f"{taken} cannot be standardised; {remedy}")
    if not (task.tokens or task.has_classes):
        warn_user(f"{taken} is not standardised; {remedy}")


def _is_tokens(dataset: Dataset) -> bool:
    return isinstance(dataset.x_test, np.ndarray) and dataset.x_test.dtype.kind in "iu"


def _unscale(x: np.ndarray | Uint8Images, dataset: Dataset) -> np.ndarray | Uint8Images:
    if isinstance(x, Uint8Images):
        ones = np.ones(len(dataset.means), np.float32)
        return Uint8Images(x.stored, 0 * ones, ones)
    shape = [1] * x.ndim
    if len(dataset.means) > 1:
        shape[1] = len(dataset.means)
    means, deviations = (np.reshape(values, shape) for values in (dataset.means, dataset.deviations))
    given = np.empty_like(x)
    start = 0
    for part in blocks(x):
        # in float64, or what was rounded would be rounded again
        given[start : start + len(part)] = part * deviations + means
        start += len(part)
    return given
