"""Loss and error of a model, batch by batch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


class Tally:
    """Sums of cross-entropy and of right answers over the samples of a data set, in float64."""

    def __init__(self, device: str) -> None:
        self.loss = torch.zeros((), dtype=torch.float64, device=device)
        self.right = torch.zeros((), dtype=torch.int64, device=device)
        self.n = 0

    def add(self, outputs: Tensor, y: Tensor) -> None:
        """Take in a batch: outputs [n, classes] and labels [n]."""
        outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
        self.loss += functional.cross_entropy(outputs, y, reduction="none").double().sum()
        # argmax takes a NaN for the greatest value, which would make a broken model right now and then
        finite = ~outputs.isnan().any(dim=1)
        self.right += ((outputs.argmax(dim=1) == y) & finite).sum()
        self.n += len(y)

    def means(self) -> tuple[float, float]:
        """Mean loss, and the share misclassified."""
        return float(self.loss) / self.n, (self.n - int(self.right)) / self.n
