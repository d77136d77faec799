"""Data that are taken as they are: test samples without training samples, and what a loader of the user's own returns.

``--data mydata:load`` names a function or a class of the user's code, as ``--model`` does. It returns one of

- ``(x, y)``: test samples and their labels;
- ``((x_train, y_train), (x_test, y_test))``;
- a mapping of ``x_test, y_test`` and, if training samples are needed, ``x_train, y_train``; ``classes`` may be said;
- in place of each ``(x, y)``, a ``torch.utils.data.Dataset`` or ``DataLoader`` of such pairs, or of batches of tokens,
  ``{"input_ids", "labels"}``;
- a :class:`~fedscope.training.data.dataset.Dataset`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few
from ...checkpoints.recorder.coerce_arrays import coerce_arrays
from ...checkpoints.recorder.coerce_tokens import PADDING
from ...checkpoints.recorder.label_forms import of_column
from ...evaluation.criteria import LabelCriterion
from ...evaluation.standard_tasks import CLASSIFICATION, TASKS
from ...evaluation.tasks import Task
from ..import_string import ImportString, describe_error
from ..settings.own_code import OwnCode
from .arrays import (
    LESS_MEAN,
    as_float32,
    as_tokens,
    channel_axis,
    check_split,
    counts_labels,
    digest,
    is_pixels,
    is_tokens,
    may_be_tokens,
    output_count,
    refuse_other_shapes,
    refuse_other_targets,
    say_axes,
    say_constant,
    say_lost_digits,
    say_scales,
    say_targets,
    scale_pixels,
    taken_task,
)
from .dataset import ARRAYS, SPLITS, Dataset, Groups, Known
from .recorded_splits import are_recorded, known_sums


def load_own(text: str, task: Task = CLASSIFICATION) -> Dataset:
    """Read the data that a function of the user's own returns; inputs are what the network takes, in shape and scale.

    Raises:
        FedscopeError: what :class:`~fedscope.training.import_string.ImportString` refuses; something else than data is
        returned.
    """
    call = ImportString.parse("--data", text)
    return _take(call(), text, f"--data {text}: {call.spoken} returned", task)


def load_given(code: OwnCode, task: Task = CLASSIFICATION) -> Dataset:
    """Read data that a function of the user's own returns, or that Python was given, by a name that comes with them.

    Raises:
        FedscopeError: as :func:`load_own`.
    """
    thing = code.thing
    if isinstance(thing, ImportString):
        given, said = thing(), f"{thing.spoken} returned"
    elif isinstance(thing, type) or (callable(thing) and not hasattr(thing, "__getitem__")):
        try:
            given, said = thing(), "returned"
        except FedscopeError:
            raise
        except Exception as error:
            raise FedscopeError(
                f"--data {code} failed with {describe_error(error)}; it is called without arguments"
            ) from error
    else:
        given, said = thing, "gave"
    return _take(given, str(code), f"--data {code}: {said}", task)


def taken_data(given: Any, task: Task = CLASSIFICATION) -> Dataset:
    """Data that are handed over, in one of the forms that a function of the user's own may return.

    Raises:
        FedscopeError: something else than data; inputs or labels that no network takes.
    """
    name = type(given).__name__
    return _take(given, "arrays" if name in ("tuple", "list", "dict") else name, f"data: {name} gave", task)


def _take(given: Any, name: str, place: str, task: Task) -> Dataset:
    if isinstance(given, Dataset):
        known: Dataset = given
        task = taken_task(task, given.y_test, given.y_train)
        if task is not CLASSIFICATION:
            y_train, y_test = (task.taken(y)[1] for y in (given.y_train, given.y_test))
            known = replace(given, task=task, y_train=y_train, y_test=y_test)
        if known.task.has_classes:
            known = replace(known, y_train=of_column(known.y_train), y_test=of_column(known.y_test))
        for split in SPLITS:
            say_targets(name, split, getattr(known, f"x_{split}"), getattr(known, f"y_{split}"), task)
        return replace(known, name=name, path="") if ":" in name else known
    try:
        arrays = coerce_arrays(place, given)
    except (FedscopeError, MemoryError):
        raise
    except Exception as error:  # the user's own Dataset, as it is read
        raise FedscopeError(f"{place} data that cannot be read: {describe_error(error)}") from error
    return as_they_are(name, "", arrays, inputs=True, task=task)


def as_they_are(
    name: str,
    path: str,
    arrays: Mapping[str, np.ndarray],
    *,
    inputs: bool,
    task: Task = CLASSIFICATION,
    groups: Mapping[str, Groups] | None = None,
    known: Known | None = None,
) -> Dataset:
    """A data set whose samples are not standardised: there may be no training split to do it by.

    Args:
        arrays: ``x_test, y_test``, and ``x_train, y_train`` or none of these; x float, or uint8 and uint16, which are
            divided by their greatest number.
        inputs: whether x is what the network takes, so that its axes stay; else images are ``[N,H,W]``, ``[N,H,W,c]``
            or ``[N,c,H,W]``, as in an ``.npz``.
        task: what is learnt; where that is no classification, whole numbers that are no pixels stay whole.
        groups: what else is known of the samples.
        known: what was computed of the same arrays before, and is not computed again.

    Raises:
        FedscopeError: a missing array, different lengths, labels that are not 0..C-1, other types, NaN.
    """
    needed = ARRAYS if "x_train" in arrays or "y_train" in arrays else ARRAYS[2:]
    missing = [key for key in needed if key not in arrays]
    if missing:
        raise FedscopeError(
            f"{name} lacks {', '.join(missing)}; it has {list_few(sorted(arrays)) or 'no arrays'}, and needs x_test "
            "and y_test, and both or none of x_train and y_train"
        )
    asked, task = task, taken_task(task, *(arrays[key] for key in ("y_test", "y_train") if key in needed))
    if task is CLASSIFICATION and may_be_tokens(arrays["x_test"], asked):
        task = TASKS["sequence-classification"]
    x, y, lost = {}, {}, False
    for split in SPLITS[SPLITS.index("train" if needed == ARRAYS else "test") :]:
        given = arrays[f"x_{split}"]
        y[split] = check_split(name, split, given, task.taken(arrays[f"y_{split}"])[1], task)
        place = f"{name}: x_{split}"
        if (
            is_tokens(given, task)
            or may_be_tokens(given, task)
            or (inputs and not task.has_classes and given.dtype.kind in "iu" and not is_pixels(given))
        ):
            x[split] = as_tokens(place, given)
            say_targets(name, split, given, y[split], task)
        else:
            x[split] = _inputs(place, given) if inputs else _images(place, name, given)
            lost = lost or (not are_recorded() and say_lost_digits(place, given, LESS_MEAN))
    if not inputs:
        say_axes(f"{name}: x_test", arrays["x_test"].shape)
    if "train" in x:
        if (task.tokens or isinstance(task, LabelCriterion)) and not are_recorded():
            _refuse_other_kinds(name, x["train"], x["test"])
        refuse_other_shapes(name, x["train"], x["test"])
        refuse_other_targets(name, y["train"], y["test"])
        if "f" in (x["train"].dtype.kind, x["test"].dtype.kind) and arrays["x_train"] is not arrays["x_test"]:
            other = is_pixels(arrays["x_train"]) != is_pixels(arrays["x_test"])
            say_scales(name, x["train"], x["test"], other_types=other)
    if not lost:  # of a test split some may be set aside to train on
        say_constant(name, x, task, {split: arrays[f"x_{split}"] for split in x})
    return Dataset(
        name=name,
        path=path,
        x_train=x.get("train", np.empty((0, *x["test"].shape[1:]), np.float32)),
        y_train=y.get("train", np.empty((0, *y["test"].shape[1:]), y["test"].dtype)),
        x_test=x["test"],
        y_test=y["test"],
        classes=output_count(name, task, tuple(x.values()), tuple(y.values()), arrays.get("classes")),
        sha256=_sum_of(arrays, needed) if known is None else known.sha256,
        means=(),
        deviations=(),
        task=task,
        groups=groups or {},
        classes_seen=counts_labels(task, tuple(y.values()), arrays.get("classes")),
        padding=None if PADDING not in arrays else tuple(arrays[PADDING].ravel().tolist()),
    )


def _sum_of(arrays: Mapping[str, np.ndarray], needed: tuple[str, ...]) -> str:
    """The sum of arrays; of masked ones that of an earlier fedscope, without the mask, where a recorded run says it."""
    if PADDING in arrays and (before := digest({name: arrays[name] for name in needed}, needed)) in known_sums():
        return before
    return digest(arrays, needed)


def _refuse_other_kinds(name: str, x_train: np.ndarray, x_test: np.ndarray) -> None:
    """Refuse tokens in one split and numbers in the other, of a task in which whole numbers are tokens.

    Raises:
        FedscopeError: such splits.
    """
    if x_train.dtype.kind != x_test.dtype.kind:
        tokens, others = ("x_train", "x_test") if x_train.dtype.kind == "i" else ("x_test", "x_train")
        raise FedscopeError(
            f"{name}: {tokens} has whole numbers, which are tokens here, but {others} has others; give both as token "
            "ids (int64), or both as floats"
        )


def _inputs(place: str, x: np.ndarray) -> np.ndarray:
    refuse_unscaled(place, x)
    in_float = as_float32(place, x)
    if x.dtype.kind == "u":
        in_float /= np.iinfo(x.dtype).max
    return in_float


def _images(place: str, name: str, x: np.ndarray) -> np.ndarray:
    refuse_unscaled(place, x)
    return scale_pixels(place, x, channel_axis(name, x.shape))


def refuse_unscaled(place: str, x: np.ndarray, instead: str = "") -> None:
    """Refuse whole numbers that are no pixels: they have no scale of their own, and nothing standardises them.

    Args:
        instead: what else can be done, for the sentence.

    Raises:
        FedscopeError: such numbers.
    """
    if x.dtype.kind in "iu" and not is_pixels(x):
        raise FedscopeError(
            f"{place} has type {x.dtype} and is taken as it is; give floats as the network takes them, or uint8 pixels "
            f"(token ids need a task with tokens = True, as sequences or sequence-classification){instead and ','}"
            f"{instead}"
        )
