"""A data set made of arrays: checked, and standardised by the training split's means and deviations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod

import numpy as np
import torch

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.warn_user import warn_user
from ...evaluation.standard_tasks import CLASSIFICATION, PADDED
from ...evaluation.tasks import Task
from ...evaluation.uint8_images import Uint8Images
from .arrays import (
    GREATEST,
    LARGE_MEAN,
    LESS_MEAN,
    ROUNDING,
    SMALLEST,
    blocks,
    channel_axis,
    channels_at_end,
    check_split,
    counts_labels,
    digest,
    is_pixels,
    is_tokens,
    may_be_tokens,
    moments_around,
    output_count,
    refuse_other_shapes,
    refuse_other_targets,
    refuse_other_types,
    say_axes,
    say_constant,
    say_lost_digits,
    say_scales,
    scale_pixels,
    taken_task,
)
from .custom import as_they_are, refuse_unscaled
from .dataset import ARRAYS, SPLITS, Dataset, Groups, Known
from .recorded_splits import is_of_before

#: standard deviations of the training split beyond which a test sample is said to be far
FAR = 1e4

_Standardised = tuple[np.ndarray | Uint8Images, np.ndarray | Uint8Images, tuple[float, ...], tuple[float, ...]]


def standardize(
    name: str,
    path: str,
    arrays: Mapping[str, np.ndarray],
    others: Sequence[str] = (),
    task: Task = CLASSIFICATION,
    groups: Mapping[str, Groups] | None = None,
    known: Known | None = None,
    scale: bool = True,
) -> Dataset:
    """Check raw arrays and make a data set of them.

    Integer images are scaled to [0, 1] by their type's range (bytes when they are read); images get one mean and
    deviation a channel, float vectors one a feature, integer vectors (flattened images) one in all. A deviation of 0
    counts as 1. Tokens, integer vectors of a task on sequences, and all targets are taken as they are.

    Args:
        arrays: ``x_train, y_train, x_test, y_test``; x uint8 or float, ``[N,H,W]``, ``[N,H,W,c]``, ``[N,c,H,W]`` or
            ``[N,d]``; y whole numbers from 0, ``[N]`` or ``[N,1]``, or targets of the task. ``classes``, one number,
            where no sample is of the last ones.
        others: names of arrays that were left unread, for the sentence that says what is there.
        task: what is learnt.
        groups: what else is known of the samples.
        known: what was computed of the same arrays before, and is not computed again.
        scale: False leaves out the means and deviations: integers are divided by their type's range, floats stay.

    Raises:
        FedscopeError: a missing array, different lengths, an unreadable shape, labels that are not 0..C-1 or beyond
            65,535 and the number of samples, NaN; with ``scale=False`` whole numbers that are no pixels; splits of such
            different scales that float32 does not hold them; of two types of whole numbers, unless a recorded run has
            them.
    """
    missing = [key for key in ARRAYS if key not in arrays]
    if missing:
        raise FedscopeError(
            f"{name} lacks {', '.join(missing)}; it has {list_few(sorted((*arrays, *others))) or 'no arrays'}, "
            "and needs x_train, y_train, x_test and y_test (to measure on test data only: x_test and y_test)"
        )
    asked, task = task, taken_task(task, arrays["y_test"], arrays["y_train"])
    if not scale and may_be_tokens(arrays["x_train"], asked):
        return as_they_are(name, path, arrays, inputs=True, task=asked, groups=groups, known=known)
    if is_tokens(arrays["x_train"], task):
        return as_they_are(name, path, arrays, inputs=True, task=task, groups=groups, known=known)
    y_train, y_test = (
        check_split(name, split, arrays[f"x_{split}"], task.taken(arrays[f"y_{split}"])[1], task) for split in SPLITS
    )
    refuse_other_targets(name, y_train, y_test)
    stored = tuple(arrays[f"x_{split}"] for split in SPLITS)
    told = refuse_other_types(name, *stored)
    if not scale:
        made: _Standardised = _as_given(name, stored)
    elif all(x.dtype == np.uint8 for x in stored):
        made = _as_bytes(name, stored, known)
    else:
        made = _as_floats(name, stored)
    x_train, x_test, means, deviations = made
    say_axes(f"{name}: x_test", stored[1].shape)
    if not told:
        say_scales(name, x_train, x_test, other_types=is_pixels(stored[0]) != is_pixels(stored[1]))
        say_constant(name, {"train": x_train, "test": x_test}, task, dict(zip(SPLITS, stored, strict=True)))
    return Dataset(
        name=name,
        path=path,
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        classes=output_count(name, task, (), (y_train, y_test), arrays.get("classes")),
        sha256=digest(arrays, ARRAYS) if known is None else known.sha256,
        means=means,
        deviations=deviations,
        task=task,
        groups=groups or {},
        # an ignored class has its output all the same, and other ignored labels have none
        classes_seen=counts_labels(task, (y_train, y_test), arrays.get("classes"))
        and any(bool((y == PADDED).any()) for y in (y_train, y_test)),
    )


def _as_given(name: str, stored: Sequence[np.ndarray]) -> _Standardised:
    """Both splits in the scale that they have; bytes stay bytes.

    Raises:
        FedscopeError: whole numbers that are no pixels.
    """
    for split, x in zip(SPLITS, stored, strict=True):
        refuse_unscaled(f"{name}: x_{split}", x, " or have them standardised (--standardise, standardise=True)")
    if not all(x.dtype == np.uint8 for x in stored):
        made = _in_float(name, stored)
        for split, x in zip(SPLITS, stored, strict=True):
            if say_lost_digits(f"{name}: x_{split}", x, LESS_MEAN):
                break
        return *made, (), ()
    train, test = _in_bytes(name, stored)
    nothing, one = (np.full(train.shape[3] if train.ndim == 4 else 1, value, np.float32) for value in (0, 1))
    return Uint8Images(torch.from_numpy(train), nothing, one), Uint8Images(torch.from_numpy(test), nothing, one), (), ()


def _as_floats(name: str, stored: Sequence[np.ndarray]) -> _Standardised:
    """Both splits standardised, with the means and deviations of the first."""
    x_train, x_test = _in_float(name, stored)
    means, deviations = _moments(lambda: blocks(x_train), stored[0])
    offsets = np.zeros_like(means)
    # of a feature that is constant in float32 too, which may vary by less than float32 has
    may_vary = (deviations > 0) | (stored[0].dtype.itemsize > 4)
    large = ((np.abs(means) > LARGE_MEAN * deviations) & may_vary).any()
    deviations[deviations == 0] = 1
    if large and (found := _large_means(name, stored[0])).any():
        before = means, deviations
        offsets = found.reshape(means.shape)
        x_train, x_test = _in_float(name, [_less(name, x, found) for x in stored])
        means, deviations = _moments(lambda: blocks(x_train), stored[0])
        deviations[deviations == 0] = 1
        if is_of_before(name, _listed(*before), _listed(means + offsets, deviations)):
            x_train, x_test = _in_float(name, stored)
            (means, deviations), offsets = before, np.zeros_like(means)
    if (least := float(deviations.min())) < SMALLEST:
        what = "channel" if stored[0].ndim > 2 else "feature"
        raise FedscopeError(
            f"{name}: x_train has a {what} that varies by {least:.3g} alone, where float32 loses digits, so it cannot "
            "be standardised; give numbers of a greater scale (x / x.std()), or leave it out"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        for split, x in zip(SPLITS, (x_train, x_test), strict=True):
            x -= means.astype(np.float32)
            x /= deviations.astype(np.float32)
            _refuse_far(name, split, x)
    return x_train, x_test, *_listed(means + offsets, deviations)


def _listed(means: np.ndarray, deviations: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(means.ravel().tolist()), tuple(deviations.ravel().tolist())


def _large_means(name: str, x: np.ndarray) -> np.ndarray:
    """Means that float32 knows too few digits beside, of samples as they were stored but scaled: one a channel of
    images, one a feature of rows of floats, one in all of rows of integers. 0 stands for others, and where nothing but
    float64's own rounding varies."""
    channel = _channel_of(name, x)
    if x.ndim == 2 and x.dtype.kind in "iu":
        channel = None
    axes = tuple(axis for axis in range(x.ndim) if axis != channel)
    first = x[tuple(slice(None) if axis == channel else slice(0, 1) for axis in range(x.ndim))]
    means, deviations = (values / _greatest_of(x) for values in moments_around(first, lambda: _in_double(x), axes))
    large = (np.abs(means) > LARGE_MEAN * deviations) & (deviations > ROUNDING * np.abs(means))
    return np.where(large, means, 0.0).ravel()


