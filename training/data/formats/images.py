"""Images in folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ....checkpoints import FedscopeError, explain_read_errors, refuse_oversize, regular
from .cache import SplitRoom, in_memory

if TYPE_CHECKING:
    from PIL import Image

#: what an image's name ends with
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp")


def read_images(place: str, files: Sequence[Path], room: SplitRoom = in_memory) -> np.ndarray:
    """Images of one size as [N, H, W, 3] uint8; sizes are compared before anything is unpacked.

    Args:
        place: for sentences: ``--data folder:PATH``.
        room: makes the array of a shape that is returned; by default in memory.

    Raises:
        FedscopeError: no image, a damaged one, images of two sizes; numbers that bytes do not hold.
    """
    if not files:
        raise FedscopeError(f"{place}: there are no images")
    stored = sum(_size(path) for path in files)
    x: np.ndarray | None = None
    for i, path in enumerate(files):
        with open_image(place, path) as image:
            width, height = image.size
            if x is None:
                refuse_oversize(place, len(files) * height * width * 3, stored)
                x = room((len(files), height, width, 3))
            if (height, width) != x.shape[1:3]:
                raise FedscopeError(
                    f"{place}: {path} has {width} x {height} pixels, the first image {x.shape[2]} x {x.shape[1]}; "
                    "resize them to one size"
                )
            x[i] = np.asarray(in_bytes(place, path, image), dtype=np.uint8)
    assert x is not None, "there is an image"
    return x


def read_squares(place: str, files: Sequence[Path], side: int, room: SplitRoom) -> np.ndarray:
    """Images of any sizes as [N, side, side, 3] uint8, by :func:`centre_square`; one is in memory at a time.

    Args:
        place, room: see :func:`read_images`.

    Raises:
        FedscopeError: no image, a damaged one; numbers that bytes do not hold.
    """
    if not files:
        raise FedscopeError(f"{place}: there are no images")
    x = room((len(files), side, side, 3))
    for i, path in enumerate(files):
        with open_image(place, path) as image:
            refuse_oversize(path, image.width * image.height * 3, _size(path))
            x[i] = centre_square(in_bytes(place, path, image), side)
    return x


@contextmanager
def open_image(place: str, path: Path) -> Iterator[Image.Image]:
    """An image whose size is known; its pixels are unpacked when they are asked for.

    Raises:
        FedscopeError: a damaged file, something else, more pixels than anyone means.
    """
    from PIL import Image

    with explain_read_errors(path, "an image"):
        try:
            held = Image.open(regular(path, "an image"))
        except Image.DecompressionBombError as error:
            raise FedscopeError(f"{place}: {path} declares too many pixels ({error}); resize it") from error
        with held as image:
            yield image


def in_bytes(place: str, path: Path, image: Image.Image) -> Image.Image:
    """Return an image in red, green and blue of 8 bits, as torchvision's ImageFolder has it: grey ones in all three,
    palettes by their colours, without what is said of transparency.

    One channel of 16 or 32 bits (X-rays, microscopes) is taken where its numbers are bytes all the same. Which of them
    would be black and which white is not said in the file, and Pillow makes all above 255 white.

    Raises:
        FedscopeError: numbers that bytes do not hold.
    """
    from PIL import Image

    if image.mode != "F" and not image.mode.startswith("I"):
        return image.convert("RGB")
    values = np.asarray(image)
    if not ((values >= 0) & (values <= 255) & (values == np.floor(values))).all():
        raise FedscopeError(
            f"{place}: {path} has numbers from {values.min():g} to {values.max():g}, and what is read of images are "
            "bytes, whole numbers from 0 to 255; scale the numbers of all images to these and save them with 8 bits, "
            "or give them as arrays (--data npz:FILE)"
        )
    return Image.fromarray(values.astype(np.uint8)).convert("RGB")


def centre_square(image: Image.Image, side: int) -> np.ndarray:
    """Return the middle of an image whose shorter side is made ``side`` pixels long, bilinear: [side, side, 3] uint8.

    What torchvision's ``Resize(side)`` and ``CenterCrop(side)`` make of it, without the pixels that are cut off.
    """
    from PIL.Image import Resampling

    whole = image.size
    scaled = [side * length // min(whole) for length in whole]
    left, top = (round((length - side) / 2) for length in scaled)
    across, down = (before / after for before, after in zip(whole, scaled, strict=True))
    box = (left * across, top * down, (left + side) * across, (top + side) * down)
    return np.asarray(image.convert("RGB").resize((side, side), Resampling.BILINEAR, box=box))


def _size(path: Path) -> int:
    with explain_read_errors(path, "an image"):
        return path.stat().st_size


def subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder, by name."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not is_hidden(path))


def images_in(folder: Path) -> list[Path]:
    """Return the images in a folder, by name."""
    found = (path for path in folder.iterdir() if path.suffix.lower() in ENDINGS and path.is_file())
    return sorted(path for path in found if not is_hidden(path))


def is_hidden(path: Path) -> bool:
    """Check for what programs put beside images: ``.ipynb_checkpoints``, and ``._cat.png`` of a Mac's archives.

    >>> is_hidden(Path("train/.ipynb_checkpoints")), is_hidden(Path("train/cat"))
    (True, False)
    """
    return path.name.startswith(".")


def resize(x: np.ndarray, side: int) -> np.ndarray:
    """Images [N, h, w, 3] as [N, side, side, 3], bilinear; those of that size as they are."""
    from PIL import Image

    if x.shape[1:3] == (side, side):
        return x
    made = np.empty((len(x), side, side, 3), np.uint8)
    for i, pixels in enumerate(x):
        made[i] = np.asarray(Image.fromarray(pixels).resize((side, side), Image.Resampling.BILINEAR))
    return made
