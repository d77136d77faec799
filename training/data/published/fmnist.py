"""``fmnist``: Xiao et al., "Fashion-MNIST", 2017: clothes in 60,000 + 10,000 images of 28 x 28 pixels, 10 classes."""

from __future__ import annotations

from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import Dataset
from ..formats.idx import mnist_set, remote_files

SOURCE = "https://github.com/zalandoresearch/fashion-mnist"
INSIDE = ("FashionMNIST/raw", "fashion-mnist")
REMOTE = remote_files(
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
)


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz``, unpacked or not, in the folder ``argument``."""
    return mnist_set("fmnist", argument, SOURCE, INSIDE, task)


PROVIDES = load
