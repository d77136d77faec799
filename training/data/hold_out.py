"""Test samples of data that come without: a share of every class, set aside before anything is trained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...checkpoints import FedscopeError
from ...evaluation.uint8_images import Uint8Images
from ..rng import generator
from .dataset import Dataset

#: of the samples, for tests
SHARE = 0.2


def hold_out(data: Dataset) -> Dataset:
    """Make of the samples of one split two: a fifth of every class, at least one, for tests, the others to train on.

    The same samples are always divided in the same way, whatever a run's seeds, so that its runs can be compared.

    Raises:
        FedscopeError: too few samples to set one aside.

    >>> from fedscope.training.data.custom import taken_data
    >>> x, y = np.zeros((10, 3), np.float32), np.repeat([0, 1], 5)
    >>> made = hold_out(taken_data((x, y)))
    >>> len(made.y_train), np.bincount(made.y_test).tolist()
    (8, [1, 1])
    """
    y = data.y_test
    if len(y) < 2:
        raise FedscopeError(f"{data.name} has {len(y)} samples, of which none can be set aside for tests; give more")
    mixed = generator(0, "hold-out").permutation(len(y))
    kinds = y[mixed] if data.task.has_classes else np.zeros(len(y), np.int64)
    aside = np.zeros(len(y), bool)
    for kind in np.unique(kinds):
        own = mixed[kinds == kind]
        aside[own[: min(max(1, round(SHARE * len(own))), len(own) - 1)]] = True
    rows, tests = np.flatnonzero(~aside), np.flatnonzero(aside)
    if not len(tests):  # every class has a single sample
        rows, tests = np.sort(mixed[1:]), mixed[:1]
    x = data.x_test
    if isinstance(x, Uint8Images):
        raise FedscopeError(f"{data.name} has test samples only; give training samples, too")
    groups = {kind: replace(of, train=of.test[rows], test=of.test[tests]) for kind, of in data.groups.items()}
    return replace(
        data,
        x_train=x[rows],
        y_train=y[rows],
        x_test=x[tests],
        y_test=y[tests],
        groups=groups,
        held_out=True,
    )
