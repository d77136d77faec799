"""The tasks that have a name: classification, of sequences too, regression, sequences."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from ..checkpoints import FedscopeError
from ..checkpoints.io.errors import count_of
from .accelerators import has_float64
from .tasks import Task

if TYPE_CHECKING:
    from .samples import Samples

#: the target of a position that does not count, as ``ignore_index`` is in torch
PADDED = -100


class Classification(Task):
    """One of C classes a sample: loss −log softmax(f)[y] in nats, error 1[argmax f ≠ y].

    Outputs f [n, C], labels y int64 [n]. A row of outputs with a NaN is misclassified.
    """

    name = "classification"
    unit: ClassVar[str] = "nat"
    has_classes: ClassVar[bool] = True

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy, [n]."""
        # as functional.cross_entropy, bit for bit, whose vectorised form takes three times as long
        return -functional.log_softmax(outputs, dim=1).gather(1, y[:, None])[:, 0]

    def error(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Check whether the greatest output is another class's, [n] bool."""
        # argmax takes a NaN for the greatest value, which would make a broken model right now and then
        return (outputs.argmax(dim=1) != y) | outputs.isnan().any(dim=1)

    def reduced(self, outputs: Tensor, y: Tensor, how: Literal["mean", "sum"]) -> Tensor:
        """Sum the loss as torch does it in one step."""
        if type(self).loss is not Classification.loss:  # a class of the user's own
            return super().reduced(outputs, y, how)
        return functional.cross_entropy(outputs, y, reduction=how)

    def check(self, y: Tensor, classes: int, label: str) -> Tensor:
        """Labels int64 [n], 0 <= y < classes."""
        whole = not (y.is_floating_point() or y.is_complex())
        if y.dim() != 1 or not whole:
            kind = "" if whole else f"{str(y.dtype).removeprefix('torch.')} "
            raise FedscopeError(
                f"{label} has {kind}labels of shape {list(y.shape)}, as of a regression or of several labels "
                "a sample, but a classifier's loss needs one class a sample; give whole numbers from 0, [n] (of "
                "one-hot rows y.argmax(1)), or another --task"
            )
        y = y.long()
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= classes:
            raise FedscopeError(
                f"{label} has {f'labels from {low} to {high}' if low < high else f'the label {low}'}, but its "
                f"{classes} classes count from 0; leave out samples that do not count"
            )
        return y

    def fit(self, outputs: Tensor, part: Samples) -> None:
        """Outputs [1, C], of at least two classes."""
        shape, found = tuple(outputs.shape), self.classes_of(outputs, part)
        if found is not None and found >= 2 and _enough(found, part, "for a sample", "leave them out"):
            return
        if part.classes < 2 and shape in ((1, 1), (1,)):
            raise FedscopeError(
                f"{part.label} has one class, so loss and error are 0 for any output of the module, as with a "
                "regression's single output; give data of at least two classes, and a module with an output for each, "
                "or --task regression"
            )
        single = (
            "; a single output (regression, binary cross-entropy) is not a classifier's" if shape[-1:] == (1,) else ""
        )
        raise FedscopeError(
            f"the module returns outputs of shape {list(shape)} for one sample, but {part.label} has "
            f"{count_of(part.classes, 'class')}, so [1, {part.classes}] is needed{single}"
        )

    def classes_of(self, outputs: Tensor, part: Samples) -> int | None:
        """C of outputs [1, C]."""
        return outputs.shape[1] if outputs.dim() == 2 and len(outputs) == 1 else None


class SequenceClassification(Classification):
    """A :class:`Classification` of rows of tokens, which stay whole numbers: x int64 [n, L], labels y int64 [n]."""

    name = "sequence-classification"
    tokens: ClassVar[bool] = True


class Regression(Task):
    """Numbers: loss (1/k) Σ_i (f_i − y_i)², the mean over the k entries of a sample's target; no error.

    Targets y [n] or [n, ...], outputs f of the same axes, but for those of length 1: [n, 1] goes with [n]. Either may
    also be flat, [n, k]. Targets are taken as they are, not standardised.
    """

    name = "regression"

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean squared error of each sample, [n]."""
        return (outputs.reshape(len(y), -1) - y.reshape(len(y), -1)).square().mean(dim=1)

    def check(self, y: Tensor, classes: int, label: str) -> Tensor:
        """Finite real numbers."""
        if y.is_complex():
            raise FedscopeError(f"{label} has complex targets; a regression's are real numbers, [n] or [n, k]")
        y = y if y.is_floating_point() else y.float()
        if not y.isfinite().all():
            raise FedscopeError(f"{label} has {int((~y.isfinite()).sum())} targets that are not finite; leave them out")
        return y

    def fit(self, outputs: Tensor, part: Samples) -> None:
        """Refuse outputs that are not as many as a target has entries, or lie along other axes."""
        needed = prod(part.y.shape[1:])
        if outputs.dim() == 0 or len(outputs) != 1 or outputs.numel() != needed:
            raise FedscopeError(
                f"the module returns outputs of shape {list(outputs.shape)} for one sample, but a target of "
                f"{part.label} has {count_of(needed, 'number')}, so [1, {needed}] is needed"
            )
        refuse_other_axes(outputs, part)

    def positions(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Samples stay samples; outputs and targets as rows of k numbers."""
        return outputs.reshape(*outputs.shape[:2], -1), y.reshape(len(y), -1), torch.arange(len(y), device=y.device)


class Sequences(Task):
    """One of V classes at each position of a sample, as of a language model or a segmentation.

    Targets y int64 [n, L], −100 where a position is padding and does not count. Outputs [n, L, V], as language models
    give them; where targets are maps [n, H, W] (or of more axes), [n, V, H, W], as segmentation networks do.

    loss_j = (1/c_j) Σ_t 1[y_jt ≠ −100] −log softmax(f_jt)[y_jt], error_j likewise with 1[argmax f_jt ≠ y_jt], and c_j
    the number of the sample's positions that count. As a sample counts c_j times in :class:`Task`'s mean, every
    position counts alike there: L = Σ_jt −log softmax(f_jt)[y_jt] / Σ_j c_j, whose exponential is the perplexity.
    """

    name = "sequences"
    unit: ClassVar[str] = "nat"
    tokens: ClassVar[bool] = True

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Mean cross-entropy over the positions of each sample, [n]."""
        each = functional.cross_entropy(_classes_second(outputs, y), y, reduction="none", ignore_index=PADDED)
        return each.flatten(1).sum(dim=1) / self.weights(y)

    def error(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Share of a sample's positions at which the greatest output is another class's, [n]."""
        logits = _classes_second(outputs, y)
        wrong = ((logits.argmax(dim=1) != y) | logits.isnan().any(dim=1)) & (y != PADDED)
        return in_float64(wrong.flatten(1).sum(dim=1)) / self.weights(y)

    def weights(self, y: Tensor) -> Tensor:
        """c [n]: a sample's positions that count."""
        return (y != PADDED).flatten(1).sum(dim=1)

    def reduced(self, outputs: Tensor, y: Tensor, how: Literal["mean", "sum"]) -> Tensor:
        """Sum the loss as torch does it in one step, over positions."""
        if type(self).loss is not Sequences.loss:
            return super().reduced(outputs, y, how)
        return functional.cross_entropy(_classes_second(outputs, y), y, reduction=how, ignore_index=PADDED)

    def check(self, y: Tensor, classes: int, label: str) -> Tensor:
        """Classes int64 [n, L], or −100."""
        if y.dim() < 2 or y.is_floating_point() or y.is_complex():
            raise FedscopeError(
                f"{label} has {str(y.dtype).removeprefix('torch.')} targets of shape {list(y.shape)}, but a sequence "
                "has a class at each position; give whole numbers [n, L], -100 if a position does not count"
            )
        y = y.long()
        counts = y[y != PADDED]
        if counts.numel() and not 0 <= int(counts.min()) <= int(counts.max()) < classes:
            raise FedscopeError(
                f"{label} has targets from {int(counts.min())} to {int(counts.max())}, but its {classes} classes count "
                "from 0 (-100 if a position does not count)"
            )
        empty = (self.weights(y) == 0).nonzero()
        if len(empty):
            raise FedscopeError(
                f"{label} has {count_of(len(empty), 'sample')} without a position that counts (the first is "
                f"{int(empty[0])}); leave them out"
            )
        return y

    def fit(self, outputs: Tensor, part: Samples) -> None:
        """Outputs [1, L, V] or [1, V, H, W]."""
        remedy = "write -100 there, torch's ignore_index (in a signed type)"
        found, length = self.classes_of(outputs, part), tuple(part.y.shape[1:])
        if found is not None and _enough(found, part, "at a position", remedy):
            return
        if remedy := _other_axes(tuple(outputs.shape), part.y):
            raise FedscopeError(
                f"the module returns outputs of shape {list(outputs.shape)} for one sample, but {part.label} has "
                f"{remedy}"
            )
        needed = (1, *length, part.classes) if len(length) == 1 else (1, part.classes, *length)
        raise FedscopeError(
            f"the module returns outputs of shape {list(outputs.shape)} for one sample, but {part.label} has "
            f"{count_of(part.classes, 'class')} at {count_of(prod(length), 'position')}, so {list(needed)} is needed"
        )

    def classes_of(self, outputs: Tensor, part: Samples) -> int | None:
        """V of outputs [1, L, V] or [1, V, H, W]."""
        length, shape = tuple(part.y.shape[1:]), tuple(outputs.shape)
        if len(length) == 1:
            return shape[2] if len(shape) == 3 and shape[:2] == (1, *length) else None
        return shape[1] if len(shape) == 2 + len(length) and shape == (1, shape[1], *length) else None

    def places(self, outputs: Tensor, y: Tensor) -> tuple[int, ...]:
        """The axes of outputs or features [n, ...] that are positions: of sequences [n, L, d], of maps [n, d, H, W]."""
        return tuple(outputs.shape[1:-1] if y.dim() == 2 else outputs.shape[2:])

    def positions(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Every position that counts is a sample."""
        rows = (outputs if y.dim() == 2 else outputs.movedim(2, -1)).flatten(1, -2)
        there = (y != PADDED).flatten()
        of = torch.arange(len(y), device=y.device).repeat_interleave(prod(y.shape[1:]))
        return rows[:, there.to(rows.device)], y.flatten()[there], of[there]


def in_float64(values: Tensor) -> Tensor:
    """Return numbers in float64, or in float32 on a device that has no other."""
    return values.double() if values.device.type == "cpu" or has_float64(str(values.device)) else values.float()


def _classes_second(outputs: Tensor, y: Tensor) -> Tensor:
    """Put outputs as torch's losses take them, [n, V, ...], also those of a language model, [n, L, V]."""
    return outputs.transpose(1, 2) if y.dim() == 2 else outputs


def _enough(found: int, part: Samples, place: str, remedy: str) -> bool:
    """Check whether a module has the outputs that the data need: more where these are counted by their labels, or are
    one.

    Args:
        found: outputs that the module has.
        place: of which; remedy: what to do with labels that are no classes.

    Raises:
        FedscopeError: a label beyond them, which may stand for what does not count.
    """
    if found == part.classes or (found > part.classes and (part.classes_seen or part.classes < 2)):
        return True
    if not part.classes_seen:
        return False
    outside = part.y[part.y >= found]
    if not len(outside):  # of tags, which are fewer than the tokens that the data's classes are counted by
        return True
    high, what = int(outside.max()), "positions" if part.y.dim() > 1 else "samples"
    raise FedscopeError(
        f"{part.label} has the label {high} ({count_of(len(outside), 'time')}), but the module has "
        f"{count_of(found, 'output')} {place}, 0 to {found - 1}; if {high} marks {what} that do not count, {remedy}, "
        "else give a module with an output for each class"
    )


def _other_axes(outputs: tuple[int, ...], y: Tensor) -> str:
    """Describe targets that have an axis of length 1, or one of classes, where outputs [1, V, ...] have their classes,
    and how to take it away; "" of others.

    >>> _other_axes((1, 4, 8, 8), torch.zeros(5, 1, 8, 8))
    'targets of shape [5, 1, 8, 8]; give y[:, 0], a class at each position'
    """
    if len(outputs) != y.dim() or outputs[2:] != tuple(y.shape[2:]):
        return ""
    where = "at each position" if y.dim() > 2 else "a sample"
    if y.shape[1] == 1:
        return f"targets of shape {list(y.shape)}; give y[:, 0], a class {where}"
    if outputs[1] == y.shape[1] and bool(((y == 0) | (y == 1)).all()) and bool((y.sum(dim=1) == 1).all()):
        return f"one-hot targets of shape {list(y.shape)}; give y.argmax(1), a class {where}"
    return ""


def in_order(outputs: Tensor, y: Tensor) -> bool:
    """Check whether the entries of outputs [n, ...] and targets [n, ...] are the same ones in one order: their axes are
    the same, but for those of length 1, or either are flat, as outputs of the networks that are built here.

    >>> [in_order(torch.zeros(5, *shape), torch.zeros(5, 4, 3)) for shape in ((4, 3), (1, 4, 3), (12,), (3, 4))]
    [True, True, True, False]
    >>> in_order(torch.zeros(5, 1, 6, 6), torch.zeros(5, 36))  # of an autoencoder
    True
    """
    own, theirs = ([length for length in one.shape[1:] if length != 1] for one in (outputs, y))
    return own == theirs or own == [prod(theirs)] or theirs == [prod(own)]


def refuse_other_axes(outputs: Tensor, part: Samples) -> None:
    """Refuse outputs [1, ...] of as many entries as a target of a data set has, but along other axes: which entry meets
    which would be an accident.

    Raises:
        FedscopeError: names both shapes.
    """
    target = tuple(part.y.shape[1:])
    if len(outputs) != 1 or outputs.numel() != prod(target) or in_order(outputs, part.y[:1]):
        return
    needed = ", ".join(["n", *map(str, outputs.shape[1:])])
    raise FedscopeError(
        f"the module returns outputs of shape {list(outputs.shape)} for one sample, but a target of {part.label} has "
        f"shape {list(target)}, so numbers would be compared with others than their own; give targets [{needed}], or a "
        "module whose outputs have the targets' axes"
    )


#: what is learnt where nothing else is said
CLASSIFICATION = Classification()
#: the tasks that have a name
TASKS: Mapping[str, Task] = {
    task.name: task for task in (CLASSIFICATION, Regression(), Sequences(), SequenceClassification())
}


def is_own_task(task: Task) -> bool:
    """Check whether a task is code of the user's own."""
    return type(task) not in map(type, TASKS.values())
