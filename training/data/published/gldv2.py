"""``gldv2``: Hsu, Qi and Brown, "Federated Visual Classification with Real-World Data Distribution", ECCV 2020: Google
Landmarks v2 as Landmarks-User-160k, 164,172 + 19,526 photos of 2,028 landmarks by 1,262 authors."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path

import numpy as np

from ....checkpoints import FedscopeError, real_path
from ....checkpoints.io.errors import list_few
from ....checkpoints.io.untrusted import explain_read_errors, read_text
from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import Dataset, Groups
from ..formats.cache import Decoded, Room, decoded_once
from ..formats.data_folder import folder_with
from ..formats.images import read_squares

_LISTS = "https://github.com/google-research/google-research/tree/master/federated_vision_datasets"
_PHOTOS = "https://github.com/cvdfoundation/google-landmark"
SOURCE = f"{_LISTS} (the lists, landmarks-user-160k.zip) and {_PHOTOS} (the photos)"
#: the folder of the lists, as they are packed; photos lie beside it
PACKED = "landmarks-user-160k"
TRAIN, TEST = "federated_train.csv", "test.csv"
CLASSES = 2028
#: pixels a side: the photos have many sizes, and ImageNet's networks take this one
SIDE = 224


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``federated_train.csv``, ``test.csv`` (or both in ``landmarks-user-160k/``) and the photos in ``argument``.

    A photo is ``a/b/c/abc....jpg`` after its id, there, in ``train/``, or beside ``landmarks-user-160k/``. Labels are
    the lists' numbers, a user is an author; those of test photos are not known.

    Chosen: 3 x 224 x 224, the shorter side resized to 224 (bilinear), then the middle; grey photos become RGB. All of
    them are 27.7 GB in the cache; one at a time is in memory while they are decoded.

    Raises:
        FedscopeError: a list without its columns or with a line that is not a photo and its class; photos that are
            missing or damaged.
    """
    place = f"--data gldv2:{argument}" if argument else "--data gldv2"
    files = [(name, f"{PACKED}/{name}") for name in (TRAIN, TEST)]
    root = real_path(folder_with("gldv2", argument, files, source=SOURCE))
    lists = [next(path for name in names if (path := root / name).is_file()) for names in files]
    train, test = (read_list(place, path, users=path.name == TRAIN) for path in lists)
    photos = find_photos(place, root, [*train.images, *test.images])
    of_train, of_test = photos[: len(train.images)], photos[len(train.images) :]
    names = tuple(sorted(set(train.users), key=_in_order))
    numbers = {name: number for number, name in enumerate(names)}
    users = np.array([numbers[name] for name in train.users])
    labels = {"y_train": np.array(train.labels), "y_test": np.array(test.labels)}

    def decode(room: Room) -> Decoded:
        x_train = read_squares(place, of_train, SIDE, partial(room, "x_train"))
        x_test = read_squares(place, of_test, SIDE, partial(room, "x_test"))
        unknown = np.full(len(test.labels), -1)
        arrays = {"x_train": x_train, "x_test": x_test, **labels, "classes": np.array(CLASSES)}
        return arrays, {"user": Groups(names, users, unknown)}

    return decoded_once("gldv2", root, [*lists, *photos], decode, task)


@dataclass(frozen=True)
class ListedPhotos:
    """The photos of a split, a line each.

    Attributes:
        images: their ids; labels: their classes; users: their authors, none where the list does not say it.
    """

    images: list[str]
    labels: list[int]
    users: list[str]


def read_list(place: str, path: Path, *, users: bool) -> ListedPhotos:
    """A list of photos, ``image_id`` and ``class``, of training photos ``user_id``, too.

    Raises:
        FedscopeError: columns that lack; a line without a photo's id, its author or a class from 0 to 2,027; no line.
    """
    wanted = ["user_id"] * users + ["image_id", "class"]
    made = ListedPhotos([], [], [])
    with explain_read_errors(path, "a list of photos"):
        lines = csv.DictReader(StringIO(read_text(path, "a list of photos", f"get it from {_LISTS}")))
        have = lines.fieldnames or []
        if lacking := [name for name in wanted if name not in have]:
            raise FedscopeError(
                f"{place}: {path} lacks the column {' and the column '.join(lacking)} (it has {list_few(have, 6)}); "
                f"get it from {_LISTS}"
            )
        for line in lines:
            user, image, label = (line.get(name) or "" for name in ("user_id", "image_id", "class"))
            what = _wrong(label, image, user if users else None)
            if what:
                raise FedscopeError(f"{place}: line {lines.line_num} of {path} has {what}; get it from {_LISTS}")
            made.images.append(image)
            made.labels.append(int(label))
            made.users.append(user)
    if not made.images:
        raise FedscopeError(f"{place}: {path} names no photo; get it from {_LISTS}")
    return made


def find_photos(place: str, root: Path, images: Sequence[str]) -> list[Path]:
    """Find the photos with these ids.

    Raises:
        FedscopeError: some are nowhere; names three.
    """
    roots = (root, root.parent) if root.name == PACKED else (root,)
    folders = [folder for base in roots for folder in (base, base / "train")]
    found = [_photo(folders, image) for image in images]
    if lacking := [image for image, path in zip(images, found, strict=True) if path is None]:
        raise FedscopeError(
            f"{place}: {len(lacking):,} of {len(images):,} photos are missing ({list_few(lacking, 3)}); looked for "
            f"a/b/c/abc....jpg in {', '.join(map(str, folders))}; get them from {_PHOTOS}"
        )
    return [path for path in found if path is not None]


def _photo(folders: Sequence[Path], image: str) -> Path | None:
    for folder in folders:
        if (path := folder / image[0] / image[1] / image[2] / f"{image}.jpg").is_file():
            return path
    return None


def _wrong(label: str, image: str, user: str | None) -> str:
    """Describe what is wrong with a line; "" where nothing is."""
    if not re.fullmatch("[0-9]{1,9}", label) or int(label) >= CLASSES:
        return f"the class {label!r}, and classes are 0 to {CLASSES - 1}"
    if not re.fullmatch("[0-9A-Za-z]{3,99}", image):  # never a path out of the folder
        return f"the photo {image!r}, and photos are named by letters and digits"
    return "no user_id" if user == "" else ""


def _in_order(user: str) -> tuple[bool, int, str]:
    """Users by number, then those with names."""
    return (False, len(user), user) if user.isdecimal() else (True, 0, user)


PROVIDES = load
