"""``folder:PATH``: images in ``PATH/train/<class>/*`` and ``PATH/test/<class>/*``, as torchvision's ImageFolder."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np

from ....checkpoints import FedscopeError, expand_home, real_path, regular
from ....checkpoints.io.errors import list_few
from ....distributed.torchvision_import import torchvision_part
from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import Dataset
from ..formats.cache import Decoded, Room, decoded_once
from ..formats.images import read_images


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """Every image as RGB; all must have one size. Classes are the sub-folders' names, alphabetically."""
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
            folder = torchvision_part("datasets").ImageFolder(str(root / split))
        except OSError as error:
            raise FedscopeError(f"--data folder:{argument}: {error}") from error
        classes[split] = folder.classes
        files[split] = [regular(Path(path), "an image") for path, _ in folder.samples]
        labels[f"y_{split}"] = np.asarray(folder.targets, dtype=np.int64)
    if classes["train"] != classes["test"]:
        differing = sorted(set(classes["train"]) ^ set(classes["test"]))
        raise FedscopeError(f"--data folder:{argument}: train/ and test/ differ in the classes {list_few(differing)}")

    def decode(room: Room) -> Decoded:
        x = {
            f"x_{split}": read_images(f"--data folder:{argument}", some, partial(room, f"x_{split}"))
            for split, some in files.items()
        }
        return {**x, **labels}, {}

    return decoded_once("folder", root, [*files["train"], *files["test"]], decode, task)


def _refuse_circles(place: str, root: Path) -> None:
    """Refuse links to a folder above them: ImageFolder follows links, and would walk in circles."""
    for folder, inside, _ in os.walk(root):
        for link in (Path(folder, name) for name in inside if Path(folder, name).is_symlink()):
            if real_path(link.parent).is_relative_to(real_path(link)):
                raise FedscopeError(f"{place}: {link} is a link to a folder that contains it; remove it")


PROVIDES = load
