"""``data.pool``: a data set's training and test samples together, so that every client has a test part of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from ...checkpoints import Partition
from ...evaluation.uint8_images import Uint8Images
from .dataset import Dataset, Groups


def pooled(data: Dataset) -> Dataset:
    """The training samples and behind them the test samples as one training split; the test split is as it was.

    They stay standardised by what the training samples alone gave. Users, domains or superclasses that are not known of
    every test sample are none of the whole's.

    >>> from fedscope.training import load_data
    >>> digits = load_data("digits")
    >>> len(digits.y_train), len(digits.y_test), len(pooled(digits).y_train)
    (1437, 360, 1797)
    """
    x: np.ndarray | Uint8Images
    if isinstance(data.x_train, Uint8Images) and isinstance(data.x_test, Uint8Images):
        stored = torch.cat([data.x_train.stored, data.x_test.stored])
        x = Uint8Images(stored, data.x_train.means, data.x_train.deviations, data.x_train.dtype)
    else:
        x = np.concatenate([np.asarray(data.x_train), np.asarray(data.x_test)])
    groups = {
        kind: Groups(of.names, np.concatenate([of.train, of.test]), of.test)
        for kind, of in data.groups.items()
        if (of.test >= 0).all()
    }
    return replace(data, x_train=x, y_train=np.concatenate([data.y_train, data.y_test]), groups=groups)


def tested_on_parts(data: Dataset, split: Partition) -> Dataset:
    """The same training split, and as test split the samples that the clients set aside, ascending: none is trained on.

    Args:
        split: with a test part of some client.
    """
    rows = np.sort(np.concatenate(split.test or [np.array([], np.int64)]))
    x: np.ndarray | Uint8Images
    if isinstance(data.x_train, Uint8Images):
        stored = data.x_train.stored[torch.from_numpy(rows)]
        x = Uint8Images(stored, data.x_train.means, data.x_train.deviations, data.x_train.dtype)
    else:
        x = data.x_train[rows]
    groups = {kind: Groups(of.names, of.train, of.train[rows]) for kind, of in data.groups.items()}
    return replace(data, x_test=x, y_test=data.y_train[rows], groups=groups)
