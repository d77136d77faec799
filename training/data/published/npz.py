"""``npz:PATH``: your own arrays in one NumPy file."""

from __future__ import annotations

import warnings
from dataclasses import replace

from ....checkpoints import FedscopeError, FedscopeWarning, expand_home, nearest, npz_names, read_npz, real_path
from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..arrays import counts_labels, is_tokens
from ..custom import as_they_are
from ..dataset import ARRAYS, Dataset
from ..standardize import standardize


def load(argument: str, task: Task = CLASSIFICATION, standardise: bool | None = None) -> Dataset:
    """``x_train, y_train, x_test, y_test``, of the shapes and types of
    :func:`~fedscope.training.data.standardize.standardize`.

    A file of ``x_test, y_test`` alone is taken as it is, because there are no training samples to standardise it by.

    Args:
        standardise: False takes any file as it is; True refuses one without training samples; by default a warning says
            that it is taken as it is.
    """
    path = expand_home(argument)
    if not argument or not path.exists():
        beside = [one.name for one in path.parent.glob("*.npz")] if argument else []
        near = nearest(path.name, beside) or "; give the path of an .npz"
        raise FedscopeError(f"--data npz:{argument}: there is no such file{near}")
    path = real_path(path)
    arrays = read_npz(path, only=(*ARRAYS, "classes"))
    if "classes" in arrays and (arrays["classes"].size != 1 or arrays["classes"].dtype.kind not in "iu"):
        del arrays["classes"]  # their names, say
    if "x_train" in arrays or "y_train" in arrays or "x_test" not in arrays:
        others = dict.fromkeys(name for name in npz_names(path) if name not in arrays)
        scale = standardise is not False
        made: Dataset = standardize(f"npz:{path}", str(path), arrays, others=tuple(others), task=task, scale=scale)
        return replace(made, classes_seen=counts_labels(task, (made.y_train, made.y_test), arrays.get("classes")))
    if standardise:
        raise FedscopeError(
            f"npz:{path} has no training samples to standardise by; add x_train and y_train to the file, or give the "
            "samples as the network takes them (--no-standardise, standardise=False)"
        )
    if standardise is None and not is_tokens(arrays["x_test"], task):
        warnings.warn(
            f"npz:{path} has no training samples to standardise by: x_test is taken as it is, so give it as the "
            "network takes it",
            FedscopeWarning,
            stacklevel=2,
        )
    return as_they_are(f"npz:{path}", str(path), arrays, inputs=False, task=task)


PROVIDES = load
