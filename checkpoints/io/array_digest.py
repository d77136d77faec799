"""The digest of a data set's arrays, by which it is known wherever it lies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np

#: what an .npz, a run, or a loader of the user's own may hold
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
#: what they call the tokens that are padding, where a mask has said it
PADDING = "padding"
#: samples, and values in all, that are worked on at once
BLOCK, VALUES = 4096, 1 << 24


def digest(arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> str:
    """Return the sha256 of arrays as they were stored: types, shapes and values; and of what a mask has said is padding
    where networks leave it out, which are those for classes.

    >>> one = {"x_test": np.array([[5, 0]]), "y_test": np.array([1])}
    >>> digest(one, ["x_test", "y_test"]) == digest({**one, "padding": np.array([], int)}, ["x_test", "y_test"])
    False
    """
    said = hashlib.sha256()
    for name in names:
        said.update(str((arrays[name].dtype, arrays[name].shape)).encode())
        for rows in blocks(arrays[name]):
            said.update(np.ascontiguousarray(rows).tobytes())
    if PADDING in arrays and all(arrays[name].ndim == 1 for name in names if name.startswith("y_")):
        said.update(f"{PADDING} {sorted(arrays[PADDING].ravel().tolist())}".encode())
    return said.hexdigest()


def splits_in(arrays: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """Return the arrays that must be there: all four where one of the training split is."""
    return ARRAYS if "x_train" in arrays or "y_train" in arrays else ARRAYS[2:]


def blocks(x: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the samples in blocks, so that what is made of them never needs the room of all."""
    rows = min(BLOCK, max(1, VALUES // max(1, prod(x.shape[1:]))))
    for start in range(0, len(x), rows):
        yield x[start : start + rows]
