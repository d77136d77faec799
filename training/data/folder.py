"""``folder:PATH``: images in ``PATH/train/<class>/*`` and ``PATH/test/<class>/*``, as torchvision's ImageFolder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...checkpoints import FedscopeError
from ..dataset import Dataset, standardised
from ..vision import torchvision_datasets


def load(argument: str) -> Dataset:
    """Every image as RGB; all must have one size. Classes are the sub-folders' names, alphabetically."""
    root = Path(argument).expanduser()
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
        try:
            folder = torchvision_datasets().ImageFolder(str(root / split))
        except (FileNotFoundError, OSError) as error:
            raise FedscopeError(f"--data folder:{argument}: {error}") from error
        classes[split] = folder.classes
        x: np.ndarray | None = None
        for i, (path, _) in enumerate(folder.samples):
            image = np.asarray(folder.loader(path), dtype=np.uint8)
            if x is None:
                x = np.empty((len(folder.samples), *image.shape), np.uint8)
            if image.shape != x.shape[1:]:
                raise FedscopeError(
                    f"--data folder:{argument}: {path} has {image.shape[1]} x {image.shape[0]} pixels, the first image "
                    f"{x.shape[2]} x {x.shape[1]}; resize them to one size"
                )
            x[i] = image
        assert x is not None
        arrays[f"x_{split}"], arrays[f"y_{split}"] = x, np.asarray(folder.targets, dtype=np.int64)
    if classes["train"] != classes["test"]:
        differing = sorted(set(classes["train"]) ^ set(classes["test"]))
        raise FedscopeError(f"--data folder:{argument}: train/ and test/ differ in the classes {', '.join(differing)}")
    return standardised(f"folder:{root}", str(root), arrays)


PROVIDES = load
