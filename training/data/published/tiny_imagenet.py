"""``tiny-imagenet``: Le and Yang, "Tiny ImageNet Visual Recognition Challenge", 2015: 100,000 + 10,000 colour images of
64 x 64 pixels, 200 classes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from ....checkpoints import FedscopeError, real_path
from ....checkpoints.io.errors import list_few
from ....checkpoints.io.untrusted import read_text
from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import Dataset
from ..formats.cache import Decoded, Room, decoded_once
from ..formats.data_folder import Remote, folder_with
from ..formats.images import images_in, read_images, subfolders

SOURCE = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
INSIDE = ("tiny-imagenet-200",)
REMOTE = (Remote(SOURCE, "90528d7ca1a48142e341f4ef8d21d0de", unpacked="tiny-imagenet-200"),)
CLASSES, ANNOTATIONS = "wnids.txt", "val/val_annotations.txt"
_AGAIN = "unpack tiny-imagenet-200.zip again"


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """In the folder ``argument``: ``wnids.txt``, ``train/<wnid>/images/*.JPEG``, ``val/val_annotations.txt`` and
    ``val/images/*.JPEG``.

    Labels are the lines of ``wnids.txt``. ``val`` is the test split, because the labels of ``test`` are not published.
    Grey images become RGB.

    Raises:
        FedscopeError: classes or images that one file names and another lacks; a damaged image, or images of two
            sizes.
    """
    place = f"--data tiny-imagenet:{argument}" if argument else "--data tiny-imagenet"
    files = [(CLASSES,), (ANNOTATIONS,)]
    root = real_path(folder_with("tiny-imagenet", argument, files, inside=INSIDE, source=SOURCE, fetched=True))
    classes = read_classes(place, root)
    of_class = [train_images(place, root, name) for name in classes]
    train = [path for paths in of_class for path in paths]
    y_train = np.repeat(np.arange(len(classes)), [len(paths) for paths in of_class])
    test, y_test = read_annotations(place, root, classes)

    def decode(room: Room) -> Decoded:
        x_train = read_images(place, train, partial(room, "x_train"))
        x_test = read_images(place, test, partial(room, "x_test"))
        return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": np.array(y_test)}, {}

    files_read = [root / CLASSES, root / ANNOTATIONS, *train, *test]
    return decoded_once("tiny-imagenet", root, files_read, decode, task)


def read_classes(place: str, root: Path) -> list[str]:
    """The classes of ``wnids.txt``, which are those that ``train/`` has a folder for.

    Raises:
        FedscopeError: no class, a class twice, a class that only one of both has.
    """
    classes = read_text(root / CLASSES, "a list of classes", _AGAIN).split()
    if len(set(classes)) < len(classes) or not classes:
        twice = list_few(dict.fromkeys(name for name in classes if classes.count(name) > 1), 3)
        what = f"names {twice} twice" if twice else "names no class"
        raise FedscopeError(f"{place}: {root / CLASSES} {what}; {_AGAIN}")
    train = root / "train"
    have = {path.name for path in subfolders(train)} if train.is_dir() else set()
    if lacking := [name for name in classes if name not in have]:
        raise FedscopeError(
            f"{place}: {train} has no folder for {len(lacking)} of the {len(classes)} classes of {CLASSES} "
            f"({list_few(lacking, 3)}); {_AGAIN}"
        )
    if more := sorted(name for name in have - set(classes) if not name.startswith(".")):
        raise FedscopeError(f"{place}: {train} has the classes {list_few(more, 3)}, which {CLASSES} lacks; {_AGAIN}")
    return classes


def train_images(place: str, root: Path, name: str) -> list[Path]:
    """The images of a class, by name.

    Raises:
        FedscopeError: there are none.
    """
    folder = root / "train" / name / "images"
    found = images_in(folder) if folder.is_dir() else []
    if not found:
        raise FedscopeError(f"{place}: the class {name} has no images in {folder}; {_AGAIN}")
    return found


def read_annotations(place: str, root: Path, classes: list[str]) -> tuple[list[Path], list[int]]:
    """The images of ``val/images``, in the order of ``val_annotations.txt``, and their labels.

    Raises:
        FedscopeError: a line that is not an image and a class that is known; an image that only one of both has, or
            that is named twice.
    """
    path, folder = root / ANNOTATIONS, root / "val" / "images"
    numbers = {name: number for number, name in enumerate(classes)}
    labels: dict[str, int] = {}
    for row, line in enumerate(read_text(path, "a list of images and classes", _AGAIN).splitlines(), start=1):
        if not line.strip():
            continue
        image, name, *_ = [*line.split(), ""]
        if name not in numbers:
            raise FedscopeError(
                f"{place}: line {row} of {path} is {line[:60]!r}, which is not an image and a class of {CLASSES}; "
                f"{_AGAIN}"
            )
        if image in labels:
            raise FedscopeError(f"{place}: line {row} of {path} names {image} a second time; {_AGAIN}")
        labels[image] = numbers[name]
    have = {image.name: image for image in images_in(folder)} if folder.is_dir() else {}
    if lacking := [image for image in labels if image not in have]:
        raise FedscopeError(
            f"{place}: {folder} lacks {len(lacking)} of the {len(labels)} images of {path.name} "
            f"({list_few(lacking, 3)}); {_AGAIN}, and leave val/ as it is"
        )
    if more := [image for image in have if image not in labels]:
        raise FedscopeError(
            f"{place}: {folder} has {list_few(more, 3)}, of which {path.name} gives no class; {_AGAIN}, and leave val/ "
            "as it is"
        )
    return [have[image] for image in labels], list(labels.values())


PROVIDES = load
