"""Arrays of HDF5 files, read once it is known that they are what they should be and that the file really holds them."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from .errors import FedscopeError
from .recording import spoken_size

#: how often gzip, at most, holds its own size
GZIP = 1032
_KINDS = {"iu": "whole numbers", "fiu": "numbers", "fiub": "numbers"}


def refuse_unstored(path: Path, dataset: Any) -> None:
    """Refuse a dataset that declares more than the file holds of it: a few bytes can declare a terabyte.

    Raises:
        FedscopeError: with both sizes; values that lie in another file.
    """
    if dataset.shape is None:
        return
    if dataset.is_virtual or dataset.external:
        raise FedscopeError(f"{path} keeps {dataset.name} in another file; give a file that holds its values itself")
    declared, stored = prod(dataset.shape) * dataset.dtype.itemsize, dataset.id.get_storage_size()
    if declared > stored * (GZIP if dataset.id.get_create_plist().get_nfilters() else 1):
        raise FedscopeError(
            f"{path} is damaged: {dataset.name} declares {spoken_size(declared)}, but the file holds "
            f"{spoken_size(stored)} of it; restore it from a copy"
        )


def read_array(path: Path, file: Any, name: str, kinds: str, dimensions: int) -> np.ndarray:
    """A dataset of numbers.

    Args:
        kinds: NumPy's, as ``iu`` for whole numbers.
        dimensions: how many it must have.

    Raises:
        FedscopeError: missing, no dataset, another type or number of dimensions, less stored than declared.
    """
    dataset = file.get(name)
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
        raise FedscopeError(f"{path} is damaged: it has no {name}; restore it from a copy")
    if dataset.dtype.kind not in kinds or len(dataset.shape) != dimensions:
        raise FedscopeError(
            f"{path} is damaged: {name} is {dataset.dtype} of shape {list(dataset.shape)}, not {_KINDS[kinds]} of "
            f"{dimensions} dimension{'s' if dimensions > 1 else ''}; restore it from a copy"
        )
    refuse_unstored(path, dataset)
    return np.asarray(dataset[()])
