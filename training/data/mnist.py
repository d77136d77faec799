"""``mnist``: LeCun, Cortes and Burges' handwritten digits, 60,000 + 10,000 images of 28 x 28 pixels, 10 classes."""

from __future__ import annotations

from ...landscape.evaluation.known_tasks import CLASSIFICATION
from ...landscape.evaluation.tasks import Task
from ..dataset import Dataset, standardised
from ..layouts.idx import mnist_arrays

SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz``, unpacked or not, in the folder ``argument``."""
    folder, arrays = mnist_arrays("mnist", argument, SOURCE, ("MNIST/raw",))
    return standardised(f"mnist:{folder}", str(folder), arrays, task=task)


PROVIDES = load
