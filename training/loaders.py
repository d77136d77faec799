"""Data sets by name: the embedded digits, one's own arrays, folders of images."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np

from ..checkpoints import (
    FedscopeError,
    FedscopeWarning,
    expanded,
    npz_names,
    read_npz,
    reading,
    refuse_oversize,
    regular,
)
from ..landscape.evaluation.known_tasks import CLASSIFICATION
from ..landscape.evaluation.tasks import Task
from .dataset import ARRAYS, Dataset, standardised
from .own_data import as_they_are


def digits(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """The embedded default: scikit-learn's 1,797 real handwritten digits, 8 x 8 pixels (UCI Optical Recognition).

    1,437 training and 360 test samples, stratified, always the same ones; pixels 0..16 scaled to [0, 1].

    >>> data = digits("")
    >>> data.x_train.shape, data.x_test.shape, data.classes
    ((1437, 1, 8, 8), (360, 1, 8, 8), 10)
    """
    if argument:
        raise FedscopeError(f"--data digits:{argument} takes no argument; give --data digits")
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    x = (digits.images / 16).astype(np.float32)
    x_train, x_test, y_train, y_test = train_test_split(
        x, digits.target, test_size=360, stratify=digits.target, random_state=0
    )
    arrays = {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}
    return standardised("digits", "", arrays, task=task)


def npz(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``npz:PATH``: the user's own arrays in one NumPy file.

    ``x_train, y_train, x_test, y_test``; see :func:`fedscope.training.dataset.standardised` for shapes and types.

    A file of ``x_test, y_test`` alone is taken as it is, because there are no training samples to standardise it by.
    """
    path = expanded(argument)
    if not argument or not path.exists():
        raise FedscopeError(f"--data npz:{argument}: there is no such file; give the path of an .npz")
    path = path.resolve()
    arrays = read_npz(path, only=(*ARRAYS, "classes"))
    if "classes" in arrays and (arrays["classes"].size != 1 or arrays["classes"].dtype.kind not in "iu"):
        del arrays["classes"]  # their names, say
    if "x_train" in arrays or "y_train" in arrays or "x_test" not in arrays:
        others = dict.fromkeys(name for name in npz_names(path) if name not in arrays)
        return standardised(f"npz:{path}", str(path), arrays, others=tuple(others), task=task)
    warnings.warn(
        f"npz:{path} has no training samples to standardise by: x_test is taken as it is, so give it as the network "
        "takes it",
        FedscopeWarning,
        stacklevel=2,
    )
    return as_they_are(f"npz:{path}", str(path), arrays, inputs=False, task=task)


def folder(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``folder:PATH``: images in ``PATH/train/<class>/*`` and ``PATH/test/<class>/*``, as torchvision's ImageFolder.

    Every image as RGB; all must have one size. Classes are the sub-folders' names, alphabetically."""
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
        images = _images(f"--data folder:{argument}", root / split)
        classes[split] = list(images)
        files = [regular(path, "an image") for paths in images.values() for path in paths]
        arrays[f"x_{split}"] = _pixels(f"--data folder:{argument}", files)
        arrays[f"y_{split}"] = np.repeat(np.arange(len(images)), [len(paths) for paths in images.values()])
    if classes["train"] != classes["test"]:
        differing = sorted(set(classes["train"]) ^ set(classes["test"]))
        raise FedscopeError(f"--data folder:{argument}: train/ and test/ differ in the classes {', '.join(differing)}")
    return standardised(f"folder:{root}", str(root), arrays, task=task)


#: what torchvision's ImageFolder takes for an image
_IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def _images(place: str, root: Path) -> dict[str, list[Path]]:
    """The images of each class, classes and images in the order of torchvision's ImageFolder.

    torchvision itself is not imported: beside a torch of another build it fails.
    """
    _refuse_circles(place, root)
    try:
        names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    except OSError as error:
        raise FedscopeError(f"{place}: {error}") from error
    if not names:
        raise FedscopeError(f"{place}: Couldn't find any class folder in {root}.")
    found: dict[str, list[Path]] = {name: [] for name in names}
    for name, images in found.items():
        for folder, _, files in sorted(os.walk(root / name, followlinks=True)):
            images += [Path(folder, file) for file in sorted(files) if file.lower().endswith(_IMAGES)]
    if empty := [name for name, images in found.items() if not images]:
        raise FedscopeError(
            f"{place}: Found no valid file for the classes {', '.join(empty)}. Supported extensions are: "
            f"{', '.join(_IMAGES)}"
        )
    return found


def _refuse_circles(place: str, root: Path) -> None:
    """Refuse links to a folder above them: links are followed, and this one would be walked in circles."""
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
    assert x is not None, "classes without images have been refused"
    return x


def _size(path: Path) -> int:
    with reading(path, "an image"):
        return path.stat().st_size


PROVIDES = {"digits": digits, "npz": npz, "folder": folder}
