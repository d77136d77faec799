"""``iid``: a random split into equal parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..partitioner import Partitioner


@dataclass(frozen=True)
class IID(Partitioner):
    """All samples are shuffled and dealt out; sizes differ by at most one."""

    needs_classes: ClassVar[bool] = False

    def split(
        self, labels: np.ndarray, clients: int, random: np.random.Generator, groups: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        """See :class:`fedscope.training.data.partitioner.Partitioner`."""
        return np.array_split(random.permutation(len(labels)), clients)


PROVIDES = IID
