"""How many points of a surface may be measured, and how many are tried first."""

from __future__ import annotations

from dataclasses import dataclass

#: Points a side of the first lattice, and the least points of a budget.
START, FEWEST = 7, 40
#: The share of the points that mostly is enough: it is tried first, and steps and held-out points are sized for it.
USUAL = 0.15
#: Points that are kept for the neighbourhood of the minimum, at most.
NEAR_MINIMUM = 27


def budget(shape: tuple[int, int], share: float = USUAL) -> int:
    """Count the points of a grid that are computed at most: ``share`` of them, or all where that leaves too few to go
    by.

    >>> budget((51, 51)), budget((9, 9)), budget((2, 900))
    (390, 81, 1800)
    """
    points = shape[0] * shape[1]
    most = int(share * points + 1e-9)
    return most if most >= FEWEST and min(shape) >= START else points


@dataclass(frozen=True)
class SurfaceBudget:
    """How many points of a surface may be measured.

    Attributes:
        shape: of the grid; share: of its points, at most.
    """

    shape: tuple[int, int]
    share: float

    @property
    def size(self) -> int:
        """All of them."""
        return self.shape[0] * self.shape[1]

    @property
    def most(self) -> int:
        """Count those that may be measured."""
        return budget(self.shape, self.share)

    @property
    def usual_share(self) -> float:
        """The share that mostly is enough, or that may be measured."""
        return min(self.share, USUAL)

    @property
    def usual(self) -> int:
        """Count those that mostly are enough, and are tried first."""
        return min(self.most, budget(self.shape, self.usual_share))

    def without_spared(self, points: int) -> int:
        """So many points, less those kept for the neighbourhood of the minimum."""
        return points if points == self.size else points - min(NEAR_MINIMUM, points // 10, points - FEWEST)
