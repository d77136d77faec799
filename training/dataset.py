"""A data set in memory: images or vectors, standardised by the training split's statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..checkpoints import FedscopeError
from ..landscape.evaluation.known_tasks import CLASSIFICATION
from ..landscape.evaluation.tasks import Task
from .sample_arrays import blocks, channel_axis, check_split, digest, is_tokens, output_count, scaled

if TYPE_CHECKING:
    from ..landscape import Samples

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = ("train", "test")
#: what an .npz, or a loader of the user's own, may name
ARRAYS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True)
class Groups:
    """Which user, domain or superclass each sample is of.

    Attributes:
        names: of the groups, G of them.
        train, test: int64 [n], 0 <= g < G, in the order of the split's samples.
    """

    names: tuple[str, ...]
    train: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class Dataset:
    """A labelled data set with its two splits.

    Attributes:
        name: as given to ``--data``; ``path`` is the absolute path of its file or folder ("" for embedded data).
        x_train, x_test: float32, standardised, ``[n, c, h, w]`` or ``[n, d]``, or tokens, int64 ``[n, L]``; x_train
            [0, ...] where there are test samples only.
        y_train, y_test: int64, 0 <= y < ``classes``; of other tasks than classification int64 or float32 ``[n, ...]``.
        classes: how many outputs a model needs.
        sha256: of the arrays as they were stored, before scaling.
        means, deviations: what the samples were standardised with, one a channel (or feature); empty where they are
            taken as they are.
        task: what is learnt of them.
        groups: what else is known of the samples, by kind: ``user``, ``domain``, ``superclass``.
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
    task: Task = CLASSIFICATION
    groups: Mapping[str, Groups] = field(default_factory=dict)

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
    def _samples(self) -> dict[Split, Samples]:
        return {}

    def samples(self, split: Split) -> Samples:
        """One split as tensors that share the arrays' memory.

        Raises:
            FedscopeError: the training split of data that hold test samples only.
        """
        import torch

        from ..landscape import Samples
        from ..landscape.evaluation.replica import channels_last

        if split in self._samples:
            return self._samples[split]
        if split == "train" and not len(self.y_train):
            raise FedscopeError(
                f"{self.name} has no training samples (x_train and y_train are missing); add them, or leave out what "
                "needs them: give --split test, and no --normalization re-estimate"
            )
        x, y = (self.x_train, self.y_train) if split == "train" else (self.x_test, self.y_test)
        tensor = torch.from_numpy(x)
        if tensor.ndim == 4:
            tensor = channels_last(tensor)
        self._samples[split] = Samples(
            x=tensor,
            y=torch.from_numpy(y),
            classes=self.classes,
            name=self.name,
            split=split,
            indices=np.arange(len(y)),
            sha256=self.sha256,
            task=self.task,
        )
        return self._samples[split]


def standardised(
    name: str,
    path: str,
    arrays: Mapping[str, np.ndarray],
    others: Sequence[str] = (),
    task: Task = CLASSIFICATION,
    groups: Mapping[str, Groups] | None = None,
) -> Dataset:
    """Check raw arrays and make a data set of them.

    Integer images are scaled to [0, 1] by their type's range; images get one mean and deviation a channel, float
    vectors one a feature, integer vectors (flattened images) one in all. A deviation of 0 counts as 1. Tokens, integer
    vectors of a task on sequences, and all targets are taken as they are.

    Args:
        arrays: ``x_train, y_train, x_test, y_test``; x uint8 or float, ``[N,H,W]``, ``[N,H,W,c]``, ``[N,c,H,W]`` or
            ``[N,d]``; y whole numbers from 0, or targets of the task. ``classes``, one number, where no sample is of
            the last ones.
        others: names of arrays that were left unread, for the sentence that says what is there.
        task: what is learnt.
        groups: what else is known of the samples.

    Raises:
        FedscopeError: a missing array, different lengths, an unreadable shape, labels that are not 0..C-1 or beyond
            65,535 and the number of samples, NaN.
    """
    missing = [key for key in ARRAYS if key not in arrays]
    if missing:
        raise FedscopeError(
            f"{name} lacks {', '.join(missing)}; it has {', '.join(sorted((*arrays, *others))) or 'no arrays'}, "
            "and needs x_train, y_train, x_test and y_test (to measure on test data only: x_test and y_test)"
        )
    y_train, y_test = (check_split(name, split, arrays[f"x_{split}"], arrays[f"y_{split}"], task) for split in SPLITS)
    if y_train.shape[1:] != y_test.shape[1:]:
        raise FedscopeError(f"{name}: y_train has shape {list(y_train.shape)}, y_test {list(y_test.shape)}")
    if is_tokens(arrays["x_train"], task):
        from .own_data import as_they_are

        return as_they_are(name, path, arrays, inputs=True, task=task)
    channels = channel_axis(name, arrays["x_train"].shape)
    axes: tuple[int, ...] = (0, 2, 3) if arrays["x_train"].ndim > 2 else (0,)
    if arrays["x_train"].ndim == 2 and np.issubdtype(arrays["x_train"].dtype, np.integer):
        axes = (0, 1)
    x_train = scaled(f"{name}: x_train", arrays["x_train"], channels)
    x_test = scaled(f"{name}: x_test", arrays["x_test"], channel_axis(name, arrays["x_test"].shape))
    refuse_other_shapes(name, x_train, x_test)
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
        classes=output_count(name, task, (), (y_train, y_test), arrays.get("classes")),
        sha256=digest(arrays, ARRAYS),
        means=tuple(means.ravel().tolist()),
        deviations=tuple(deviations.ravel().tolist()),
        task=task,
        groups=groups or {},
    )


def refuse_other_shapes(name: str, x_train: np.ndarray, x_test: np.ndarray) -> None:
    """Refuse splits that no one model takes.

    Raises:
        FedscopeError: samples of two shapes.
    """
    if x_train.shape[1:] != x_test.shape[1:]:
        raise FedscopeError(
            f"{name}: training samples have shape {list(x_train.shape[1:])}, test samples {list(x_test.shape[1:])}"
        )


def _moments(x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation along ``axes`` in float64, shaped to be subtracted; a deviation of 0 counts as 1."""
    count = prod(x.shape[axis] for axis in axes)
    total = sum(block.sum(axis=axes, keepdims=True, dtype=np.float64) for block in blocks(x))
    means = np.asarray(total / count)
    squares = sum(((block - means) ** 2).sum(axis=axes, keepdims=True) for block in blocks(x))
    deviations = np.sqrt(np.asarray(squares / count))
    deviations[deviations == 0] = 1
    return means, deviations
