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

#: samples on which a loss of the user's own is tried, the outputs that each has for them, and the most of these
TRIED, OUTPUT, MOST = 8, 0.37, 65_536


def are_numbers(task: Task, y: np.ndarray, declared: Any = None) -> bool:
    """Check whether a model has an output for each number of a target, and not for each class.

    So it is of numbers that are not whole, of a regression, and of a criterion that compares outputs with targets entry
    by entry. A loss of the user's own is tried: its whole numbers are classes where outputs as many as a target has
    numbers do not do, or where it tells apart outputs of as many classes.

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
    if isinstance(task, EntryCriterion):
        return not task.takes_labels
    return declared is None and len(y) > 0 and _takes_numbers(task, y)


def _takes_numbers(task: Task, y: np.ndarray) -> bool:
    """Try a loss on targets of whole numbers."""
    classes = int(y.max()) + 1
    few = _some(y)
    if _gradients(task, few, prod(y.shape[1:]), classes) is None:
        return False
    if y.ndim > 1 or y.min() < 0 or classes > MOST:
        return True
    wide = _gradients(task, few, classes, classes) if classes > 1 else None
    if wide is None:
        return classes > 1
    first = wide[:, :1]
    return not bool(wide[:, 1:].any()) or torch.equal(wide, first.expand_as(wide))


def _some(y: np.ndarray) -> Tensor:
    """A few targets, of labels various ones with the greatest among them."""
    rows = np.unique(y, return_index=True)[1] if y.ndim == 1 else np.arange(len(y))
    return torch.from_numpy(y[rows[np.unique(np.linspace(0, len(rows) - 1, TRIED).astype(np.int64))]])


def _gradients(task: Task, y: Tensor, width: int, classes: int) -> Tensor | None:
    """How a loss depends on outputs [n, width], which are all alike; None of outputs that it does not take."""
    with torch.inference_mode(False), torch.enable_grad():
        outputs = torch.full((len(y), width), OUTPUT, requires_grad=True)
        try:
            losses = task.loss(outputs, task.check(y.clone(), classes, "the data"))
            if losses.shape != (len(y),):
                return None
            return torch.autograd.grad(losses.sum(), outputs)[0]
        except Exception:  # whatever the user's code or torch raises
            return None
