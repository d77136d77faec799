"""``npz:PATH``: your own arrays in one NumPy file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....checkpoints import FedscopeError, expand_home, nearest, npz_names, read_npz, real_path
from ....checkpoints.io.warn_user import warn_user
from ....checkpoints.recorder.coerce_tokens import LABELS, MASK, PADDING, TOKENS, coerce_tokens, next_of, padding_of
from ....evaluation.standard_tasks import CLASSIFICATION
from ....evaluation.tasks import Task
from ..arrays import counts_labels, is_tokens, may_be_tokens
from ..custom import as_they_are
from ..dataset import ARRAYS, SPLITS, Dataset
from ..standardize import standardize

#: a file's names for samples that are not split
SHORT = ("x", "y")


def load(argument: str, task: Task = CLASSIFICATION, standardise: bool | None = None) -> Dataset:
    """``x_train, y_train, x_test, y_test``, of the shapes and types of
    :func:`~fedscope.training.data.standardize.standardize`.

    A file of ``x_test, y_test`` alone, or of ``x`` and ``y``, is taken as it is, because there are no training samples
    to standardise it by. Of tokens (``x`` [N, L] of whole numbers) whose next ones are learnt (``sequences``) y may be
    left out; ``input_ids``, ``attention_mask`` and ``labels`` are read, too.

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
    arrays = read_npz(path, only=(*ARRAYS, "classes", PADDING, *SHORT, TOKENS, MASK, *LABELS))
    if not _says_padding(arrays, task):
        arrays.pop(PADDING, None)
    arrays = _with_targets(f"npz:{path}", arrays, task)
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
    x = arrays["x_test"]
    if standardise is None and not (is_tokens(x, task) or may_be_tokens(x, task)):
        warn_user(
            f"npz:{path} has no training samples to standardise by: x_test is taken as it is, so give it as the "
            "network takes it"
        )
    return as_they_are(f"npz:{path}", str(path), arrays, inputs=False, task=task)


def has_test_samples_alone(argument: str) -> bool:
    """Check whether a file has samples, but none to train on, without reading them. What has none at all, or is none,
    :func:`load` refuses."""
    path = expand_home(argument)
    if not path.is_file():
        return False
    names = set(npz_names(path))
    return names.isdisjoint({"x_train", "y_train"}) and not names.isdisjoint({"x_test", *SHORT, TOKENS})


def _says_padding(arrays: dict[str, np.ndarray], task: Task) -> bool:
    """Check whether a file says which tokens are padding, as a run keeps it of its data: each once, in order. Of other
    samples, and beside a mask, the name is another thing's."""
    said = arrays.get(PADDING)
    samples = [arrays[name] for name in ("x_train", "x_test") if name in arrays]
    are_tokens = bool(samples) and all(is_tokens(x, task) or may_be_tokens(x, task) for x in samples)
    return are_tokens and said is not None and said.dtype.kind in "iu" and np.array_equal(said, np.unique(said))


def _with_targets(name: str, arrays: dict[str, np.ndarray], task: Task) -> dict[str, np.ndarray]:
    """Arrays by the names of a data set's: ``x`` and ``y`` are of the test split, ``input_ids`` and ``labels`` are made
    to such, and where the next token is learnt of tokens, targets that are missing are the next tokens, which is
    said."""
    if not any(one in arrays for one in ARRAYS):
        if TOKENS in arrays:
            x, y = coerce_tokens(f"{name}:", arrays)
            arrays = {**arrays, "x_test": x, "y_test": y, **padding_of(arrays)}
        else:
            arrays |= {f"{short}_test": arrays[short] for short in SHORT if short in arrays}
    arrays = {one: values for one, values in arrays.items() if one in (*ARRAYS, "classes", PADDING)}
    lacking = [
        split
        for split in SPLITS
        if f"x_{split}" in arrays and f"y_{split}" not in arrays and is_tokens(arrays[f"x_{split}"], task)
    ]
    if lacking and not task.has_classes:
        arrays |= {f"y_{split}": next_of(arrays[f"x_{split}"]) for split in lacking}
        which = " and ".join(f"y_{split}" for split in lacking)
        warn_user(f"{name} has no {which}: the next token is told at every position")
    return arrays


PROVIDES = load
