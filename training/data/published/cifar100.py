"""``cifar100``: Krizhevsky, 2009: 50,000 + 10,000 colour images of 32 x 32 pixels, 100 classes in 20 superclasses."""

from __future__ import annotations

from functools import partial

import numpy as np

from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import Dataset, Groups
from ..formats.cache import Decoded, Room, decoded_once
from ..formats.cifar import read_batches
from ..formats.data_folder import Remote, locate

SOURCE = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
INSIDE = ("cifar-100-python",)
REMOTE = (Remote(SOURCE, "eb9058c3a382ffc7106e4002c42a8d85", unpacked="cifar-100-python"),)


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``train`` and ``test`` of the Python version, unpacked, in ``argument``; the fine labels are learnt."""
    files = locate("cifar100", argument, [("train",), ("test",)], inside=INSIDE, source=SOURCE, fetched=True)

    def decode(room: Room) -> Decoded:
        arrays, coarse = {}, []
        labels = (b"fine_labels", b"coarse_labels")
        for split, path in zip(("train", "test"), files, strict=True):
            own = partial(room, f"x_{split}")
            arrays[f"x_{split}"], (arrays[f"y_{split}"], above) = read_batches([path], labels, own)
            coarse.append(above.astype(np.int64))
        names = tuple(str(number) for number in range(max(int(above.max()) for above in coarse) + 1))
        return arrays, {"superclass": Groups(names, *coarse)}

    return decoded_once("cifar100", files[0].parent, files, decode, task)


PROVIDES = load
