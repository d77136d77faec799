"""``folder:PATH``: images in ``PATH/train/<class>/*`` and ``PATH/test/<class>/*``, as torchvision's ImageFolder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ...checkpoints import FedscopeError, expanded, reading, refuse_oversize, regular
from ...landscape.evaluation.known_tasks import CLASSIFICATION
from ...landscape.evaluation.tasks import Task
from ..dataset import Dataset, standardised
from ..vision import torchvision_datasets


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """Every image as RGB; all must have one size. Classes are the sub-folders' names, alphabetically."""
    root = expanded(argument)
    for split in ("train", "test"):
        if not argument or not (root / split).is_dir():
            raise FedscopeError(
                f"--data folder:{argument}: there is no folder {root / split}; "
                "it needs train/<class>/ and test/<class>/ with images"
            )
    root = root.resolve()
    arrays: dict[str, np.ndarray] = {}
    classes: dict[str, list[str]] = {}
    for split in ("train", "test"):
        _refuse_circles(f"--data folder:{argument}", root / split)
        try:
            folder = torchvision_datasets().ImageFolder(str(root / split))
        except OSError as error:
            raise FedscopeError(f"--data folder:{argument}: {error}") from error
        classes[split] = folder.classes
        files = [regular(Path(path), "an image") for path, _ in folder.samples]
        arrays[f"x_{split}"] = _pixels(f"--data folder:{argument}", files)
        arrays[f"y_{split}"] = np.asarray(folder.targets, dtype=np.int64)
    if classes["train"] != classes["test"]:
        differing = sorted(set(classes["train"]) ^ set(classes["test"]))
        raise FedscopeError(f"--data folder:{argument}: train/ and test/ differ in the classes {', '.join(differing)}")
    return standardised(f"folder:{root}", str(root), arrays, task=task)


def _refuse_circles(place: str, root: Path) -> None:
    """Refuse links to a folder above them: ImageFolder follows links, and would walk in circles."""
    for folder, inside, _ in os.walk(root):
        for link in (Path(folder, name) for name in inside if Path(folder, name).is_symlink()):
            if link.parent.resolve().is_relative_to(link.resolve()):
                raise FedscopeError(f"{place}: {link} is a link to a folder that it lies in; remove it")


def _pixels(place: str, files: list[Path]) -> np.ndarray:
    """Images of one size as [N, H, W, 3] uint8; sizes are compared before anything is unpacked."""
    from PIL import Image

    stored = sum(_size(path) for path in files)
    x: np.ndarray | None = None
    for i, path in enumerate(files):
        with reading(path, "an image"):
            try:
                opened = Image.open(path)
            except Image.DecompressionBombError as error:
                raise FedscopeError(f"{place}: {path} declares too many pixels ({error}); resize it") from error
            with opened as image:
                width, height = image.size
                if x is None:
                    refuse_oversize(place, len(files) * height * width * 3, stored)
                    x = np.empty((len(files), height, width, 3), np.uint8)
                if (height, width) != x.shape[1:3]:
                    raise FedscopeError(
                        f"{place}: {path} has {width} x {height} pixels, the first image {x.shape[2]} x {x.shape[1]}; "
                        "resize them to one size"
                    )
                x[i] = np.asarray(image.convert("RGB"), dtype=np.uint8)
    assert x is not None, "ImageFolder has refused classes without images"
    return x


def _size(path: Path) -> int:
    with reading(path, "an image"):
        return path.stat().st_size


PROVIDES = load
