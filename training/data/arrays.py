"""Arrays of samples and labels before they are a data set: what they must be, and their sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod, sqrt
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.array_digest import blocks as blocks
from ...checkpoints.io.array_digest import digest as digest
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.recorder.label_forms import NUMBERED, are_names, is_one_hot, of_column
from ...checkpoints.recorder.token_targets import OWN_TOKENS, are_inputs
from ...evaluation.criteria import LabelCriterion, PositionCriterion
from ...evaluation.standard_tasks import CLASSIFICATION, PADDED, Sequences
from ...evaluation.tasks import Task
from .recorded_splits import are_recorded
from .target_numbers import are_numbers

#: so many classes are a slip, as a model has an output for each: labels are identifiers, or damaged
MOST_CLASSES = 65_536
#: the greatest and the smallest positive number that float32 has with all its digits
GREATEST, SMALLEST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)

#: kind and bytes of whole numbers that have a scale of their own
PIXELS = (("u", 1), ("u", 2))

#: samples and values of each whose deviations are compared; fewer samples are not
COMPARED, VALUES_COMPARED, FEWEST = 200, 2000, 10
#: times as much as which one split varies beside the other only if it is of another scale
OTHER_SCALE = 20.0
#: the same of whole numbers beside floats, which seldom lie in one folder by intent: as 0 to 16 and 0 to 1 do
OTHER_TYPES = 2.0
#: A mean of so many deviations is subtracted before numbers become float32. That has 24 binary digits, of which 12 are
#: left for a deviation then, more than measurements have; below, numbers are standardised in float32, as ever.
LARGE_MEAN = 2.0**12
#: what samples that are taken as they are need then
LESS_MEAN = "both splits less the training samples' mean (x - x_train.mean(0))"
#: shares of a mean below which a deviation in float64 is one of rounding alone
ROUNDING = 2.0**-44
#: steps of float32 that a deviation needs, of samples that are taken as they are
STEPS = 16
#: a mean or a deviation of all values above it is far from 0 and 1: pixels from 0 to 16 or 255. A small deviation says
#: nothing: rows that are mostly 0, as those of words, train well as they are
GREAT_SCALE = 4.0


def check_split(name: str, split: str, x: np.ndarray, y: np.ndarray, task: Task) -> np.ndarray:
    """Return the targets of one split, labels as int64 [N], once its arrays fit each other.

    Raises:
        FedscopeError: no samples, or samples without values; other numbers of samples and labels; labels that are not
            0..C-1.
    """
    if x.ndim < 2 or not prod(x.shape[1:]):
        raise FedscopeError(f"{name}: x_{split} has shape {list(x.shape)}; give a row, or an image, a sample")
    place = f"{name}: y_{split}"
    y = y.astype(np.uint8) if y.dtype == np.bool_ else y  # one of two classes
    labels = _labels(place, y, isinstance(task, LabelCriterion)) if task.has_classes else _targets(place, y)
    if len(x) != len(labels):
        what = "labels" if task.has_classes else "targets"
        raise FedscopeError(f"{name}: x_{split} has {len(x)} samples, but y_{split} has {len(labels)} {what}")
    if not len(labels):
        raise FedscopeError(f"{name}: the {split} split is empty")
    return labels


def taken_task(task: Task, *targets: np.ndarray) -> Task:
    """Return the task for a data set's targets, those of the test split first: one that ignores labels where either
    split has some."""
    found = [task.taken(y)[0] for y in targets]
    return next((one for one in found if one is not CLASSIFICATION), found[0])


def is_tokens(x: np.ndarray, task: Task) -> bool:
    """Check whether samples are rows of tokens, which stay whole numbers."""
    return task.tokens and x.ndim == 2 and x.dtype.kind in "iu"


def may_be_tokens(x: np.ndarray, task: Task) -> bool:
    """Check whether samples that are taken as they are can be but rows of tokens.

    Of a criterion of labels, which has no word for tokens, whole numbers are that where they are no pixels.
    """
    return isinstance(task, LabelCriterion) and x.ndim == 2 and x.dtype.kind in "iu" and not is_pixels(x)


def is_pixels(x: np.ndarray) -> bool:
    """Check whether whole numbers have a scale of their own, that of pixels."""
    return (x.dtype.kind, x.dtype.itemsize) in PIXELS


def as_tokens(place: str, x: np.ndarray) -> np.ndarray:
    """Rows of tokens as int64, in C order.

    Raises:
        FedscopeError: a token below 0.
    """
    if x.min() < 0:
        raise FedscopeError(
            f"{place} contains the token {x.min()}; tokens count from 0 (padding is marked in y, by -100), and whole "
            "numbers are tokens here, so give measurements as floats"
        )
    return x.astype(np.int64, order="C")


def say_targets(name: str, split: str, x: np.ndarray, y: np.ndarray, task: Task) -> None:
    """Warn of targets at positions that are the tokens themselves; a task of the user's own may move them itself."""
    if type(task) in (Sequences, PositionCriterion) and isinstance(x, np.ndarray) and are_inputs(x, y):
        warn_user(f"{name}: y_{split} is x_{split}, {OWN_TOKENS}")


