"""``iid``: a random split into equal parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..splitting import Partitioner


@dataclass(frozen=True)
class IID(Partitioner):
    """All samples shuffled and dealt out; sizes differ by one at most."""

    needs_classes: ClassVar[bool] = False

    def split(self, labels: np.ndarray, clients: int, random: np.random.Generator) -> list[np.ndarray]:
        """See :class:`fedscope.training.splitting.Partitioner`."""
        return np.array_split(random.permutation(len(labels)), clients)


PROVIDES = IID
