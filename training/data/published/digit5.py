"""``digit5``: digits in five domains (MNIST, SVHN, USPS, SynthDigits, MNIST-M), as distributed by Li et al.,
"FedBN", ICLR 2021: feature skew."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from ....checkpoints import FedscopeError
from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import SPLITS, Dataset, Groups
from ..formats.cache import Decoded, Room, decoded_once, put_together
from ..formats.data_folder import locate
from ..formats.images import resize
from ..formats.pickles import array_of, read_pickle

SOURCE = "https://github.com/med-air/FedBN"
DOMAINS = ("MNIST", "SVHN", "USPS", "SynthDigits", "MNIST_M")
#: pixels a side: of the smaller ones but USPS
SIDE = 28


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``<domain>/partitions/train_part0.pkl`` to ``train_part9.pkl`` and ``<domain>/test.pkl`` in ``argument``.

    All ten parts are taken; images are resized to 28 x 28 pixels (bilinear), grey ones repeated over three channels.
    """
    names = [f"{domain}/{part}" for domain in DOMAINS for part in (*_PARTS, "test.pkl")]
    files = locate("digit5", argument, [(name,) for name in names], inside=("digits",), source=SOURCE)

    def decode(room: Room) -> Decoded:
        arrays, domains = {}, []
        each = len(_PARTS) + 1
        for split in SPLITS:
            some = [i for i in range(len(files)) if (i % each == each - 1) == (split == "test")]
            labels = [read_part(files[i])[1] for i in some]  # files are read twice, so that one is in memory at a time
            counts = list(map(len, labels))
            images = (_alike(read_part(files[i])[0]) for i in some)
            arrays[f"x_{split}"] = put_together(partial(room, f"x_{split}"), (SIDE, SIDE, 3), counts, images)
            arrays[f"y_{split}"] = np.concatenate(labels)
            domains.append(np.repeat([i // each for i in some], counts))
        return arrays, {"domain": Groups(DOMAINS, *domains)}

    return decoded_once("digit5", files[0].parents[2], files, decode, task)


_PARTS = tuple(f"partitions/train_part{i}.pkl" for i in range(10))


def read_part(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The images [N, h, w] or [N, h, w, c], uint8, and digits [N] of one file.

    Raises:
        FedscopeError: a damaged file, one that is not images and labels.
    """
    held = read_pickle(path)
    if not isinstance(held, tuple | list) or len(held) != 2:
        raise FedscopeError(f"{path} is not a pair of images and labels; copy it again")
    x, y = array_of(path, held[0], "images"), array_of(path, held[1], "labels")
    if x.dtype != np.uint8 or x.ndim not in (3, 4) or (x.ndim == 4 and x.shape[3] not in (1, 3)) or len(x) != y.size:
        raise FedscopeError(
            f"{path} has images {list(x.shape)} of {x.dtype} and {y.size} labels; Digit Five's are [N, h, w] or "
            "[N, h, w, 3] of uint8, with N labels"
        )
    return x, y.ravel().astype(np.int64)


def _alike(x: np.ndarray) -> np.ndarray:
    """Images as [N, 28, 28, 3]."""
    x = x if x.ndim == 4 else x[..., None]
    return resize(x.repeat(3, axis=3) if x.shape[3] == 1 else x, SIDE)


PROVIDES = load