def output_count(
    name: str,
    task: Task,
    inputs: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    declared: np.ndarray | int | None,
) -> int:
    """Count the outputs that a model needs, a sample or a position: the classes, or the numbers in a target.

    Tokens of the inputs count too where those of the targets are of the same kind, as a language model's; the classes
    of a classification are others. Whether whole numbers are classes, see :func:`~.target_numbers.are_numbers`.

    Raises:
        FedscopeError: as :func:`class_count`.
    """
    if are_numbers(task, targets[0], declared):
        return prod(targets[0].shape[1:])
    tokens = [x for x in inputs if declared is None and not task.has_classes and is_tokens(x, task)]
    return class_count(name, [part for part in (*targets, *tokens) if part.size], declared)


def counts_labels(task: Task, targets: Sequence[np.ndarray], declared: np.ndarray | int | None) -> bool:
    """Check whether :func:`output_count` counts but the labels that there are, so that a model may have more
    outputs."""
    # of whole numbers too that are no classes: stored models may have an output for each
    return declared is None and (task.has_classes or targets[0].dtype.kind != "f")


def class_count(name: str, labels: Sequence[np.ndarray], declared: np.ndarray | int | None) -> int:
    """C, the number of classes: as declared, or one more than the greatest label.

    Raises:
        FedscopeError: a declared number that is none, or that is too small for the labels.
    """
    needed = max(0, *(int(y.max()) + 1 for y in labels))  # -100 is no class
    if declared is None:
        return needed
    given = np.asarray(declared)
    if given.size != 1 or given.dtype.kind not in "iu":
        raise FedscopeError(f"{name}: classes has shape {list(given.shape)} and type {given.dtype}; give one number")
    if not needed <= int(given.item()) <= max(MOST_CLASSES, needed):
        raise FedscopeError(
            f"{name}: classes is {given.item()}, but the labels go up to {needed - 1}; give {needed} or more, up to "
            f"{MOST_CLASSES:,}; if {needed - 1} marks what does not count, write -100 there (of --task sequences), or "
            "leave such samples out"
        )
    return int(given.item())


def channel_axis(name: str, shape: tuple[int, ...]) -> int | None:
    """Find where an image array keeps its channels: the axis of at most four entries, the last one if both are."""
    if len(shape) == 4:
        if shape[3] <= 4:
            return 3
        if shape[1] <= 4:
            return 1
    elif len(shape) in (2, 3):
        return None
    raise FedscopeError(
        f"{name}: samples of shape {list(shape[1:])} are not understood; "
        "give [N,H,W], [N,H,W,c], [N,c,H,W] (up to 4 channels) or [N,d]"
    )


def say_axes(place: str, shape: tuple[int, ...]) -> None:
    """Warn of images that are read with their channels last, [N, H, W, c], and are square with their channels first."""
    if len(shape) == 4 and max(shape[1], shape[3]) <= 4 and shape[2] == shape[3] != shape[1]:
        c, h, w = shape[1:]
        warn_user(
            f"{place} has the shape {list(shape)}, and is read as {c} x {h} pixels of {w} channels; if these are "
            f"{h} x {w} pixels of {c}, give them with the channels last (np.moveaxis(x, 1, 3))"
        )


