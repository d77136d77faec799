"""Tasks: the loss of a sample, its error where there is one, and their sums over samples.

A task turns a model's outputs and a batch's targets into numbers, one a sample; everything else (means over samples,
planes, lines, sharpness, local training) is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ..checkpoints import FedscopeError
from .accelerators import has_float64

if TYPE_CHECKING:
    from .samples import Samples


class Task:
    """The loss of a sample, and what else is known of it. A task of one's own derives from this class.

    The mean over samples that is evaluated, differentiated and minimised is

        L = Σ_j c_j loss_j / Σ_j c_j,  error = Σ_j e_j error_j / Σ_j e_j

    with c_j = 1 unless :meth:`weights` says otherwise, and e_j = c_j unless :meth:`error_weights` does.

    Attributes:
        name: in provenance and sentences; of a class that does not say it the class's own.
        unit: of the loss, as in netCDF: ``nat`` (or ``nats``), or ``1`` where it has none.
        has_classes: whether outputs are [n, classes] and targets labels [n], which some questions need.
        tokens: whether whole numbers in a file's x [n, L] are tokens, which are neither scaled nor made float.

    >>> import fedscope, torch
    >>> class Absolute(fedscope.Task):
    ...     def loss(self, outputs, y):
    ...         return (outputs[:, 0] - y).abs()
    >>> float(Absolute().reduced(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 1.0]), "mean"))
    1.5
    """

    name: str = ""
    unit: ClassVar[str] = "1"
    has_classes: ClassVar[bool] = False
    tokens: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample, [n], of a batch's outputs [n, ...] and targets [n, ...]."""
        raise NotImplementedError

    def error(self, outputs: Tensor, y: Tensor) -> Tensor | None:
        """Return the error of each sample, [n] in 0..1; None where the task has none."""
        return None

    def weights(self, y: Tensor) -> Tensor | None:
        """c [n], how much each sample counts in a mean; None where all count alike."""
        return None

    def error_weights(self, y: Tensor) -> Tensor | None:
        """e [n], how much each sample counts in a mean of errors: as in one of losses."""
        return self.weights(y)

    def count(self, y: Tensor) -> int | float:
        """Σ_j c_j: the number of samples, of what is averaged over in them, or the sum of their weights."""
        return _total_weight(self.weights(y), y)

    def taken(self, y: np.ndarray) -> tuple[Task, np.ndarray]:
        """Return the task for a data set's targets [n, ...] as they were given, and the targets as it counts them."""
        return self, y

    def reduced(self, outputs: Tensor, y: Tensor, how: Literal["mean", "sum"]) -> Tensor:
        """Σ_j c_j loss_j of a batch, or its mean; what is minimised and differentiated."""
        losses, weights = self.loss(outputs, y), self.weights(y)
        total = losses.sum() if weights is None else (losses * weights).sum()
        return total / self.count(y) if how == "mean" else total

    def check(self, y: Tensor, classes: int, label: str) -> Tensor:
        """Return the targets of a data set as :meth:`loss` takes them.

        Args:
            classes: of the data set, see :class:`Samples`.
            label: the data set, for sentences.

        Raises:
            FedscopeError: targets that the task does not take.
        """
        return y

    def fit(self, outputs: Tensor, part: Samples) -> None:
        """Look at what a module returns for one sample, [1, ...].

        Raises:
            FedscopeError: outputs of a shape that the task does not take.
        """

    def classes_of(self, outputs: Tensor, part: Samples) -> int | None:
        """Count the classes that a module answers for, of its outputs for one sample, [1, ...]; None where that is not
        known.

        The data's own number is no more than their labels show where ``part.classes_seen``.
        """
        return None

    def positions(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split samples that have parts: each part counts as a sample.

        Args:
            outputs: of M models, or a layer's features, [M, n, ...].
            y: [n, ...].

        Returns:
            outputs [M, m, ...], targets [m, ...], and of each of the m which of the n it is a part of, [m].
        """
        return outputs, y, torch.arange(len(y), device=y.device)


def unit_of(task: Task) -> str:
    """Return the unit of a task's loss; ``nats`` is ``nat``.

    Raises:
        FedscopeError: it is no text that netCDF takes as a unit.

    >>> class Mine(Task):
    ...     unit = "nats"
    >>> unit_of(Mine())
    'nat'
    """
    unit = task.unit
    if not isinstance(unit, str) or not unit.strip() or not unit.isprintable():
        raise FedscopeError(
            f'the task {task.name} has the unit {unit!r}; give a text as netCDF has it, "nat", or "1" without one'
        )
    unit = unit.strip()
    return "nat" if unit.lower() in ("nat", "nats") else unit


class Plain(Task):
    """A function of outputs and targets that gives a loss a sample, [n]; no error.

    >>> absolute = Plain("absolute", lambda outputs, y: (outputs[:, 0] - y).abs())
    >>> absolute.loss(torch.tensor([[1.0], [3.0]]), torch.tensor([0.0, 1.0])).tolist()
    [1.0, 2.0]
    """

    def __init__(self, name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.name = name
        self.function = function

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Call the function."""
        return self.function(outputs, y)


class Tally:
    """Sums of a task's losses and errors over the samples of a data set, in float64; on a device that has none by the
    processor."""

    def __init__(self, task: Task, device: str) -> None:
        self.task = task
        at = device if has_float64(device) else "cpu"
        self._brought = at != device
        self.loss = torch.zeros((), dtype=torch.float64, device=at)
        self.error: Tensor | None = torch.zeros((), dtype=torch.float64, device=at)
        self.n: int | float = 0
        self.counted: int | float = 0

    def add(self, outputs: Tensor, y: Tensor) -> None:
        """Take in a batch of outputs and targets."""
        outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
        losses, weights = self.task.loss(outputs, y), self.task.weights(y)
        if self._brought:
            losses, weights = losses.cpu(), None if weights is None else weights.cpu()
        self.loss += _sum(losses, weights)
        self.n += _total_weight(weights, y)
        error = self.task.error(outputs, y)
        if error is None or self.error is None:
            self.error = None
            return
        shares = self.task.error_weights(y)
        if self._brought:
            error, shares = error.cpu(), None if shares is None else shares.cpu()
        self.error = self.error + _sum(error, shares)
        self.counted += _total_weight(shares, y)

    def means(self) -> tuple[float, float]:
        """Mean loss, and mean error; NaN where the task has none, or where nothing counts."""
        nothing = float("nan")
        loss = float(self.loss) / self.n if self.n else nothing
        return loss, float(self.error) / self.counted if self.error is not None and self.counted else nothing


def _total_weight(weights: Tensor | None, y: Tensor) -> int | float:
    """Σ_j c_j, exact where weights are whole numbers."""
    if weights is None:
        return len(y)
    return float(weights.double().sum()) if weights.is_floating_point() else int(weights.sum())


def _sum(values: Tensor, weights: Tensor | None) -> Tensor:
    values = values.double()
    return values.sum() if weights is None else (values * weights).sum()


def require_classes(samples: Samples, what: str) -> None:
    """Refuse data of a task without classes.

    Args:
        what: what needs them, for the sentence.

    Raises:
        FedscopeError: the samples have no labels.
    """
    if not samples.task.has_classes:
        raise FedscopeError(
            f"{what} needs a class a sample, and {samples.label} is measured with the task {samples.task.name}, which "
            "has none; ask it of a classification"
        )
