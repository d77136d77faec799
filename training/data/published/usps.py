"""``usps``: Hull, "A Database for Handwritten Text Recognition Research", 1994: 7,291 + 2,007 digits, 16 x 16."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ....checkpoints import FedscopeError, explain_read_errors, regular
from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..dataset import Dataset
from ..formats.cache import Decoded, Room, decoded_once
from ..formats.data_folder import Remote, locate

SOURCE = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html#usps"
INSIDE = ("USPS",)
_FILES = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass/"
REMOTE = (
    Remote(f"{_FILES}usps.bz2", "ec16c51db3855ca6c91edd34d0e9b197"),
    Remote(f"{_FILES}usps.t.bz2", "8ea070ee2aca1ac39742fdd1ef5ed118"),
)


def load(argument: str, task: Task = CLASSIFICATION) -> Dataset:
    """``usps.bz2`` and ``usps.t.bz2`` in LIBSVM's format, packed or not, in the folder ``argument``."""
    names = [("usps.bz2", "usps"), ("usps.t.bz2", "usps.t")]
    files = locate("usps", argument, names, inside=INSIDE, source=SOURCE, fetched=True)

    def decode(room: Room) -> Decoded:
        (x_train, y_train), (x_test, y_test) = map(read_libsvm, files)
        return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}, {}

    return decoded_once("usps", files[0].parent, files, decode, task)


def read_libsvm(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The images [N, 16, 16], uint8, and digits [N]: pixels are stored as -1..1, digits as 1..10.

    Raises:
        FedscopeError: a damaged file, values out of range.
    """
    from sklearn.datasets import load_svmlight_file

    what = "a LIBSVM file of USPS"
    regular(path, what)
    with explain_read_errors(path, what):
        rows, digits = load_svmlight_file(str(path), n_features=256, zero_based=False)
        x, y = rows.toarray(), np.asarray(digits)
    if np.abs(x).max(initial=0) > 1 or not set(np.unique(y)) <= set(range(1, 11)):
        raise FedscopeError(f"{path} has pixels beyond -1..1 or labels beyond 1..10; those of USPS are within")
    return np.round((x.reshape(-1, 16, 16) + 1) * 127.5).astype(np.uint8), y.astype(np.int64) - 1


PROVIDES = load
