"""Images in folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...checkpoints import FedscopeError, reading, refuse_oversize
from .cache import SplitRoom, in_memory

#: what an image's name ends with
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp")


def read_images(place: str, files: Sequence[Path], room: SplitRoom = in_memory) -> np.ndarray:
    """Images of one size as [N, H, W, 3] uint8; sizes are compared before anything is unpacked.

    Args:
        place: for sentences: ``--data folder:PATH``.
        room: makes the array of a shape that is returned; by default in memory.

    Raises:
        FedscopeError: no image, a damaged one, images of two sizes.
    """
    if not files:
        raise FedscopeError(f"{place}: there are no images")
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
                    x = room((len(files), height, width, 3))
                if (height, width) != x.shape[1:3]:
                    raise FedscopeError(
                        f"{place}: {path} has {width} x {height} pixels, the first image {x.shape[2]} x {x.shape[1]}; "
                        "resize them to one size"
                    )
                x[i] = np.asarray(image.convert("RGB"), dtype=np.uint8)
    assert x is not None, "there is an image"
    return x


def _size(path: Path) -> int:
    with reading(path, "an image"):
        return path.stat().st_size


def subfolders(folder: Path) -> list[Path]:
    """The folders in a folder, by name."""
    return sorted(path for path in folder.iterdir() if path.is_dir())


def images_in(folder: Path) -> list[Path]:
    """The images in a folder, by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS and path.is_file())


def resized(x: np.ndarray, side: int) -> np.ndarray:
    """Images [N, h, w, 3] as [N, side, side, 3], bilinear; those of that size as they are."""
    from PIL import Image

    if x.shape[1:3] == (side, side):
        return x
    made = np.empty((len(x), side, side, 3), np.uint8)
    for i, pixels in enumerate(x):
        made[i] = np.asarray(Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR))
    return made
