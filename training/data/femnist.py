"""``femnist``: Caldas et al., "LEAF", 2018: digits and letters by writer, 62 classes, as TensorFlow Federated
distributes them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from ...checkpoints import FedscopeError
from ...landscape.evaluation.known_tasks import CLASSIFICATION
from ...landscape.evaluation.tasks import Task
from ..dataset import SPLITS, Dataset, groups_of
from ..layouts.cache import Decoded, Room, SplitRoom, decoded_once, put_together
from ..layouts.data_folder import located
from ..layouts.tff import opened

SOURCE = "https://storage.googleapis.com/tff-datasets-public/fed_emnist.tar.bz2"


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``fed_emnist_train.h5`` and ``fed_emnist_test.h5`` in the folder ``argument``; a user is a writer."""
    names = [("fed_emnist_train.h5",), ("fed_emnist_test.h5",)]
    files = located("femnist", argument, names, inside=("emnist_all",), source=SOURCE)

    def decode(room: Room) -> Decoded:
        arrays, users = {}, []
        for split, path in zip(SPLITS, files, strict=True):
            arrays[f"x_{split}"], arrays[f"y_{split}"], held = read_writers(path, partial(room, f"x_{split}"))
            users.append(held)
        return arrays, {"user": groups_of(*users)}

    return decoded_once("femnist", files[0].parent, files, decode, task)


def read_writers(path: Path, room: SplitRoom) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Images [N, 28, 28], uint8, and labels [N], a writer after the other, and how many each writer has.

    Args:
        room: makes the array that the images are put into: of floats one writer's are in memory at a time.

    Raises:
        FedscopeError: a damaged file, pixels that are not within 0..1, a writer with other numbers of both.
    """
    with opened(path, "a file of Federated EMNIST", "writer", "pixels", "label") as writers:
        labels = {}
        for writer, own in writers.items():
            shape, y = own["pixels"].shape, np.asarray(own["label"]).ravel()
            if shape != (len(y), 28, 28):
                raise _refused(path, writer, shape, len(y))
            labels[writer] = y.astype(np.int64)
        images = (
            _pixels(path, writer, np.asarray(own["pixels"]), len(labels[writer])) for writer, own in writers.items()
        )
        counts = {writer: len(y) for writer, y in labels.items()}
        x = put_together(room, (28, 28), list(counts.values()), images)
    return x, np.concatenate(list(labels.values())), counts


def _pixels(path: Path, writer: str, x: np.ndarray, labels: int) -> np.ndarray:
    if not np.all((x >= 0) & (x <= 1)):
        raise _refused(path, writer, x.shape, labels)
    return np.round(x * 255).astype(np.uint8)


def _refused(path: Path, writer: str, shape: tuple[int, ...], labels: int) -> FedscopeError:
    return FedscopeError(
        f"{path}: writer {writer} has pixels {list(shape)} and {labels} labels; they are [n, 28, 28] within 0..1, with "
        "n labels"
    )


PROVIDES = load
