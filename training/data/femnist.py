"""``femnist``: Caldas et al., "LEAF", 2018: digits and letters by writer, 62 classes, as TensorFlow Federated
distributes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.hdf5 import reading
from ...landscape.evaluation.known_tasks import CLASSIFICATION
from ...landscape.evaluation.tasks import Task
from ..dataset import Dataset, Groups
from ..layouts.cache import Decoded, Room, decoded_once
from ..layouts.data_folder import located

SOURCE = "https://storage.googleapis.com/tff-datasets-public/fed_emnist.tar.bz2"


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``fed_emnist_train.h5`` and ``fed_emnist_test.h5`` in the folder ``argument``; a user is a writer."""
    names = [("fed_emnist_train.h5",), ("fed_emnist_test.h5",)]
    files = located("femnist", argument, names, inside=("emnist_all",), source=SOURCE)

    def decode(room: Room) -> Decoded:
        parts = [read_writers(path) for path in files]
        writers = tuple(sorted(set(parts[0]) | set(parts[1])))
        arrays: dict[str, np.ndarray] = {}
        users = []
        for split, part in zip(("train", "test"), parts, strict=True):
            arrays[f"x_{split}"] = np.concatenate([x for x, _ in part.values()])
            arrays[f"y_{split}"] = np.concatenate([y for _, y in part.values()])
            numbers = np.searchsorted(writers, list(part))
            users.append(np.repeat(numbers, [len(y) for _, y in part.values()]).astype(np.int64))
        return arrays, {"user": Groups(writers, *users)}

    return decoded_once("femnist", files[0].parent, files, decode, task)


def read_writers(path: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Images [n, 28, 28], uint8, and labels [n] of every writer, by id.

    Raises:
        FedscopeError: a damaged file, pixels that are not within 0..1, a writer with other numbers of both.
    """
    made = {}
    with reading(path, None, 0, "a file of Federated EMNIST") as file:
        for writer in sorted(file["examples"]):
            x, y = np.asarray(file["examples"][writer]["pixels"]), np.asarray(file["examples"][writer]["label"])
            if x.ndim != 3 or len(x) != y.size or not np.all((x >= 0) & (x <= 1)):
                raise FedscopeError(
                    f"{path}: writer {writer} has pixels {list(x.shape)} and {y.size} labels; they are [n, 28, 28] "
                    "within 0..1, with n labels"
                )
            made[writer] = np.round(x * 255).astype(np.uint8), y.ravel().astype(np.int64)
    if not made:
        raise FedscopeError(f"{path} has no writers; copy it again")
    return made


PROVIDES = load
