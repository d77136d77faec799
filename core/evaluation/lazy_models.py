"""Models that are read when their turn comes, so that one a worker is in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..checkpoints import Weights


class LazyModels(Sequence[Weights]):
    """So many models, each read or made anew whenever it is asked for.

    Args:
        count: how many.
        read: gives the i-th.
    """

    def __init__(self, count: int, read: Callable[[int], Weights]) -> None:
        self._count, self._read = count, read

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: Any) -> Any:
        return self._read(i)
