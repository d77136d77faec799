"""A data set: its two splits, and what is known of each sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from ...checkpoints import FedscopeError
from ...checkpoints.io.array_digest import ARRAYS as ARRAYS
from ...evaluation.standard_tasks import CLASSIFICATION
from ...evaluation.tasks import Task
from ...evaluation.uint8_images import Inputs, Uint8Images

if TYPE_CHECKING:
    from ...evaluation.samples import Samples

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = ("train", "test")


@dataclass(frozen=True)
class Groups:
    """The user, domain or superclass of each sample.

    Attributes:
        names: of the groups, G of them.
        train, test: int64 [n], 0 <= g < G, in the order of the split's samples; in ``test`` -1 where it is not known.
    """

    names: tuple[str, ...]
    train: np.ndarray
    test: np.ndarray


def groups_of(train: Mapping[str, int], test: Mapping[str, int]) -> Groups:
    """Return the groups of samples that lie in each split a group after the other: how many each group has, by name.

    >>> groups = groups_of({"b": 2, "a": 1}, {"c": 1})
    >>> groups.names, groups.train.tolist(), groups.test.tolist()
    (('a', 'b', 'c'), [1, 1, 0], [2])
    """
    names = tuple(sorted({*train, *test}))
    number = {name: i for i, name in enumerate(names)}
    of = (np.repeat([number[name] for name in held], list(held.values())) for held in (train, test))
    return Groups(names, *(numbers.astype(np.int64) for numbers in of))


@dataclass(frozen=True)
class Known:
    """Values computed from a data set's arrays: their sha256, and what standardises them, one a channel."""

    sha256: str
    means: tuple[float, ...]
    deviations: tuple[float, ...]


@dataclass(frozen=True)
class Dataset:
    """A labelled data set with its two splits.

    Attributes:
        name: as given to ``--data``; ``path`` is the absolute path of its file or folder ("" for embedded data).
        x_train, x_test: float32, standardised, ``[n, c, h, w]`` or ``[n, d]``, or tokens, int64 ``[n, L]``; x_train
            [0, ...] where there are test samples only. Images that are stored as bytes stay so, as
            :class:`~fedscope.evaluation.uint8_images.Uint8Images`, of which ``np.asarray`` makes the same numbers.
        y_train, y_test: int64, 0 <= y < ``classes``; of other tasks than classification int64 or float32 ``[n, ...]``.
        classes: how many outputs a model needs, at least where they are ``classes_seen``: counted by the labels there
            are, which nobody says are all.
        sha256: of the arrays as they were stored, before scaling, and of ``padding`` where samples have classes.
        means, deviations: what the samples were standardised with, one a channel (or feature); empty where they are
            taken as they are.
        task: what is learnt of them.
        groups: what else is known of the samples, by kind: ``user``, ``domain``, ``superclass``.
        tokens: what each token stands for, where samples are tokens of a text.
        held_out: whether the test samples were set aside from one split, see :func:`~.hold_out.hold_out`.
        padding: the tokens that an ``attention_mask`` says are padding, none of samples without any; None where there
            was no mask.
    """

    name: str
    path: str
    x_train: np.ndarray | Uint8Images
    y_train: np.ndarray
    x_test: np.ndarray | Uint8Images
    y_test: np.ndarray
    classes: int
    sha256: str
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    task: Task = CLASSIFICATION
    groups: Mapping[str, Groups] = field(default_factory=dict)
    tokens: tuple[str, ...] = ()
    classes_seen: bool = False
    held_out: bool = False
    padding: tuple[int, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.x_train.shape[1:])

    def describe(self) -> dict[str, Any]:
        """Return the ``data`` entry of ``run.json``."""
        return {
            "name": self.name,
            "path": self.path,
            "sha256": self.sha256,
            "channel_means": list(self.means),
            "channel_deviations": list(self.deviations),
            "shape": list(self.shape),
            "train": len(self.y_train),
            "test": len(self.y_test),
            **({"held_out": True} if self.held_out else {}),
        }

    @cached_property
    def _samples(self) -> dict[Split, Samples]:
        return {}

    def samples(self, split: Split) -> Samples:
        """One split as tensors that share the arrays' memory.

        Raises:
            FedscopeError: the training split of data that hold test samples only.
        """
        from ...evaluation.model_replica import channels_last
        from ...evaluation.samples import Samples

        if split in self._samples:
            return self._samples[split]
        if split == "train" and not len(self.y_train):
            raise FedscopeError(
                f"{self.name} has no training samples (x_train and y_train are missing); add them, or leave out what "
                "needs them: give --split test, and no --normalization re-estimate"
            )
        x, y = (self.x_train, self.y_train) if split == "train" else (self.x_test, self.y_test)
        inputs: Inputs = x if isinstance(x, Uint8Images) else torch.from_numpy(x)
        if isinstance(inputs, torch.Tensor) and inputs.ndim == 4:
            inputs = channels_last(inputs)
        self._samples[split] = Samples(
            x=inputs,
            y=torch.from_numpy(y),
            classes=self.classes,
            name=self.name,
            split=split,
            indices=np.arange(len(y)),
            sha256=self.sha256,
            task=self.task,
            classes_seen=self.classes_seen,
        )
        return self._samples[split]
