"""Labels in forms that other programs give them in: a column, rows of zeros and a one, names."""

from __future__ import annotations

from typing import Any

import numpy as np

#: how names become labels; those of a test split alone would be counted otherwise
NUMBERED = "number the classes, alike in both splits: np.unique(y, return_inverse=True)[1] of all labels"


def of_column(y: np.ndarray) -> np.ndarray:
    """Return whole numbers [N, 1], as keras has labels, as [N]; all else as it is.

    >>> of_column(np.array([[2], [0]])).tolist(), of_column(np.array([[2, 0]])).tolist()
    ([2, 0], [[2, 0]])
    """
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 and y.dtype.kind in "iu" else y


def is_one_hot(y: np.ndarray) -> bool:
    """Check for a class a row that is marked by a 1 among zeros.

    >>> is_one_hot(np.eye(3)), is_one_hot(np.ones((3, 1))), is_one_hot(np.array([[1, 1], [0, 1]]))
    (True, False, False)
    """
    if y.dtype.kind not in "biuf" or y.ndim != 2 or y.shape[1] < 2 or not len(y):
        return False
    if y[:1].sum() != 1:  # of many rows the first one says it
        return False
    return bool(((y == 0) | (y == 1)).all() and (y.sum(axis=1) == 1).all())


def are_names(given: Any) -> bool:
    """Check for names of classes: a text, or an array or a list of texts.

    >>> are_names("cat"), are_names(np.array(["cat", "dog"], object)), are_names([0, 1]), are_names([])
    (True, True, False, False)
    """
    if isinstance(given, str):
        return True
    if not isinstance(given, np.ndarray):
        return isinstance(given, list | tuple) and bool(given) and all(map(are_names, given))
    if given.dtype.kind == "O":
        return given.size > 0 and all(isinstance(one, str) for one in given.flat)
    return given.dtype.kind in "US"
