"""The embedded default: scikit-learn's 1,797 real handwritten digits, 8 x 8 pixels (UCI Optical Recognition)."""

from __future__ import annotations

import numpy as np

from ....checkpoints import FedscopeError
from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import Dataset
from ..standardize import standardize


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """1,437 training and 360 test samples, stratified, always the same ones; pixels 0..16 scaled to [0, 1].

    >>> data = load("")
    >>> data.x_train.shape, data.x_test.shape, data.classes
    ((1437, 1, 8, 8), (360, 1, 8, 8), 10)
    """
    if argument:
        raise FedscopeError(f"--data digits:{argument} takes no argument; give --data digits")
    return standardize("digits", "", split_digits(), task=task)


def split_digits() -> dict[str, np.ndarray]:
    """Images, float32 [n, 8, 8] within 0..1, and labels of both splits."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    x = (digits.images / 16).astype(np.float32)
    x_train, x_test, y_train, y_test = train_test_split(
        x, digits.target, test_size=360, stratify=digits.target, random_state=0
    )
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


PROVIDES = load
