"""``fmnist``: Xiao et al., "Fashion-MNIST", 2017: clothes in 60,000 + 10,000 images of 28 x 28 pixels, 10 classes."""

from __future__ import annotations

from ...landscape.evaluation.known_tasks import CLASSIFICATION
from ...landscape.evaluation.tasks import Task
from ..dataset import Dataset
from ..layouts.idx import mnist_set

SOURCE = "https://github.com/zalandoresearch/fashion-mnist"


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz``, unpacked or not, in the folder ``argument``."""
    return mnist_set("fmnist", argument, SOURCE, ("FashionMNIST/raw", "fashion-mnist"), task)


PROVIDES = load