def _less(name: str, x: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Samples less these means, which are subtracted in float64, as float32 in the stored shape, scaled.

    Where a mean is 0, they are the very numbers of :func:`scale_pixels`.
    """
    shape = [1] * x.ndim
    channel = _channel_of(name, x)
    if len(means) > 1 and channel is not None:
        shape[channel] = len(means)
    offsets = means.reshape(shape)
    made = np.empty(x.shape, np.float32)
    row, greatest = 0, _greatest_of(x)
    for part in blocks(x):
        as_ever = part.astype(np.float32)
        if x.dtype.kind in "iu":
            as_ever /= np.iinfo(x.dtype).max
        made[row : row + len(part)] = np.where(offsets == 0, as_ever, part.astype(np.float64) / greatest - offsets)
        row += len(part)
    return made


def _in_double(x: np.ndarray) -> Iterator[np.ndarray]:
    return (part.astype(np.float64) for part in blocks(x))


def _channel_of(name: str, x: np.ndarray) -> int | None:
    """The axis of features or channels of stored samples."""
    return 1 if x.ndim == 2 else channel_axis(name, x.shape)


def _greatest_of(x: np.ndarray) -> float:
    """What stored numbers are divided by, see :func:`scale_pixels`."""
    return float(np.iinfo(x.dtype).max) if x.dtype.kind in "iu" else 1.0


def _in_float(name: str, stored: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    x_train, x_test = (
        scale_pixels(f"{name}: x_{split}", x, channel_axis(name, x.shape))
        for split, x in zip(SPLITS, stored, strict=True)
    )
    refuse_other_shapes(name, x_train, x_test)
    return x_train, x_test


def _refuse_far(name: str, split: str, x: np.ndarray) -> None:
    """Refuse standardised samples that are of another scale than those that they were standardised by, or warn of it.

    Raises:
        FedscopeError: values that are not finite any more, or whose squares are not.
    """
    most = max((float(np.abs(block).max()) for block in blocks(x)), default=0.0)
    said = f"{name}: x_{split} lies up to {most:.3g} standard deviations of x_train from its mean"
    if not most < GREATEST**0.5:  # NaN too
        raise FedscopeError(f"{said}; give both splits in one scale")
    if most > FAR:
        warn_user(f"{said}; are both splits of one scale?")


def _as_bytes(name: str, stored: Sequence[np.ndarray], known: Known | None) -> _Standardised:
    """Both splits as bytes, to be standardised when they are read: the same numbers."""
    train, test = _in_bytes(name, stored)
    if known is None:
        means, deviations = (tuple(values.tolist()) for values in _moments_of_bytes(train))
    else:
        means, deviations = known.means, known.deviations
    in_float = np.asarray(means, np.float32), np.asarray(deviations, np.float32)
    x_train, x_test = (Uint8Images(torch.from_numpy(x), *in_float) for x in (train, test))
    return x_train, x_test, means, deviations


def _in_bytes(name: str, stored: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    train, test = (channels_at_end(x, channel_axis(name, x.shape)) for x in stored)
    first, other = (scale_pixels(name, x[:1], 3 if x.ndim == 4 else None) for x in (train, test))
    refuse_other_shapes(name, first, other)
    if train.ndim != test.ndim:  # [N, H, W] and [N, H, W, 1]
        train, test = (x.reshape(x.shape[:3]) for x in (train, test))
    return train, test


def _moments_of_bytes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation in float64, one a channel of images [N, H, W, c], else one in all; 0 counts as 1.

    Of the 256 values that there can be, weighted with how often each occurs: a tenth of the time of reading all floats.
    """
    channels = x.shape[3] if x.ndim == 4 else 1
    counts = np.zeros((channels, 256), np.int64)
    for block in blocks(x):
        for channel, of in enumerate(counts):
            of += np.bincount(block.reshape(-1, channels)[:, channel], minlength=256)
    values = scale_pixels("", np.arange(256, dtype=np.uint8)[:, None], None).ravel().astype(np.float64)
    each = counts.sum(axis=1)
    means = (counts * values).sum(axis=1) / each
    deviations = np.sqrt((counts * (values - means[:, None]) ** 2).sum(axis=1) / each)
    deviations[deviations == 0] = 1
    return means, deviations


def _moments(parts: Callable[[], Iterable[np.ndarray]], raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation in float64, shaped to be subtracted.

    One a channel of images, one a feature of rows of floats, one in all of rows of integers.

    Args:
        parts: the samples in blocks, scaled; asked for twice.
        raw: as they were stored.
    """
    axes: tuple[int, ...] = (0, 2, 3) if raw.ndim > 2 else (0,)
    if raw.ndim == 2 and np.issubdtype(raw.dtype, np.integer):
        axes = (0, 1)
    count, total, squares = 0, np.zeros(()), np.zeros(())
    for part in parts():
        count += prod(part.shape[axis] for axis in axes)
        total = total + part.sum(axis=axes, keepdims=True, dtype=np.float64)
        del part  # before the next one is made
    means = np.asarray(total / count)
    for part in parts():
        squares = squares + ((part - means) ** 2).sum(axis=axes, keepdims=True)
        del part
    return means, np.sqrt(np.asarray(squares / count))
