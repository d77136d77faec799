"""``mnist``: LeCun, Cortes and Burges' handwritten digits, 60,000 + 10,000 images of 28 x 28 pixels, 10 classes."""

from __future__ import annotations

from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import Dataset
from ..formats.idx import mnist_set, remote_files

SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"
INSIDE = ("MNIST/raw",)
REMOTE = remote_files(
    SOURCE,
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "d53e105ee54ea40749a09fcbcd1e9432",
    "9fb629c4189551a2d022fa330f9573f3",
    "ec29112dd5afa0611ce80d1b7f02629c",
)


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz``, unpacked or not, in the folder ``argument``."""
    return mnist_set("mnist", argument, SOURCE, INSIDE, task)


PROVIDES = load
