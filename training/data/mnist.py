"""``mnist``: LeCun, Cortes and Burges' handwritten digits, 60,000 + 10,000 images of 28 x 28 pixels, 10 classes."""

from __future__ import annotations

from ...landscape.evaluation.known_tasks import CLASSIFICATION
from ...landscape.evaluation.tasks import Task
from ..dataset import Dataset
from ..layouts.idx import mnist_set

SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz``, unpacked or not, in the folder ``argument``."""
    return mnist_set("mnist", argument, SOURCE, ("MNIST/raw",), task)


PROVIDES = load
