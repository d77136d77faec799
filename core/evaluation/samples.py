"""Samples: what a loss is measured on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..checkpoints import FedscopeError
from ..checkpoints.io.torch_state import ordinary_tensors
from .standard_tasks import CLASSIFICATION
from .tasks import Task
from .uint8_images import Inputs


@dataclass(frozen=True, eq=False)
class Samples:
    """One split of a labelled data set, or a subset of it.

    Attributes:
        x: inputs as the module takes them, float32 [n, ...], or whole numbers (tokens); images that are kept as
            bytes as :class:`~fedscope.evaluation.uint8_images.Uint8Images`.
        y: targets as the task takes them, see :meth:`Task.check`. Of a classification labels, int64 [n],
            0 <= y < classes; whole numbers of other types are made int64.
        classes: number of classes, also those that no sample of this split has; of a regression the numbers in a
            target.
        name: the data set, ``digits``.
        split: ``train`` or ``test``.
        indices: where the samples stand in the whole split, int64 [n].
        sha256: of the whole split's arrays; a subset keeps it.
        task: what is learnt: the loss of a sample, and its error where there is one.
        classes_seen: whether ``classes`` is but one more than the greatest label there is. A module may then have more
            outputs, see :func:`~fedscope.evaluation.validation.with_outputs`.

    Raises:
        FedscopeError: x, y and indices of different lengths, no samples, targets that the task does not take: labels
            that are no classes (several a sample, fractions).
    """

    x: Inputs
    y: Tensor
    classes: int
    name: str
    split: str
    indices: np.ndarray
    sha256: str = ""
    task: Task = CLASSIFICATION
    classes_seen: bool = False

    def __post_init__(self) -> None:
        n = len(self.x)
        if not n == len(self.y) == len(self.indices):
            raise FedscopeError(
                f"{self.label} has {n} inputs, {len(self.y)} labels and {len(self.indices)} indices; "
                "give one of each for every sample"
            )
        if n == 0:
            raise FedscopeError(f"{self.label} has no samples; a loss needs at least one")
        with ordinary_tensors():
            object.__setattr__(self, "y", self.task.check(_ordinary(self.y), self.classes, self.label))
            if isinstance(self.x, Tensor):
                object.__setattr__(self, "x", _ordinary(self.x))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def label(self) -> str:
        """``digits test``, for titles and error sentences."""
        return f"{self.name} {self.split}"

    def limit(self, count: int, seed: int = 0) -> Samples:
        """Draw a seeded subset of ``count`` samples with the classes in the whole's proportions; the whole if it is
        smaller.

        Class c gets floor(count n_c / n) samples, and the largest remainders one more (ties: the lower class), so that
        no class is off its proportion by a whole sample. Samples stay in their order. Of a task without classes they
        are drawn from all alike.

        Raises:
            FedscopeError: ``count`` < 1.

        >>> import numpy as np, torch
        >>> y = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
        >>> whole = Samples(torch.zeros(100, 4), y, 3, "toy", "test", np.arange(100))
        >>> whole.limit(10).y.tolist()
        [0, 0, 0, 0, 0, 0, 1, 1, 1, 2]
        """
        if count < 1:
            raise FedscopeError(f"a limit of {count} leaves no sample of {self.label}; take at least 1 (--limit 1)")
        if count >= len(self):
            return self
        if not self.task.has_classes:
            return self._rows(np.sort(np.random.default_rng(seed).choice(len(self), size=count, replace=False)))
        labels = self.y.cpu().numpy()
        labels = np.where(labels < 0, self.classes, labels)  # what a criterion ignores is one kind more
        available = np.bincount(labels, minlength=self.classes + 1)
        # in whole numbers, so that equal remainders are equal
        quota, remainder = np.divmod(count * available, len(self))
        quota[np.argsort(-remainder, kind="stable")[: count - quota.sum()]] += 1
        draw = np.random.default_rng(seed)
        chosen = [
            draw.choice(np.flatnonzero(labels == c), size=quota[c], replace=False)
            for c in range(len(quota))
            if quota[c]
        ]
        return self._rows(np.sort(np.concatenate(chosen)))

    def _rows(self, rows: np.ndarray) -> Samples:
        at = torch.from_numpy(rows).to(self.x.device)
        return replace(self, x=self.x[at], y=self.y[at.to(self.y.device)], indices=np.asarray(self.indices)[rows])


def _ordinary(values: Tensor) -> Tensor:
    """Copy a tensor that was made in ``torch.inference_mode()``, of which no gradient can be taken."""
    return values.clone() if values.is_inference() else values
