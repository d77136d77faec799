"""Data sets by name: the embedded digits, one's own arrays, folders of images."""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

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


_SCHEMAS = (
    ("nms", "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
    ("qnms", "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"),
)


def torchvision_datasets() -> Any:
    """``torchvision.datasets``.

    torchvision's compiled part does not load beside a torch of another build, and importing its Python parts then
    fails with ``operator torchvision::nms does not exist``. We use the Python parts only, so the missing operators'
    schemas are declared first.

    Raises:
        FedscopeError: torchvision cannot be imported at all.
    """
    import torch

    try:
        return import_module("torchvision.datasets")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise FedscopeError(f"torchvision could not be imported: {error}") from error
    except ImportError as error:
        raise FedscopeError(
            f"torchvision could not be imported ({error}); install it: pip install torchvision"
        ) from error
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name, schema in _SCHEMAS:
        if not hasattr(torch.ops.torchvision, name):
            library.define(schema)  # type: ignore[no-untyped-call]
    # A half-imported torchvision stays in sys.modules and would be taken for a whole one.
    import sys

    for name in [name for name in sys.modules if name == "torchvision" or name.startswith("torchvision.")]:
        del sys.modules[name]
    try:
        return import_module("torchvision.datasets")
    except (ImportError, RuntimeError) as error:
        raise FedscopeError(
            f"torchvision could not be imported beside torch {torch.__version__}: {error}; "
            "install the torchvision that belongs to it"
        ) from error


PROVIDES = {"digits": digits, "npz": npz, "folder": folder}
