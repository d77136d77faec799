"""``svhn``: Netzer et al., "Reading Digits in Natural Images", 2011: 73,257 + 26,032 digits, 32 x 32."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from ....checkpoints import FedscopeError, explain_read_errors, regular
from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import SPLITS, Dataset
from ..formats.cache import Decoded, Room, SplitRoom, decoded_once, put_together
from ..formats.data_folder import Remote, locate

SOURCE = "http://ufldl.stanford.edu/housenumbers/"
INSIDE = ("SVHN",)
REMOTE = (
    Remote(f"{SOURCE}train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
    Remote(f"{SOURCE}test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
)


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``train_32x32.mat`` and ``test_32x32.mat`` in the folder ``argument``; the label 10 is the digit 0."""
    files = locate(
        "svhn", argument, [("train_32x32.mat",), ("test_32x32.mat",)], inside=INSIDE, source=SOURCE, fetched=True
    )

    def decode(room: Room) -> Decoded:
        arrays = {}
        for split, path in zip(SPLITS, files, strict=True):
            arrays[f"x_{split}"], arrays[f"y_{split}"] = read_mat(path, partial(room, f"x_{split}"))
        return arrays, {}

    return decoded_once("svhn", files[0].parent, files, decode, task)


def read_mat(path: Path, room: SplitRoom) -> tuple[np.ndarray, np.ndarray]:
    """The images [N, 32, 32, 3] and digits [N] of one file, which is in memory while it is read.

    Args:
        room: makes the array that the images are put into.

    Raises:
        FedscopeError: a damaged file, or one without ``X`` [32, 32, 3, N] and ``y`` [N, 1].
    """
    from scipy.io import loadmat

    what = "a MATLAB file of SVHN"
    regular(path, what)
    with explain_read_errors(path, what):
        held = loadmat(path, variable_names=["X", "y"])
        x, y = np.asarray(held["X"]), np.asarray(held["y"]).ravel()
    if x.ndim != 4 or x.shape[2] != 3 or x.dtype != np.uint8 or y.dtype.kind not in "iu" or x.shape[3] != len(y):
        raise FedscopeError(f"{path} has X {list(x.shape)} and {len(y)} labels; SVHN's is [32, 32, 3, N] with N labels")
    images = x.transpose(3, 0, 1, 2)
    parts = [images[start : start + 4096] for start in range(0, len(images), 4096)]
    return put_together(room, images.shape[1:], list(map(len, parts)), parts), y.astype(np.int64) % 10


PROVIDES = load