def refuse_other_types(name: str, x_train: np.ndarray, x_test: np.ndarray) -> bool:
    """Refuse splits of two types of numbers that have no scale in common.

    Whole numbers are divided by the greatest of their type, so that the same ones of two types become others. Pixels
    and floats are taken beside each other: both may be from 0 to 1 then, and :func:`say_scales` compares them. What a
    recorded run was trained on stays so, and a warning says it of its tests.

    Returns:
        Whether that was said.

    Raises:
        FedscopeError: whole numbers that are no pixels, beside another type, unless a recorded run has them.
    """
    kinds = [(x.dtype.kind, x.dtype.itemsize) for x in (x_train, x_test)]
    if kinds[0] == kinds[1] or any(kind not in "iuf" for kind, _ in kinds):  # what is no number is refused elsewhere
        return False
    strange = [kind in "iu" and (kind, size) not in PIXELS for kind, size in kinds]
    if not any(strange):
        return False
    split, x, to = ("test", x_test, x_train.dtype) if strange[1] else ("train", x_train, x_test.dtype)
    fits = to.kind == "f" or (np.iinfo(to).min <= int(x.min()) and int(x.max()) <= np.iinfo(to).max)
    remedy = (
        f"x_{split} as {to.name} too, on the other's scale (x_{split}.astype('{to.name}'))"
        if fits
        else "both as floats of one scale (x.astype('float32'))"
    )
    types = (
        f"{name}: x_train has type {x_train.dtype.name}, but x_test {x_test.dtype.name}, and whole numbers are divided "
        "by the greatest of their type, so the two"
    )
    if are_recorded():
        warn_user(
            f"{types} are on other scales: what the run has learnt is right, but what is measured of its test samples "
            f"says nothing; train a new run, and give it {remedy}"
        )
        return True
    raise FedscopeError(f"{types} would be on other scales; give {remedy}")


