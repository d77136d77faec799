"""Torch's own criteria as tasks: what is measured is the number that the criterion gives for all samples at once.

``nn.CrossEntropyLoss(weight=w, label_smoothing=0.1)``, ``nn.HuberLoss()``, ``functional.cross_entropy`` or a
``functools.partial`` of it may stand where a task is asked for, with any ``reduction``: fedscope takes the means.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.loss import _Loss

from ..checkpoints import FedscopeError
from .standard_tasks import (
    CLASSIFICATION,
    PADDED,
    TASKS,
    Classification,
    Sequences,
    in_float64,
    in_order,
    refuse_other_axes,
)
from .tasks import Task

if TYPE_CHECKING:
    from .samples import Samples

# So many weights are written into a name; of more it has their sum.
_NAMED = 12


def task_of_criterion(given: Any) -> Task | None:
    """Make a criterion of torch a task; None where it is none.

    One whose mean is a task's that has a name is that task: ``nn.CrossEntropyLoss()`` is a classification, of targets
    that are labels and all count.

    >>> task_of_criterion(nn.CrossEntropyLoss()).name, task_of_criterion(functional.mse_loss).name
    ('classification', 'regression')
    >>> task_of_criterion(nn.CrossEntropyLoss(label_smoothing=0.1)).name
    'torch.nn:CrossEntropyLoss(label_smoothing=0.1)'
    """
    criterion = _of_function(given) if callable(given) and not isinstance(given, nn.Module | type) else given
    if not isinstance(criterion, _Loss):
        return None
    name = _name(criterion)
    if isinstance(criterion, nn.CrossEntropyLoss | nn.NLLLoss):
        plain = name == "torch.nn:CrossEntropyLoss"
        return PlainCriterion(criterion, name) if plain else LabelCriterion(criterion, name)
    if type(criterion) is nn.MSELoss and criterion.reduction != "sum":
        return TASKS["regression"]
    return EntryCriterion(criterion, name)


class EntryCriterion(Task):
    """A criterion without labels: the loss of a sample is the mean of what it gives for the sample's entries.

    With ``reduction="sum"`` (and KLDivLoss's ``"batchmean"``) it is their sum. Targets whose axes are the outputs' but
    for those of length 1 are taken in the outputs' shape: torch would spread [n] against [n, 1] to [n, n].
    """

    def __init__(self, criterion: _Loss, name: str) -> None:
        self.name = name
        self.criterion = criterion
        self._summed = criterion.reduction in ("sum", "batchmean")
        self._each = _without_reduction(criterion)

    @property
    def takes_labels(self) -> bool:
        """Whether a target is a class, of which outputs [n, C] have one each."""
        return isinstance(self._each, nn.MultiMarginLoss)

    @property
    def is_torchs(self) -> bool:
        """Whether this is a criterion as torch has it, and none that the user derived."""
        return type(self._each).__module__ == _Loss.__module__

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Compute what the criterion gives, [n]."""
        if y.shape != outputs.shape and y.numel() == outputs.numel() and in_order(outputs, y):
            y = y.reshape(outputs.shape)
        if y.shape == outputs.shape and not isinstance(self._each, nn.MultiLabelMarginLoss):  # its targets are classes
            y = y.to(outputs.dtype)
        each = cast(Tensor, _to_outputs(self._each, outputs)(outputs, y))
        if each.dim() < 2:
            return each
        return each.flatten(1).sum(dim=1) if self._summed else each.flatten(1).mean(dim=1)

    def fit(self, outputs: Tensor, part: Samples) -> None:
        """Refuse outputs of as many entries as a target has, but along other axes."""
        if outputs.dim():
            refuse_other_axes(outputs, part)


class LabelCriterion(Classification):
    """``nn.CrossEntropyLoss`` or ``nn.NLLLoss``, with its weights of classes w, smoothing and ignored label.

    c_j = w[y_j], 0 where the label is ignored; loss_j = l_j / c_j with l_j what the criterion gives without reduction.
    So the mean is torch's, Σ_j l_j / Σ_j c_j. Errors are not weighted: they are shares of the samples that count.
    """

    unit: ClassVar[str] = "nat"

    def __init__(self, criterion: nn.CrossEntropyLoss | nn.NLLLoss, name: str) -> None:
        self.name = name
        self.criterion = criterion
        self._each = cast(Any, _without_reduction(criterion))
        self._each.ignore_index = PADDED
        self._ignored = int(criterion.ignore_index)
        self._weight = None if criterion.weight is None else criterion.weight.detach().clone()
        self._smooth = float(getattr(criterion, "label_smoothing", 0.0))
        if self._weight is not None and not bool((self._weight >= 0).all()):
            raise FedscopeError(f"{name} has weights below 0 or that are not numbers; give weights from 0 up")

    def taken(self, y: np.ndarray) -> tuple[Task, np.ndarray]:
        """Make this the task of classes at positions, or of probabilities, where targets are so; the ignored label is
        -100 from here."""
        if y.ndim > 1 and y.dtype.kind == "f":
            return EntryCriterion(self.criterion, self.name), y
        return (PositionCriterion(self) if y.ndim > 1 else self), self.recoded(y)

    def recoded(self, y: np.ndarray) -> np.ndarray:
        """Targets whose ignored label is -100."""
        if self._ignored == PADDED:
            return y
        wide = y.astype(np.int64) if y.dtype.kind in "iu" else y  # bytes hold no -100
        return np.where(wide == self._ignored, PADDED, wide)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """l_j / c_j, [n]; 0 where c_j is 0."""
        return _divide(self.each(outputs, y), self.weights(y))

    def each(self, outputs: Tensor, y: Tensor) -> Tensor:
        """l: what the criterion gives without reduction, of y's shape."""
        return cast(Tensor, _to_outputs(self._each, outputs)(outputs, y))

    def weights(self, y: Tensor) -> Tensor:
        """c, of y's shape."""
        counted = y != PADDED
        if self._weight is None:
            return counted.to(torch.get_default_dtype())
        weight = self._weight.to(y.device)
        return torch.where(counted, weight[y.clamp(min=0, max=len(weight) - 1)], weight.new_zeros(()))

    def error_weights(self, y: Tensor) -> Tensor | None:
        """1 of a sample that counts, [n]."""
        return (y != PADDED).to(torch.get_default_dtype())

    def reduced(self, outputs: Tensor, y: Tensor, how: Any) -> Tensor:
        """Σ_j l_j, or over Σ_j c_j."""
        return Task.reduced(self, outputs, y, how)

    def check(self, y: Tensor, classes: int, label: str) -> Tensor:
        """Labels that count, and no class of weight 0 whose smoothed loss has no weight to be divided by."""
        counted = y != PADDED
        if bool(counted.all()):
            y = super().check(y, classes, label)
        elif bool(counted.any()):
            whole = y.long()
            whole[counted] = super().check(y[counted], classes, label)
            y = whole
        else:
            raise FedscopeError(f"{label} has no label that counts, as {self.name} ignores all of them; give some")
        self.refuse_weightless(y[counted], label)
        return y

    @property
    def is_cross_entropy(self) -> bool:
        """Whether the loss of a sample that counts is the plain cross-entropy, and all of them count alike."""
        return isinstance(self.criterion, nn.CrossEntropyLoss) and self._weight is None and not self._smooth

    @property
    def bare(self) -> str:
        """The criterion without weights and smoothing, by name."""
        ignored = "" if self._ignored == PADDED else f"(ignore_index={self._ignored})"
        return f"torch.nn:CrossEntropyLoss{ignored}"

    def refuse_weightless(self, counted: Tensor, label: str) -> None:
        """Refuse labels [n] that the criterion has no weight for, or whose smoothed loss has none to be divided by.

        Raises:
            FedscopeError: names the class and what to do.
        """
        if self._weight is None:
            return
        if int(counted.max()) >= len(self._weight):
            raise FedscopeError(
                f"{label} has the label {int(counted.max())}, but {self.name} has {len(self._weight)} weights, of the "
                f"classes from 0; give a weight a class"
            )
        light = self._weight.to(counted.device)[counted] <= 0
        if self._smooth and bool(light.any()):
            raise FedscopeError(
                f"{label} has the label {int(counted[light][0])}, whose class weighs 0 in {self.name}, and label "
                "smoothing gives it a loss all the same; leave its samples out, or give it a weight above 0"
            )

    def fit(self, outputs: Tensor, part: Samples) -> None:
        """Refuse outputs as a classification does, and others than there are weights."""
        super().fit(outputs, part)
        _refuse_other_weights(self._weight, outputs.shape[1], self.name)


class PlainCriterion(LabelCriterion):
    """``nn.CrossEntropyLoss()`` without settings: a classification, unless targets are probabilities, lie at positions,
    or are ignored."""

    def __init__(self, criterion: nn.CrossEntropyLoss | nn.NLLLoss, name: str) -> None:
        super().__init__(criterion, name)
        self.called, self.name = name, CLASSIFICATION.name

    def taken(self, y: np.ndarray) -> tuple[Task, np.ndarray]:
        """Become a classification, or stay as its name says."""
        if y.ndim < 2 and not (y.dtype.kind in "if" and bool((y == PADDED).any())):
            return CLASSIFICATION, y
        return LabelCriterion(self.criterion, self.called).taken(y)


class PositionCriterion(Sequences):
    """The same at each position of a sample: c_j = Σ_t c_jt, loss_j = Σ_t l_jt / c_j.

    Outputs as torch takes them, [n, V, ...], or of sequences [n, L, V], as language models give them.
    """

    def __init__(self, labels: LabelCriterion) -> None:
        self.name = labels.name
        self.labels = labels

    def taken(self, y: np.ndarray) -> tuple[Task, np.ndarray]:
        """Take targets whose ignored label is -100 from here."""
        return self, self.labels.recoded(y)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Σ_t l_jt / c_j, [n]; 0 where c_j is 0."""
        each = self.labels.each(_classes_second(outputs, y), y)
        return _divide(each.flatten(1).sum(dim=1), self.weights(y))

    def error(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the share of a sample's positions that count at which the greatest output is another class's, [n]."""
        logits = _classes_second(outputs, y)
        wrong = ((logits.argmax(dim=1) != y) | logits.isnan().any(dim=1)) & (y != PADDED)
        return in_float64(wrong.flatten(1).sum(dim=1)) / super().weights(y).clamp(min=1)

    def weights(self, y: Tensor) -> Tensor:
        """c [n]."""
        return self.labels.weights(y).flatten(1).sum(dim=1)

    def error_weights(self, y: Tensor) -> Tensor | None:
        """Count the positions of a sample that count, [n]."""
        return super().weights(y)

    def reduced(self, outputs: Tensor, y: Tensor, how: Any) -> Tensor:
        """Σ_jt l_jt, or over Σ_jt c_jt."""
        return Task.reduced(self, outputs, y, how)

    def check(self, y: Tensor, classes: int, label: str) -> Tensor:
        """Classes at positions, as of sequences."""
        y = super().check(y, classes, label)
        self.labels.refuse_weightless(y[y != PADDED], label)
        return y

    def fit(self, outputs: Tensor, part: Samples) -> None:
        """Outputs [1, V, ...], or [1, L, V]."""
        length = tuple(part.y.shape[1:])
        if outputs.dim() == 3 and len(length) == 1 and outputs.shape[1] == outputs.shape[2] == length[0]:
            raise FedscopeError(
                f"the module returns outputs of shape {list(outputs.shape)} for one sample, of which either axis may "
                f"be the {length[0]} classes; give --task sequences (outputs [n, L, V]), or a module that returns them "
                "flat"
            )
        second = _classes_second(outputs, part.y[:1])
        super().fit(_classes_last(second, part), part)
        _refuse_other_weights(self.labels._weight, second.shape[1], self.name)

    def classes_of(self, outputs: Tensor, part: Samples) -> int | None:
        """V of outputs in either order."""
        return super().classes_of(_classes_last(_classes_second(outputs, part.y[:1]), part), part)

    def places(self, outputs: Tensor, y: Tensor) -> tuple[int, ...]:
        """Those of outputs in either order."""
        return super().places(outputs.transpose(1, 2) if _is_torchs(outputs, y) else outputs, y)

    def positions(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Every position that counts is a sample, of outputs in either order."""
        return super().positions(outputs.transpose(2, 3) if _is_torchs(outputs[0], y) else outputs, y)


def _is_torchs(outputs: Tensor, y: Tensor) -> bool:
    """Check whether outputs [n, V, L] have the classes of sequences second, as torch's losses take them."""
    return y.dim() == 2 and outputs.dim() == 3 and outputs.shape[2] == y.shape[1] != outputs.shape[1]


def _classes_last(second: Tensor, part: Samples) -> Tensor:
    """Put outputs [1, V, L] as those of :class:`Sequences`, [1, L, V]; leave those of maps as they are."""
    return second.transpose(1, 2) if part.y.dim() == 2 and second.dim() == 3 else second


def _classes_second(outputs: Tensor, y: Tensor) -> Tensor:
    """Put outputs as torch's losses take them, [n, V, ...], also those of a language model, [n, L, V]."""
    models = y.dim() == 2 and outputs.dim() == 3 and outputs.shape[1] == y.shape[1] != outputs.shape[2]
    return outputs.transpose(1, 2) if models else outputs


def _refuse_other_weights(weight: Tensor | None, outputs: int, name: str) -> None:
    if weight is not None and len(weight) != outputs:
        raise FedscopeError(
            f"{name} has {len(weight)} weights, but the module has {outputs} outputs; give a weight a class"
        )


def _divide(losses: Tensor, weights: Tensor) -> Tensor:
    there = weights > 0
    return torch.where(there, losses / torch.where(there, weights, torch.ones_like(weights)), torch.zeros_like(losses))


def _without_reduction(criterion: _Loss) -> _Loss:
    each = copy(criterion)  # shares its weights, which nothing here changes
    each.reduction = "none"
    # no gradient can be taken with weights that were made in inference mode
    own = criterion._buffers.items()
    each._buffers = {
        name: value.clone() if value is not None and value.is_inference() else value for name, value in own
    }
    return each


def _to_outputs(criterion: _Loss, outputs: Tensor) -> _Loss:
    """Put the criterion's weights where the outputs are, and of their type."""
    own = dict(criterion.named_buffers(recurse=False))
    if all(value.device == outputs.device and value.dtype == outputs.dtype for value in own.values()):
        return criterion
    placed = copy(criterion)
    placed._buffers = {name: None if value is None else value.to(outputs) for name, value in criterion._buffers.items()}
    return placed


def _of_function(given: Callable[..., Any]) -> _Loss | None:
    """``functional.cross_entropy``, or a partial of it, as the criterion that it is the function of."""
    function, keywords = (given.func, given.keywords) if isinstance(given, partial) else (given, {})
    if getattr(functional, getattr(function, "__name__", ""), None) is not function:
        return None
    if isinstance(given, partial) and given.args:
        return None
    name = function.__name__.removesuffix("_loss").replace("_with_logits", "withlogits").replace("_", "")
    known = {
        kind.__name__.removesuffix("Loss").lower(): kind
        for kind in vars(nn).values()
        if isinstance(kind, type) and issubclass(kind, _Loss)
    }
    known |= {"binarycrossentropy": nn.BCELoss, "binarycrossentropywithlogits": nn.BCEWithLogitsLoss}
    kind = known.get(name)
    if kind is None or not set(keywords) <= set(inspect.signature(kind).parameters):
        return None
    return kind(**keywords)


def _name(criterion: _Loss) -> str:
    """``torch.nn:CrossEntropyLoss(label_smoothing=0.1)``: the settings that are not torch's own, but for reduction."""
    kind = type(criterion)
    usual = inspect.signature(kind).parameters
    words = []
    for key, parameter in usual.items():
        value = getattr(criterion, key, None)
        if key in ("size_average", "reduce", "reduction") or value is None:
            continue
        if isinstance(value, Tensor):
            words.append(f"{key}={_describe_weights(value)}")
        elif value != parameter.default:
            words.append(f"{key}={value!r}")
    labels = isinstance(criterion, nn.CrossEntropyLoss | nn.NLLLoss)  # of which fedscope takes the mean
    if criterion.reduction in ("sum", "batchmean") and not labels:
        words.append(f"reduction={criterion.reduction!r}")
    place = "torch.nn" if kind.__module__ == "torch.nn.modules.loss" else kind.__module__
    return f"{place}:{kind.__name__}" + (f"({', '.join(words)})" if words else "")


def _describe_weights(values: Tensor) -> str:
    plain = values.detach().cpu().double().flatten()
    if len(plain) <= _NAMED:
        return "[" + ", ".join(f"{value:.6g}" for value in plain.tolist()) + "]"
    return f"'{len(plain)} values, sha256 {hashlib.sha256(plain.numpy().tobytes()).hexdigest()[:12]}'"
