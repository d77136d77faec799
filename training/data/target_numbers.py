"""Whether targets that are whole numbers are numbers, for which a model has an output each, or classes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...evaluation.criteria import EntryCriterion
from ...evaluation.standard_tasks import Regression, Sequences
from ...evaluation.tasks import Task

#: samples on which a loss of the user's own is tried, the outputs that each has for them, the most of these, and how
#: many are tried of a loss that takes one
TRIED, OUTPUT, MOST, WIDEST = 8, 0.37, 65_536, 1024


def are_numbers(task: Task, y: np.ndarray, declared: Any = None) -> bool:
    """Check whether a model has an output for each number of a target, and not for each class.

    So it is of numbers that are not whole, of a regression, and of a criterion of torch that compares outputs with
    targets entry by entry. A loss of the user's own is tried: its whole numbers are numbers where it depends on outputs
    as many as a target has numbers, and refuses more of them, leaves them out, or treats all alike. In doubt they are
    classes.

    Args:
        y: the targets, [n, ...].
        declared: the number of classes, where the data say it, so that whole numbers of the user's own task are those.
    """
    if task.has_classes:
        return False
    if y.dtype.kind == "f":
        return True
    if isinstance(task, Sequences):
        return False
    if isinstance(task, Regression):
        return True
    if isinstance(task, EntryCriterion) and task.is_torchs:
        return not task.takes_labels
    return declared is None and len(y) > 0 and _takes_numbers(task, y)


def _takes_numbers(task: Task, y: np.ndarray) -> bool:
    """Try a loss on targets of whole numbers."""
    own, classes = prod(y.shape[1:]), int(y.max()) + 1
    few = _some(y)
    narrow = _gradients(task, few, own, classes)
    if narrow is None or not bool(narrow.any()):
        return False
    if classes <= 1 or classes > MOST:  # so many are no classes
        return True
    wide = _gradients(task, few, classes, classes) if classes != own else None
    if wide is not None:
        return not bool(wide[:, own:].any()) or (own == 1 and _all_alike(wide))
    # one output may also be spread against a table's row, or a one-hot one of more classes than there are labels
    return own > 1 or not any(_tells_apart(task, few, width, classes) for width in range(2, WIDEST + 1))


def _tells_apart(task: Task, y: Tensor, width: int, classes: int) -> bool:
    """Check whether a loss takes so many outputs, and not the first of them alone, or all of them alike."""
    wide = _gradients(task, y, width, classes)
    return wide is not None and bool(wide[:, 1:].any()) and not _all_alike(wide)


def _all_alike(wide: Tensor) -> bool:
    return torch.equal(wide, wide[:, :1].expand_as(wide))


def _some(y: np.ndarray) -> Tensor:
    """A few targets, various ones with the greatest label among them."""
    rows = np.unique(y, return_index=True, axis=0)[1]
    chosen = rows[np.unique(np.linspace(0, len(rows) - 1, TRIED - 1).astype(np.int64))]
    greatest = int(y.reshape(len(y), -1).max(axis=1).argmax())
    return torch.from_numpy(y[np.unique([*chosen, greatest])])


def _gradients(task: Task, y: Tensor, width: int, classes: int) -> Tensor | None:
    """How a loss depends on outputs [n, width], which are all alike; None of outputs that it does not take."""
    if len(y) == width > 1:  # or targets [n] would be spread along the outputs
        y = y[1:]
    with torch.inference_mode(False), torch.enable_grad():
        outputs = torch.full((len(y), width), OUTPUT, requires_grad=True)
        try:
            losses = task.loss(outputs, task.check(y.clone(), classes, "the data"))
            if losses.shape != (len(y),):
                return None
            return torch.autograd.grad(losses.sum(), outputs)[0]
        except Exception:  # whatever the user's code or torch raises
            return None
