"""Tasks whose loss is not the one that is decomposed: a number under another one's name is refused."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few
from ...checkpoints.io.shell_words import quoted
from ...evaluation.criteria import LabelCriterion, PositionCriterion
from ...evaluation.samples import Samples
from ...evaluation.standard_tasks import PADDED, Classification, Sequences, is_own_task
from ...evaluation.tasks import Task, require_classes
from .model_outputs import Chunk


def refuse_other_task(task: Task, label: str, loss: str) -> None:
    """Refuse a task of which the loss that is asked for says nothing.

    The squared error is of outputs and targets, and of tasks that fedscope knows. The cross-entropy is decomposed where
    it is the task's own loss: of samples that count alike, without smoothing. The 0-1 loss where it is the task's
    error.

    Args:
        label: of the samples, for the sentence.
        loss: ``squared``, ``cross-entropy`` or ``zero-one``.

    Raises:
        FedscopeError: names the task, and one that has such a loss.
    """
    if not is_own_task(task):
        return
    if loss == "squared":
        raise FedscopeError(
            f"a decomposition of the squared error needs classes or numbers, and {label} is measured with the task "
            f"{task.name}, of which fedscope knows the loss alone; give {_instead(task)}"
        )
    own, plain = _loss_of(task) if loss == "cross-entropy" else _error_of(task)
    if not plain:
        raise FedscopeError(
            f"a decomposition of the {loss} loss is of {own}, and {label} is measured with the task {task.name}, whose "
            f"{'loss' if loss == 'cross-entropy' else 'error'} is another; give --task {quoted(_bare(task))}"
        )


def refuse_masked(part: Chunk, p: Tensor, label: str) -> None:
    """Refuse logits of classes that all models mask with minus infinity: their squared error is not finite.

    What is infinite in some models alone is kept, as of a client that diverged.

    Args:
        label: of the samples, for the sentence.

    Raises:
        FedscopeError: names the classes.
    """
    masked = torch.isneginf(part.fma).all(dim=0)  # [B, C]
    if bool(masked.any()):
        masked &= torch.isneginf(part.clients[p != 0]).all(dim=0).all(dim=0)
    if found := masked.any(dim=0).nonzero().flatten().tolist():
        classes = f"class{'es' if len(found) > 1 else ''} {list_few(found)}"
        raise FedscopeError(
            f"--outputs logits is for outputs that are finite, and on {label} all models give -inf for {classes}, as "
            "where a module masks; give --outputs probabilities, which are 0 there"
        )


def _instead(task: Task) -> str:
    """Return what to ask for in place of the squared error: of a criterion that may ignore labels, of which a
    classification takes none, another loss as well."""
    bare = "--task classification" if task.has_classes else "--task regression"
    if _criterion(task) is None:
        return bare
    loss = "cross-entropy" if _loss_of(task)[1] else "zero-one"
    return f"{bare}, or where it ignores labels another loss, which decompose takes: --loss {loss}"


def _loss_of(task: Task) -> tuple[str, bool]:
    what = "the plain cross-entropy of samples that count alike"
    if (criterion := _criterion(task)) is not None:
        return what, criterion.is_cross_entropy
    return what, _inherits(task, "loss", "weights")


def _error_of(task: Task) -> tuple[str, bool]:
    plain = _criterion(task) is not None or _inherits(task, "error", "weights", "error_weights")
    return "right and wrong answers that count alike", plain


def _criterion(task: Task) -> LabelCriterion | None:
    if isinstance(task, PositionCriterion):
        return task.labels
    return task if isinstance(task, LabelCriterion) else None


def _inherits(task: Task, *names: str) -> bool:
    """Check whether a class of the user's own leaves these functions to the task that it derives from."""
    base = next((base for base in (Classification, Sequences) if isinstance(task, base)), None)
    return base is not None and all(getattr(type(task), name) is getattr(base, name) for name in names)


def _bare(task: Task) -> str:
    """Name the task that has the plain loss."""
    criterion = _criterion(task)
    if criterion is not None:
        return criterion.bare
    return "sequences" if isinstance(task, Sequences) else "classification"


def with_classes(samples: Samples, loss: str) -> Samples:
    """Return the samples that have a class, all where none is ignored; of sequences a position has it.

    Raises:
        FedscopeError: a task without classes.
    """
    if isinstance(samples.task, Sequences):
        return samples
    require_classes(samples, f"the decomposition of the {loss} loss")
    there = samples.y != PADDED
    if bool(there.all()):
        return samples
    rows = torch.nonzero(there)[:, 0]
    x, y = samples.x[rows.to(samples.x.device)], samples.y[rows]
    return replace(samples, x=x, y=y, indices=samples.indices[rows.cpu().numpy()])
