"""The pickles of CIFAR: rows of 3,072 bytes, a channel after the other, and lists of labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...checkpoints import FedscopeError
from .pickles import array_of, read_pickle

#: bytes of an image: 3 channels of 32 x 32
_ROW = 3072


def read_batches(files: Sequence[Path], labels: Sequence[bytes]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The images [N, 3, 32, 32] of some batches, and for each name in ``labels`` the labels [N].

    Raises:
        FedscopeError: a damaged file, or one without images or these labels.
    """
    images, targets = [], [[] for _ in labels]  # type: tuple[list[np.ndarray], list[list[np.ndarray]]]
    for path in files:
        batch = read_pickle(path)
        if not isinstance(batch, dict) or any(key not in batch for key in (b"data", *labels)):
            wanted = ", ".join(key.decode() for key in (b"data", *labels))
            raise FedscopeError(f"{path} is no batch of CIFAR, which has {wanted}; copy it again")
        rows = array_of(path, batch[b"data"], "data")
        if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != _ROW:
            raise FedscopeError(
                f"{path}: data has shape {list(rows.shape)} of {rows.dtype}; CIFAR's is [N, {_ROW}] of uint8"
            )
        images.append(rows.reshape(-1, 3, 32, 32))
        for name, own in zip(labels, targets, strict=True):
            found = array_of(path, batch[name], name.decode())
            if found.shape != (len(rows),):
                raise FedscopeError(f"{path} has {len(rows)} images, but {found.size} {name.decode()}; copy it again")
            own.append(found)
    return np.concatenate(images), [np.concatenate(own) for own in targets]