def say_scales(name: str, x_train: Any, x_test: Any, *, other_types: bool = False) -> None:
    """Warn of splits whose values vary by other orders of magnitude, as 0 to 1 and 0 to 255 do.

    Compared is each value's mean absolute deviation over some samples of a split, of which a few far ones decide
    nothing, and of the ratios the median, over the values that vary in both.

    Args:
        x_train, x_test: [n, ...], whose rows can be taken by number.
        other_types: whether one was given as whole numbers and the other as floats, so that less is a slip.
    """
    spreads = []
    for x in (x_train, x_test):
        rows = np.unique(np.linspace(0, len(x) - 1, COMPARED).astype(np.int64))
        some = np.asarray(x[rows], np.float64).reshape(len(rows), -1)
        some = some[:, :: max(1, some.shape[1] // VALUES_COMPARED)]
        spreads.append(np.abs(some - some.mean(axis=0)).mean(axis=0))
    vary = (spreads[0] > 0) & (spreads[1] > 0)
    if min(len(x_train), len(x_test)) < FEWEST or not vary.any():
        return
    ratio = float(np.median(spreads[1][vary] / spreads[0][vary]))
    most = OTHER_TYPES if other_types else OTHER_SCALE
    if not 1 / most < ratio < most:
        warn_user(
            f"{name}: x_test varies {ratio:.3g} times as much as x_train, so it seems to be of another scale; give "
            "both splits in one"
        )


def say_own_scale(name: str, x_train: np.ndarray) -> None:
    """Warn of samples that are trained on as they are, and whose scale is far above that of standardised ones.

    All values are read, in blocks: of a few samples the deviation says little where most values are 0.

    Args:
        x_train: [n, ...], floats.
    """
    total = squares = 0.0
    for part in blocks(x_train):
        total += float(part.sum(dtype=np.float64))
        squares += float(np.square(part, dtype=np.float64).sum())
    mean = total / x_train.size
    deviation = sqrt(max(0.0, squares / x_train.size - mean**2))
    if max(abs(mean), deviation) > GREAT_SCALE:
        warn_user(
            f"{name}: the training samples have mean {mean:.3g} and deviation {deviation:.3g}, and are taken as they "
            "are; unless your model scales them itself, give both splits less the training samples' mean and divided "
            "by their deviation, or all four arrays as npz:FILE, which is standardised"
        )


def say_lost_digits(place: str, x: np.ndarray, subtract: str) -> bool:
    """Warn of numbers that are taken as they are and vary so little beside their mean that float32 has few of their
    digits; return whether some do.

    Args:
        x: [n, ...], as they were given.
        subtract: what to give instead.
    """
    if x.dtype.kind != "f" or x.dtype.itemsize <= 4 or not len(x):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        means, deviations = moments_around(x[:1], lambda: blocks(x), (0,))
        step = np.abs(means) * float(np.finfo(np.float32).eps)
        lost = (deviations < STEPS * step) & (deviations > ROUNDING * np.abs(means))
    if not lost.any():
        return False
    first = int(np.flatnonzero(lost)[0])
    warn_user(
        f"{place} varies by {deviations.flat[first]:.3g} around {means.flat[first]:.3g} in {int(lost.sum()):,} of "
        f"{lost.size:,} values of a sample, and float32 loses such digits; give {subtract}, in float64"
    )
    return True


def moments_around(
    first: np.ndarray, parts: Callable[[], Iterable[np.ndarray]], axes: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation in float64, shaped to be subtracted. What is constant has the deviation 0, which a sum over
    many rows has not: 0.1 is no sum of powers of 2.

    Args:
        first: a value of each, around which the others are summed, with one entry in each of ``axes``.
        parts: all values in blocks; asked for twice.
    """
    first = first.astype(np.float64)
    count, total, squares = 0, np.zeros(()), np.zeros(())
    for part in parts():
        count += prod(part.shape[axis] for axis in axes)
        total = total + (part - first).sum(axis=axes, keepdims=True, dtype=np.float64)
    means = np.asarray(total / count)
    for part in parts():
        squares = squares + ((part - first - means) ** 2).sum(axis=axes, keepdims=True, dtype=np.float64)
    return first + means, np.sqrt(np.asarray(squares / count))


def say_constant(name: str, splits: Mapping[Any, Any], task: Task, stored: Mapping[Any, np.ndarray]) -> None:
    """Warn of samples that are all the same, so that no classes can be told apart by them, as of images that were read
    wrong. Of numbers that are learnt (a mean of each client) inputs may be so, and of a few samples.

    Args:
        splits: the samples by split as they are taken, [n, ...], whose rows can be taken by number; of several such
            splits the first is said.
        stored: as they were given: where those differ, their scale has made them the same.
    """
    if not task.has_classes:
        return
    for split, x in splits.items():
        if not _are_same(x):
            continue
        if len(splits) > 1 and not _are_same(stored[split]):
            warn_user(
                f"{name}: x_{split}: float32 has one number alone for all {len(x):,} samples, though they differ: they "
                "vary too little beside the other split or beside their mean; give both splits in one scale"
            )
        else:
            warn_user(
                f"{name}: x_{split}: all {len(x):,} samples are the same, so no classes can be told apart; look at how "
                "they are made"
            )
        return


def _are_same(x: Any) -> bool:
    if len(x) < FEWEST:
        return False
    first = np.asarray(x[:1])
    if not np.array_equal(np.asarray(x[1:2]), first):
        return False
    return all((np.asarray(part) == first).all() for part in blocks(x))


def scale_pixels(place: str, x: np.ndarray, channels: int | None) -> np.ndarray:
    """Samples as float32, images [n, c, h, w]; integers divided by the greatest number of their type.

    Raises:
        FedscopeError: other types; values that are not finite.
    """
    if x.ndim == 4 and channels == 1:
        x = np.moveaxis(x, 1, 3)
    in_float = as_float32(place, x)
    if x.dtype.kind != "f":
        in_float /= np.iinfo(x.dtype).max
    if x.ndim == 3:
        return in_float[:, None]
    # [n, c, h, w] to the reader, channels last in memory: what convolutions want, without another copy.
    return np.moveaxis(in_float, 3, 1) if x.ndim == 4 else in_float


def channels_at_end(x: np.ndarray, channels: int | None) -> np.ndarray:
    """Images of bytes as [N, H, W, c] in C order, and writable, because a tensor will share their memory."""
    return np.require(np.moveaxis(x, 1, 3) if x.ndim == 4 and channels == 1 else x, requirements=("C", "W"))


def as_float32(place: str, x: np.ndarray) -> np.ndarray:
    """Numbers as float32, in C order.

    Raises:
        FedscopeError: other types; values that are not finite, or not in float32; none that float32 knows well.
    """
    if x.dtype.kind not in "iuf":
        remedy = "; give x.astype('float32')" if x.dtype.kind == "b" else ""
        raise FedscopeError(f"{place} has type {x.dtype}; samples are integers or floats{remedy}")
    with np.errstate(over="ignore", under="ignore"):
        in_float: np.ndarray = x.astype(np.float32, order="C")
    if x.dtype.kind == "f" and not np.isfinite(in_float).all():
        broken = int((~np.isfinite(x)).sum())
        if broken:
            raise FedscopeError(f"{place} contains {broken} values that are not finite")
        raise FedscopeError(
            f"{place} contains {int((~np.isfinite(in_float)).sum())} values beyond {GREATEST:.2g}, the greatest number "
            f"of float32 (as {float(np.abs(x).max()):.3g}); give smaller ones"
        )
    if x.dtype.kind == "f" and 0 < (most := float(np.abs(x).max(initial=0))) < SMALLEST:
        raise FedscopeError(
            f"{place} has no value beyond {most:.3g}, and float32 loses digits below {SMALLEST:.2g}; give numbers of a "
            "greater scale (x / x.std())"
        )
    return in_float


def _targets(place: str, y: np.ndarray) -> np.ndarray:
    """Numbers of any shape [N, ...]: whole ones as int64, others as float32."""
    if y.ndim < 1 or y.dtype.kind not in "iuf":
        raise FedscopeError(
            f"{place} has shape {list(y.shape)} and type {y.dtype}; targets are numbers, [N] or [N, ...]"
        )
    if y.dtype.kind in "iu":
        return y.astype(np.int64)
    in_float = as_float32(place, y)
    say_lost_digits(place, y, "targets less their mean in both splits (y - y_train.mean(0))")
    return in_float


def _labels(place: str, y: np.ndarray, ignored: bool) -> np.ndarray:
    """Labels [N] or [N, 1] as int64 [N]; -100 stays where a task has labels that are ignored."""
    y = of_column(y)
    if y.ndim != 1 or y.dtype.kind not in "iuf":
        raise FedscopeError(
            f"{place} has shape {list(y.shape)} and type {y.dtype}; labels are whole numbers, [N]{_how_labelled(y)}"
        )
    if y.dtype.kind == "f" and not (whole := np.isfinite(y) & (y == np.floor(y))).all():
        raise FedscopeError(f"{place} contains {y[~whole][0]:g}; labels are whole numbers from 0")
    counted = y[y != PADDED] if ignored else y
    if len(counted) and counted.min() < 0:
        raise FedscopeError(
            f"{place} contains the label {counted.min():g}; labels count from 0; leave out samples that do not count"
        )
    if len(y) and y.max() >= max(MOST_CLASSES, len(y)):
        raise FedscopeError(
            f"{place} contains the label {y.max():.15g}, and a model would need as many outputs; number the classes "
            "from 0"
        )
    return y.astype(np.int64)


def _how_labelled(y: np.ndarray) -> str:
    """Say in a clause how what is no labels becomes such, or which task takes it."""
    if are_names(y):
        return f"; {NUMBERED}"
    if is_one_hot(y):
        return "; of one-hot rows give y.argmax(1)"
    if y.ndim > 1 and y.dtype.kind == "f":
        return (
            f"{'; give y[:, 0] if these are labels' if y.shape[1:] == (1,) else ''} (numbers are of --task regression)"
        )
    return " (classes at positions are of --task sequences)" if y.ndim > 1 else ""


def refuse_other_shapes(name: str, x_train: np.ndarray, x_test: np.ndarray) -> None:
    """Refuse splits that no one model takes.

    Raises:
        FedscopeError: samples of two shapes.
    """
    if x_train.shape[1:] != x_test.shape[1:]:
        raise FedscopeError(
            f"{name}: training samples have shape {list(x_train.shape[1:])}, test samples {list(x_test.shape[1:])}"
        )


def refuse_other_targets(name: str, y_train: np.ndarray, y_test: np.ndarray) -> None:
    """Refuse targets that no one model gives.

    Raises:
        FedscopeError: targets of two shapes.
    """
    if y_train.shape[1:] != y_test.shape[1:]:
        raise FedscopeError(f"{name}: y_train has shape {list(y_train.shape)}, y_test {list(y_test.shape)}")
