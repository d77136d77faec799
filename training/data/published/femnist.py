"""``femnist``: Caldas et al., "LEAF", 2018: digits and letters by writer, 62 classes, in the form of TensorFlow
Federated or LEAF."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ....checkpoints import FedscopeError
from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import SPLITS, Dataset, groups_of
from ..formats.cache import Decoded, Room, SplitRoom, decoded_once, put_together
from ..formats.leaf import LeafFiles, located_in_leaf, read_leaf
from ..formats.tff import open_users

SOURCE = "https://storage.googleapis.com/tff-datasets-public/fed_emnist.tar.bz2"
#: digits, capital and small letters
CLASSES = 62


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``fed_emnist_train.h5`` and ``fed_emnist_test.h5`` in the folder ``argument``, or LEAF's JSON; users are writers.

    LEAF's files have other counts. The images of both are dark ink on a white ground, and stay so.

    Raises:
        FedscopeError: missing, damaged or foreign files; pixels that are not within 0..1, labels that are no classes.
    """
    names = [("fed_emnist_train.h5",), ("fed_emnist_test.h5",)]
    found = located_in_leaf("femnist", argument, names, inside=("emnist_all",), source=SOURCE)
    files = found.files if isinstance(found, LeafFiles) else found

    def decode(room: Room) -> Decoded:
        if isinstance(found, LeafFiles):
            arrays, groups = read_leaf(found, room, (28, 28), from_lists, np.empty(0, np.int64), drawn=True)
            return {**arrays, "classes": np.array(CLASSES)}, groups
        made, users = {"classes": np.array(CLASSES)}, []
        for split, path in zip(SPLITS, files, strict=True):
            made[f"x_{split}"], made[f"y_{split}"], held = read_writers(path, partial(room, f"x_{split}"))
            users.append(held)
        return made, {"user": groups_of(*users)}

    folder = found.folder if isinstance(found, LeafFiles) else files[0].parent
    return decoded_once("femnist", folder, files, decode, task)


def from_lists(place: str, x: Sequence[Any], y: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, 28, 28], uint8, and labels [n] of what LEAF's JSON has of a writer: lists of 784 pixels, and classes.

    Args:
        place: for sentences: the file and the writer.

    Raises:
        FedscopeError: says what the writer has instead.

    >>> images, labels = from_lists("", [[0] * 392 + [1.0] * 392], [61])
    >>> images[0, 13:15, 0].tolist(), labels.tolist()
    ([0, 255], [61])
    """
    other = next((image for image in x if not isinstance(image, list) or len(image) != 28 * 28), None)
    if other is not None:
        has = f"{len(other)} pixels" if isinstance(other, list) else f"no list but {str(other)[:20]}"
        raise FedscopeError(f"{place} has an image of {has}; those of FEMNIST have 784 pixels")
    pixels = _numbers(x)
    if pixels.dtype.kind not in "iuf" or pixels.ndim != 2:
        raise FedscopeError(f"{place} has pixels that are not numbers; copy the file again")
    return _as_bytes(place, pixels).reshape(-1, 28, 28), _classes(place, _numbers(y))


def _numbers(values: Sequence[Any]) -> np.ndarray:
    """An array; of no numbers where lists lie in lists."""
    try:
        return np.array(values)
    except ValueError:
        return np.empty(0, object)


def read_writers(path: Path, room: SplitRoom) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Images [N, 28, 28], uint8, and labels [N], a writer after the other, and how many each writer has.

    Args:
        room: makes the array that the images are put into: of floats one writer's are in memory at a time.

    Raises:
        FedscopeError: a damaged file, pixels that are not within 0..1, a writer with other numbers of both.
    """
    with open_users(path, "a file of Federated EMNIST", "writer", "pixels", "label") as writers:
        labels = {}
        for writer, own in writers.items():
            pixels, y = own["pixels"], np.asarray(own["label"]).ravel()
            if pixels.shape != (len(y), 28, 28) or pixels.dtype.kind not in "iuf":
                raise FedscopeError(
                    f"{path}: writer {writer} has pixels {list(pixels.shape)} of {pixels.dtype} and {len(y)} labels; "
                    "they are numbers [n, 28, 28], with n labels"
                )
            labels[writer] = _classes(f"{path}: writer {writer}", y)
        counts = {writer: len(y) for writer, y in labels.items()}
        images = (_as_bytes(f"{path}: writer {name}", np.asarray(own["pixels"])) for name, own in writers.items())
        x = put_together(room, (28, 28), list(counts.values()), images)
    return x, np.concatenate(list(labels.values())), counts


def _as_bytes(place: str, x: np.ndarray) -> np.ndarray:
    """Pixels as uint8."""
    if not (within := (x >= 0) & (x <= 1)).all():
        raise FedscopeError(f"{place} has a pixel of {x[~within][0]:g}; they are within 0..1")
    return np.round(x * 255).astype(np.uint8)


def _classes(place: str, y: np.ndarray) -> np.ndarray:
    """Labels as int64."""
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise FedscopeError(f"{place} has labels that are not whole numbers; copy the file again")
    if not (known := (y >= 0) & (y < CLASSES)).all():
        raise FedscopeError(f"{place} has the label {y[~known][0]}; the classes of FEMNIST are 0 to {CLASSES - 1}")
    return y.astype(np.int64)


PROVIDES = load
