"""``cifar10``: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009: 50,000 + 10,000 colour images
of 32 x 32 pixels, 10 classes."""

from __future__ import annotations

from functools import partial

from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import Dataset
from ..formats.cache import Decoded, Room, decoded_once
from ..formats.cifar import read_batches
from ..formats.data_folder import Remote, locate

SOURCE = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
INSIDE = ("cifar-10-batches-py",)
REMOTE = (Remote(SOURCE, "c58f30108f718f92721af3b95e74349a", unpacked="cifar-10-batches-py"),)


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``data_batch_1`` to ``data_batch_5`` and ``test_batch`` of the Python version, unpacked, in ``argument``."""
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    files = locate("cifar10", argument, [(name,) for name in names], inside=INSIDE, source=SOURCE, fetched=True)

    def decode(room: Room) -> Decoded:
        x_train, (y_train,) = read_batches(files[:-1], (b"labels",), partial(room, "x_train"))
        x_test, (y_test,) = read_batches(files[-1:], (b"labels",), partial(room, "x_test"))
        return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}, {}

    return decoded_once("cifar10", files[0].parent, files, decode, task)


PROVIDES = load
