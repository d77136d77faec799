"""A data set in memory: images or vectors, standardised by the training split's statistics."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..checkpoints import FedscopeError

if TYPE_CHECKING:
    from ..landscape import Samples

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Dataset:
    """A labelled data set with its two splits.

    Attributes:
        name: as given to ``--data``; ``path`` is the absolute path of its file or folder ("" for embedded data).
        x_train, x_test: float32, standardised, ``[n, c, h, w]`` or ``[n, d]``.
        y_train, y_test: int64, 0 <= y < ``classes``.
        sha256: of the arrays as they were stored, before scaling.
        means, deviations: what the samples were standardised with, one a channel (or feature).
    """

    name: str
    path: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int
    sha256: str
    means: tuple[float, ...]
    deviations: tuple[float, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x_train.shape[1:])

    def describe(self) -> dict[str, Any]:
        """The ``data`` entry of ``run.json``."""
        return {
            "name": self.name,
            "path": self.path,
            "sha256": self.sha256,
            "channel_means": list(self.means),
            "channel_deviations": list(self.deviations),
            "shape": list(self.shape),
            "train": len(self.y_train),
            "test": len(self.y_test),
        }

    @cached_property
    def _samples(self) -> dict[str, Samples]:
        import torch

        from ..landscape import Samples
        from ..landscape.flat import channels_last

        made = {}
        for split, x, y in (("train", self.x_train, self.y_train), ("test", self.x_test, self.y_test)):
            tensor = torch.from_numpy(x)
            if tensor.ndim == 4:
                tensor = channels_last(tensor)
            made[split] = Samples(
                x=tensor,
                y=torch.from_numpy(y),
                classes=self.classes,
                name=self.name,
                split=split,
                indices=np.arange(len(y)),
                sha256=self.sha256,
            )
        return made

    def samples(self, split: Split) -> Samples:
        """One split as tensors that share the arrays' memory."""
        return self._samples[split]


def standardised(
    name: str,
    path: str,
    arrays: Mapping[str, np.ndarray],
) -> Dataset:
    """Check raw arrays and make a data set of them.

    Integer images are scaled to [0, 1] by their type's range; images get one mean and deviation a channel, float
    vectors one a feature, integer vectors (flattened images) one in all. A deviation of 0 counts as 1.

    Args:
        arrays: ``x_train, y_train, x_test, y_test``; x uint8 or float, ``[N,H,W]``, ``[N,H,W,c]``, ``[N,c,H,W]`` or
            ``[N,d]``; y whole numbers from 0.

    Raises:
        FedscopeError: a missing array, different lengths, an unreadable shape, labels that are not 0..C-1, NaN.
    """
    missing = [key for key in ("x_train", "y_train", "x_test", "y_test") if key not in arrays]
    if missing:
        raise FedscopeError(
            f"{name} lacks {', '.join(missing)}; it has {', '.join(sorted(arrays)) or 'no arrays'}, "
            "and needs x_train, y_train, x_test and y_test"
        )
    digest = hashlib.sha256()
    for key in ("x_train", "y_train", "x_test", "y_test"):
        digest.update(str((arrays[key].dtype, arrays[key].shape)).encode())
        for rows in _blocks(arrays[key]):
            digest.update(np.ascontiguousarray(rows).tobytes())
    y_train, y_test = (_labels(f"{name}: y_{split}", arrays[f"y_{split}"]) for split in ("train", "test"))
    for split, y in (("train", y_train), ("test", y_test)):
        if len(arrays[f"x_{split}"]) != len(y):
            raise FedscopeError(
                f"{name}: x_{split} has {len(arrays[f'x_{split}'])} samples, but y_{split} has {len(y)} labels"
            )
        if not len(y):
            raise FedscopeError(f"{name}: the {split} split is empty")
    channels = _channel_axis(name, arrays["x_train"].shape)
    axes: tuple[int, ...] = (0, 2, 3) if arrays["x_train"].ndim > 2 else (0,)
    if arrays["x_train"].ndim == 2 and np.issubdtype(arrays["x_train"].dtype, np.integer):
        axes = (0, 1)
    x_train = _scaled(f"{name}: x_train", arrays["x_train"], channels)
    x_test = _scaled(f"{name}: x_test", arrays["x_test"], _channel_axis(name, arrays["x_test"].shape))
    if x_train.shape[1:] != x_test.shape[1:]:
        raise FedscopeError(
            f"{name}: training samples have shape {list(x_train.shape[1:])}, test samples {list(x_test.shape[1:])}"
        )
    means, deviations = _moments(x_train, axes)
    for x in (x_train, x_test):
        x -= means.astype(np.float32)
        x /= deviations.astype(np.float32)
    return Dataset(
        name=name,
        path=path,
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        classes=int(max(y_train.max(), y_test.max())) + 1,
        sha256=digest.hexdigest(),
        means=tuple(means.ravel().tolist()),
        deviations=tuple(deviations.ravel().tolist()),
    )


def _blocks(x: np.ndarray) -> Iterator[np.ndarray]:
    """The samples in blocks, so that what is made of them never needs the room of all."""
    for start in range(0, len(x), 4096):
        yield x[start : start + 4096]


def _moments(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation along ``axes`` in float64, shaped to be subtracted; a deviation of 0 counts as 1."""
    count = prod(x.shape[axis] for axis in axes)
    total = sum(block.sum(axis=axes, keepdims=True, dtype=np.float64) for block in _blocks(x))
    means = np.asarray(total / count)
    squares = sum(((block - means) ** 2).sum(axis=axes, keepdims=True) for block in _blocks(x))
    deviations = np.sqrt(np.asarray(squares / count))
    deviations[deviations == 0] = 1
    return means, deviations


def _labels(place: str, y: np.ndarray) -> np.ndarray:
    if y.ndim != 1 or y.dtype.kind not in "iuf" or (y.dtype.kind == "f" and not np.equal(y, np.floor(y)).all()):
        raise FedscopeError(f"{place} has shape {list(y.shape)} and type {y.dtype}; labels are whole numbers, [N]")
    if len(y) and y.min() < 0:
        raise FedscopeError(f"{place} contains the label {y.min():g}; labels count from 0")
    return y.astype(np.int64)


def _channel_axis(name: str, shape: tuple[int, ...]) -> int | None:
    """Where an image array keeps its channels: the axis of at most four entries, the last one if both are."""
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


def _scaled(place: str, x: np.ndarray, channels: int | None) -> np.ndarray:
    if x.dtype.kind not in "iuf":
        raise FedscopeError(f"{place} has type {x.dtype}; samples are integers or floats")
    if x.ndim == 4 and channels == 1:
        x = np.moveaxis(x, 1, 3)
    scaled: np.ndarray = x.astype(np.float32, order="C")
    if x.dtype.kind == "f":
        if not np.isfinite(scaled).all():
            raise FedscopeError(f"{place} contains {int((~np.isfinite(scaled)).sum())} values that are not finite")
    else:
        scaled /= np.iinfo(x.dtype).max
    if x.ndim == 3:
        return scaled[:, None]
    # [n, c, h, w] to the reader, channels last in memory: what convolutions want, without another copy.
    return np.moveaxis(scaled, 3, 1) if x.ndim == 4 else scaled
