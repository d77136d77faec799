"""Models of which there are too many for the memory, read each time that they are asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

import numpy as np

from .weights import Layout, Weights


class RecentWeights:
    """Models that were read last, the two latest of them always.

    A line needs both of its models at each of its points, and neighbouring points need the same two.

    Args:
        most: bytes of parameters that are held, as far as these are more than two models.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[object, Weights] = OrderedDict()
        self._lock = Lock()  # the evaluator's threads ask, too

    def get(self, key: object, read: Callable[[], Weights]) -> Weights:
        """Return the model of a key, read where it is not held."""
        with self._lock:
            if key not in self._held:
                self._held[key] = read()
            self._held.move_to_end(key)
            while len(self._held) > 2 and sum(one.parameters.nbytes for one in self._held.values()) > self._most:
                self._held.popitem(last=False)
            return self._held[key]


class StoredWeights(Weights):
    """One model that stays where it is stored; its numbers are the same each time.

    Args:
        read: reads it.
        recent: where it is held until others take its place.
    """

    def __init__(self, layout: Layout, read: Callable[[], Weights], recent: RecentWeights) -> None:
        object.__setattr__(self, "layout", layout)
        object.__setattr__(self, "_read", read)
        object.__setattr__(self, "_recent", recent)

    def _now(self) -> Weights:
        recent: RecentWeights = self.__dict__["_recent"]
        return recent.get(id(self), self.__dict__["_read"])

    @property
    def parameters(self) -> np.ndarray:
        """[P], read where it is not held."""
        return self._now().parameters

    @property
    def buffers(self) -> dict[str, np.ndarray]:
        """By name, read where they are not held."""
        return self._now().buffers
