"""The pickles of CIFAR: rows of 3,072 bytes, a channel after the other, and lists of labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ....checkpoints import FedscopeError
from .cache import SplitRoom, put_together
from .pickles import array_of, read_pickle

#: an image as it is stored, 3,072 bytes
_IMAGE = (3, 32, 32)
_ROW = 3072


def read_batches(
    files: Sequence[Path], labels: Sequence[bytes], room: SplitRoom
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Read the images [N, 3, 32, 32] of some batches, and for each name in ``labels`` the labels [N].

    Files are read twice, for their labels and for their images, so that one batch is in memory at a time.

    Args:
        room: makes the array that the images are put into, with their channels last.

    Raises:
        FedscopeError: a damaged file, or one without images or these labels.
    """
    targets = [_read(path, labels)[1] for path in files]
    counts = [len(own[0]) for own in targets]
    images = (_read(path, labels)[0].transpose(0, 2, 3, 1) for path in files)
    x = put_together(room, (32, 32, 3), counts, images)
    return x.transpose(0, 3, 1, 2), [np.concatenate(own) for own in zip(*targets, strict=True)]


def _read(path: Path, labels: Sequence[bytes]) -> tuple[np.ndarray, list[np.ndarray]]:
    """A batch's images [n, 3, 32, 32] and labels [n]."""
    batch = read_pickle(path)
    if not isinstance(batch, dict) or any(key not in batch for key in (b"data", *labels)):
        wanted = ", ".join(key.decode() for key in (b"data", *labels))
        raise FedscopeError(f"{path} is not a batch of CIFAR, which has {wanted}; copy it again")
    rows = array_of(path, batch[b"data"], "data")
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != _ROW:
        raise FedscopeError(
            f"{path}: data has shape {list(rows.shape)} of {rows.dtype}; CIFAR's is [N, {_ROW}] of uint8"
        )
    targets = [array_of(path, batch[name], name.decode()) for name in labels]
    for name, found in zip(labels, targets, strict=True):
        if found.shape != (len(rows),):
            raise FedscopeError(f"{path} has {len(rows)} images, but {found.size} {name.decode()}; copy it again")
    return rows.reshape(-1, *_IMAGE), targets
