"""The data that a loss is measured on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..checkpoints import FedscopeError


@dataclass(frozen=True, eq=False)
class Samples:
    """One split of a labelled data set, or a subset of it.

    Attributes:
        x: inputs as the module takes them, float32 [n, ...].
        y: labels, int64 [n], 0 <= y < classes; whole numbers of other types are made int64.
        classes: number of classes of the task, also those that no sample of this split has.
        name: the data set, ``digits``.
        split: ``train`` or ``test``.
        indices: where the samples stand in the whole split, int64 [n].
        sha256: of the whole split's arrays; a subset keeps it.

    Raises:
        FedscopeError: x, y and indices of different lengths, no samples, labels that are no classes (several a sample,
            fractions).
    """

    x: Tensor
    y: Tensor
    classes: int
    name: str
    split: str
    indices: np.ndarray
    sha256: str = ""

    def __post_init__(self) -> None:
        n = len(self.x)
        if not n == len(self.y) == len(self.indices):
            raise FedscopeError(
                f"{self.label} has {n} inputs, {len(self.y)} labels and {len(self.indices)} indices; "
                "give one of each for every sample"
            )
        if n == 0:
            raise FedscopeError(f"{self.label} has no samples; a loss needs at least one")
        whole = not (self.y.is_floating_point() or self.y.is_complex())
        if self.y.dim() != 1 or not whole:
            kind = "" if whole else f"{str(self.y.dtype).removeprefix('torch.')} "
            raise FedscopeError(
                f"{self.label} has {kind}labels of shape {list(self.y.shape)}, as of a regression or of several labels "
                "a sample, but a classifier's loss needs one class a sample; give whole numbers from 0, [n] (of "
                "one-hot rows y.argmax(1))"
            )
        object.__setattr__(self, "y", self.y.long())
        low, high = int(self.y.min()), int(self.y.max())
        if low < 0 or high >= self.classes:
            raise FedscopeError(
                f"{self.label} has {f'labels from {low} to {high}' if low < high else f'the label {low}'}, but its "
                f"{self.classes} classes count from 0"
            )

    def __len__(self) -> int:
        return len(self.x)

    @property
    def label(self) -> str:
        """``digits test``, for titles and error sentences."""
        return f"{self.name} {self.split}"

    def limit(self, count: int, seed: int = 0) -> Samples:
        """A seeded subset of ``count`` samples with the classes in the whole's proportions; the whole if it is smaller.

        Class c gets floor(count n_c / n) samples, and the largest remainders one more (ties: the lower class), so that
        no class is off its proportion by a whole sample. Samples stay in their order.

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
        labels = self.y.cpu().numpy()
        available = np.bincount(labels, minlength=self.classes)
        # in whole numbers, so that equal remainders are equal
        quota, remainder = np.divmod(count * available, len(self))
        quota[np.argsort(-remainder, kind="stable")[: count - quota.sum()]] += 1
        draw = np.random.default_rng(seed)
        chosen = [
            draw.choice(np.flatnonzero(labels == c), size=quota[c], replace=False)
            for c in range(self.classes)
            if quota[c]
        ]
        rows = np.sort(np.concatenate(chosen))
        at = torch.from_numpy(rows).to(self.x.device)
        return replace(self, x=self.x[at], y=self.y[at.to(self.y.device)], indices=np.asarray(self.indices)[rows])
