"""The embedded default: scikit-learn's 1,797 real handwritten digits, 8 x 8 pixels (UCI Optical Recognition)."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ....checkpoints import FedscopeError
from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import Dataset
from ..standardize import standardize

#: samples of the test split
TEST = 360


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
    """Images, float32 [n, 8, 8] within 0..1, and labels of both splits.

    The split is that of scikit-learn's ``train_test_split`` with ``test_size=360, random_state=0``, stratified. Its
    rows are kept next to this file, because importing scikit-learn for it takes as long as a training of ten rounds.
    """
    table = _table()
    words = Path(__file__).with_name("digits_split.txt").read_text(encoding="utf-8").splitlines()
    rows = np.array(" ".join(words[2:]).split(), dtype=np.int64)
    x, y = (table[:, :-1].reshape(-1, 8, 8) / 16).astype(np.float32), table[:, -1].astype(np.int64)
    train, test = rows[:-TEST], rows[-TEST:]
    return {"x_train": x[train], "y_train": y[train], "x_test": x[test], "y_test": y[test]}


def _table() -> np.ndarray:
    """Pixels and label of every digit, float64 [1797, 65], from the file that scikit-learn is installed with."""
    where = find_spec("sklearn")
    for folder in where.submodule_search_locations or () if where else ():
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        if file.is_file():
            with gzip.open(file, "rt", encoding="utf-8") as opened:
                return np.loadtxt(opened, delimiter=",")
    from sklearn.datasets import load_digits  # of another layout

    return np.column_stack(load_digits(return_X_y=True))


PROVIDES = load
