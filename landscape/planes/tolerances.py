"""How far an interpolated loss may be off: by the range, by what is drawn of it, and near the minimum by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..drawing.levels import depth, levels

#: What is tolerated beside a share t of the range: 50 t bands of the colour scale, and 4 t of the loss itself over the
#: lowest tenth of the points. With t = 0.005 that is a quarter of a band, and 2 %.
BANDS, ITSELF, LOWEST = 50.0, 4.0, 0.1
#: Losses that differ by less than a millionth are one flat surface in float32.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Tolerances:
    """What is tolerated on a surface whose finite losses are ``known`` [n], as far as one knows.

    Attributes:
        share: t, of the range.
        edges: of the bands that it is drawn with.
        low: the greatest loss of the lowest tenth of the points.
        span: of the losses, max − min.
    """

    share: float
    edges: np.ndarray
    low: float
    span: float

    @classmethod
    def of(cls, known: np.ndarray, share: float) -> Tolerances:
        """The tolerances for a surface."""
        # what rounding makes of a loss of 0 is a difference, too
        span = max(float(np.ptp(known)), ROUNDING * float(np.abs(known).max()), np.finfo(float).tiny)
        return cls(share, levels(known, float(known.min()))[0], float(np.quantile(known, LOWEST)), span)

    def at(self, loss: np.ndarray) -> np.ndarray:
        """The greatest difference tolerated where the loss is ``loss``, the same shape; above 0."""
        excess, start = loss - self.edges[0], self.edges[1] - self.edges[0]
        width = np.log((self.edges[-1] - self.edges[0]) / (self.edges[-2] - self.edges[0]))
        allowed = np.minimum(
            self.share * self.span, BANDS * self.share * np.where(excess > start, width * excess, start)
        )
        near = np.where(loss <= self.low, ITSELF * self.share * np.abs(loss), np.inf)
        least = self.share * ROUNDING * max(self.span, float(np.abs(loss).max()))
        tolerated: np.ndarray = np.maximum(np.minimum(allowed, near), least)
        return tolerated

    def bands(self, loss: np.ndarray, other: np.ndarray) -> np.ndarray:
        """How many bands of the colour scale lie between two losses; all above the last edge look alike."""
        first, second = (depth(np.clip(values, self.edges[0], self.edges[-1]), self.edges) for values in (loss, other))
        between: np.ndarray = np.abs(first - second)
        return between
