"""``folder:PATH``: images in ``PATH/train/<class>/*`` and ``PATH/test/<class>/*``, as torchvision's ImageFolder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ....checkpoints import FedscopeError, expand_home, real_path, regular
from ....checkpoints.io.errors import list_few
from ....checkpoints.io.warn_user import warn_user
from ....distributed.torchvision_import import torchvision_part
from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import Dataset
from ..formats.cache import Decoded, Room, decoded_once
from ..formats.images import is_hidden, read_images
from ..recorded_splits import are_recorded


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """Every image as RGB; all must have one size. Classes are the sub-folders' names, alphabetically.

    Hidden folders and files are left out. Names that are numbers in another order are told.
    """
    root = expand_home(argument)
    for split in ("train", "test"):
        if not argument or not (root / split).is_dir():
            raise FedscopeError(
                f"--data folder:{argument}: there is no folder {root / split}; "
                "it needs train/<class>/ and test/<class>/ with images"
            )
    root = real_path(root)
    labels: dict[str, np.ndarray] = {}
    files: dict[str, list[Path]] = {}
    classes: dict[str, list[str]] = {}
    for split in ("train", "test"):
        _refuse_circles(f"--data folder:{argument}", root / split)
        try:
            classes[split], samples = _classes_and_samples(root / split)
        except OSError as error:
            raise FedscopeError(f"--data folder:{argument}: {error}") from error
        files[split] = [regular(path, "an image") for path, _ in samples]
        labels[f"y_{split}"] = np.asarray([label for _, label in samples], dtype=np.int64)
    if classes["train"] != classes["test"]:
        differing = sorted(set(classes["train"]) ^ set(classes["test"]))
        raise FedscopeError(f"--data folder:{argument}: train/ and test/ differ in the classes {list_few(differing)}")

    if not are_recorded():
        _say_other_order(f"folder:{argument}", classes["train"])

    def decode(room: Room) -> Decoded:
        x = {
            f"x_{split}": read_images(f"--data folder:{argument}", some, partial(room, f"x_{split}"))
            for split, some in files.items()
        }
        return {**x, **labels}, {}

    return decoded_once("folder", root, [*files["train"], *files["test"]], decode, task)


def _classes_and_samples(root: Path) -> tuple[list[str], list[tuple[Path, int]]]:
    """Classes, and each image with its class's index, in the order of torchvision's ImageFolder.

    Raises:
        FileNotFoundError: no folder of a class, or one without images.
    """
    datasets = torchvision_part("datasets")
    classes = [name for name in datasets.folder.find_classes(str(root))[0] if not is_hidden(Path(name))]
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {root}.")
    numbers = {name: label for label, name in enumerate(classes)}
    try:
        made = datasets.folder.make_dataset(str(root), numbers, is_valid_file=partial(_is_shown, root))
    except FileNotFoundError as error:
        endings = ", ".join(datasets.folder.IMG_EXTENSIONS)
        raise FileNotFoundError(f"{str(error).strip()} Supported extensions are: {endings}") from error
    return classes, [(Path(path), label) for path, label in made]


def _is_shown(root: Path, path: str) -> bool:
    """Check for an image that neither is hidden nor lies in a hidden folder."""
    inside = Path(path).relative_to(root)
    hidden = any(is_hidden(one) for one in (inside, *inside.parents[:-1]))
    return not hidden and bool(torchvision_part("datasets").folder.is_image_file(path))


def _say_other_order(name: str, classes: Sequence[str]) -> None:
    """Warn of classes that are named by numbers, and whose labels are others: "10" comes before "2"."""
    if not all(one.isascii() and one.isdigit() for one in classes):
        return
    other = [(label, one) for label, one in enumerate(classes) if sorted(map(int, classes))[label] != int(one)]
    if other:
        label, one = other[0]
        digits = max(map(len, classes))
        warn_user(
            f"{name}: classes are numbered in alphabetical order, so the folder {one} is label {label}; where labels "
            f"shall follow the numbers, give all names {digits} digits, as {min(classes, key=int).zfill(digits)}"
        )


def _refuse_circles(place: str, root: Path) -> None:
    """Refuse links to a folder above them: ImageFolder follows links, and would walk in circles."""
    for folder, inside, _ in os.walk(root):
        for link in (Path(folder, name) for name in inside if Path(folder, name).is_symlink()):
            if real_path(link.parent).is_relative_to(real_path(link)):
                raise FedscopeError(f"{place}: {link} is a link to a folder that contains it; remove it")


PROVIDES = load
