"""IDX, the format of MNIST: a head of big-endian numbers, then the values."""

from __future__ import annotations

import gzip
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from ....checkpoints import FedscopeError, explain_read_errors, refuse_oversize, regular
from ....evaluation.tasks import Task
from ..dataset import ARRAYS, Dataset
from .cache import Decoded, Room, SplitRoom, decoded_once, in_memory
from .data_folder import Remote, locate

#: bytes of the head's first word: 0, 0, the type (8: unsigned bytes), the number of dimensions
_BYTES = 8
#: bytes that are read at a time
_BLOCK = 1 << 20


def read_idx(path: Path, room: SplitRoom = in_memory) -> np.ndarray:
    """Read the array of unsigned bytes in an IDX file, gzipped or not.

    Args:
        room: makes the array that the values are read into, a piece after the other.

    Raises:
        FedscopeError: truncated or longer than its head says, another type, not IDX.
    """
    what = "an IDX file of unsigned bytes"
    regular(path, what)
    with explain_read_errors(path, what), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        zero, kind, dimensions = (word := file.read(4))[:2], word[2], word[3]
        if zero != b"\0\0" or kind != _BYTES or not 1 <= dimensions <= 4:
            raise FedscopeError(f"{path} is not {what}: it begins with {word.hex()}; copy it again")
        shape = tuple(np.frombuffer(file.read(4 * dimensions), ">u4").tolist())
        declared = prod(shape)
        refuse_oversize(path, declared, path.stat().st_size)
        if len(shape) != dimensions:
            raise FedscopeError(f"{path} ends in its head; copy it again")
        made, found = room(shape), 0
        values = made.reshape(-1).data
        while count := file.readinto(values[found : found + _BLOCK]):
            found += count
        more = file.read(1)
    if more or found != declared:
        longer = "more" if more else f"only {found:,}"
        raise FedscopeError(f"{path} declares {declared:,} values, but has {longer}; copy it again")
    return made


#: the files of MNIST's layout: training images and labels, then test images and labels
STEMS = tuple(f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))


def remote_files(url: str, *sums: str) -> tuple[Remote, ...]:
    """Name where the four files of a set in MNIST's layout are published, with their md5."""
    return tuple(Remote(f"{url}{stem}.gz", md5) for stem, md5 in zip(STEMS, sums, strict=True))


def mnist_set(name: str, argument: str, source: str, inside: tuple[str, ...], task: Task) -> Dataset:
    """A set in MNIST's layout.

    Raises:
        FedscopeError: missing or damaged files.
    """
    files = locate(
        name,
        argument,
        [(f"{stem}.gz", stem, stem.replace("-idx", ".idx")) for stem in STEMS],
        inside=inside,
        source=source,
        fetched=True,
    )

    def decode(room: Room) -> Decoded:
        return {
            name: read_idx(path, partial(room, name) if name.startswith("x") else in_memory)
            for name, path in zip(ARRAYS, files, strict=True)
        }, {}

    return decoded_once(name, files[0].parent, files, decode, task)
