"""What the pieces of a layer add up to, and the layers to a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from threading import Lock

import numpy as np

from ..synergy.classes import TINY, high_entries
from .moments import Array, Moments
from .records import LayerDispersion
from .skew_test import FEWEST, HAIR, count_skewed, critical_skewness

#: FedSA's, for cv scaled over a layer
CV_THRESHOLD = 0.2


@dataclass(eq=False)
class Sums:
    """Counts and sums over parameters; see :class:`~fedscope.decomposition.dispersion.LayerDispersion`.

    ``extreme`` are the |skewness| that Benjamini and Hochberg's step can reject.
    """

    parameters: int = 0
    constant: int = 0
    zero_mean: int = 0
    nonfinite: int = 0
    high: int = 0
    cv: float = 0.0
    skewness: float = 0.0
    kurtosis: float = 0.0
    extreme: list[Array] = field(default_factory=list)

    def add(self, other: Sums) -> None:
        """Take over another's."""
        for name in ("parameters", "constant", "zero_mean", "nonfinite", "high", "cv", "skewness", "kurtosis"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.extreme += other.extreme

    def record(self, layer: str, clients: int, fdr: float, cvs: np.ndarray) -> LayerDispersion:
        """As means, with the test's outcome at a false discovery rate.

        Args:
            cvs: of all these parameters, NaN where there is none; their order is lost.
        """
        moving = self.parameters - self.constant - self.nonfinite
        tested = moving if clients >= FEWEST else 0
        spread = moving - self.zero_mean
        skewed = moving if clients >= 3 else 0
        return LayerDispersion(
            layer,
            self.parameters,
            self.constant,
            self.zero_mean,
            self.nonfinite,
            mean_cv=self.cv / spread if spread else None,
            high_share=None if self.nonfinite or not self.parameters else self.high / self.parameters,
            skew_mean_abs=self.skewness / skewed if skewed else None,
            tested=tested,
            rejected=count_skewed(_joined(self.extreme), clients, tested, fdr) if tested else 0,
            kurtosis_mean=self.kurtosis / skewed if skewed else None,
            median_cv=_median(cvs, spread) if spread else None,
        )


class Layer:
    """Room for every parameter's cv of one layer, for what hangs on all of them: FedSA's scale, and the median.

    ``cvs`` [size], float32, gets those that exist once the layer is finished, and NaN elsewhere.
    """

    def __init__(self, name: str, cvs: np.ndarray) -> None:
        size = len(cvs)
        self.name, self.missing, self.cvs = name, size, cvs
        self.cv = np.empty(size)
        self.left_out = np.zeros(size, np.bool_)
        self.parts: dict[int, Sums] = {}
        self.lock = Lock()

    def measure(self, found: Moments, start: int, clients: int, fdr: float) -> Sums:
        """The sums of some columns, the first of which is the ``start``-th; for several threads at once. Statistics are
        changed in place."""
        count = len(found.mean)
        here = slice(start, start + count)
        constant, cv = found.constant, found.cv
        size = np.abs(found.mean)
        counts, skewness, spread = Sums(count), found.skewness, cv
        last = found.kurtosis if clients >= 3 else found.deviation
        added = float(last.sum())
        if constant.any() or size.min() < TINY or not isfinite(added):
            moving, small = np.isfinite(last) & ~constant, size < TINY
            cv[small] = found.deviation[small] / TINY  # as FedSA's cv is defined here
            cv[constant] = 0.0
            zero = moving & (size == 0)
            counts = Sums(count, int(constant.sum()), int(zero.sum()), count - int(moving.sum()) - int(constant.sum()))
            left_out = ~moving | zero
            self.left_out[here] = left_out
            skewness, spread, added = skewness[moving], cv[~left_out], float(last[moving].sum())
        self.cv[here] = cv
        counts.cv = float(spread.sum())
        if clients >= 3:
            np.abs(skewness, out=skewness)
            counts.skewness, counts.kurtosis = float(skewness.sum()), added
        if clients >= FEWEST:
            # a hair less than the critical value, so that rounding leaves none of them out
            counts.extreme = [skewness[skewness >= (1 - HAIR) * critical_skewness(fdr, clients)]]
        return counts

    def add(self, start: int, counts: Sums) -> bool:
        """Take over the sums of a piece; whether it was the last that was missing."""
        with self.lock:
            self.parts[start] = counts
            self.missing -= counts.parameters
            return not self.missing

    def finish(self) -> Sums:
        """The sums of the layer, once all its columns have been measured, whoever measured them first."""
        sums = Sums()
        for start in sorted(self.parts):
            sums.add(self.parts[start])
        with np.errstate(over="ignore", invalid="ignore"):
            sums.high = int(np.count_nonzero(high_entries(self.cv, CV_THRESHOLD)))
        if self.left_out.any():
            self.cv[self.left_out] = np.nan
        with np.errstate(over="ignore"):
            self.cvs[:] = self.cv
        return sums


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0), *parts])


def _median(values: np.ndarray, count: int) -> float:
    """As ``np.nanmedian``, which takes four times as long; in place. ``count`` are not NaN: those go to the end."""
    middle = count // 2
    values.partition(middle)
    upper = float(values[middle])
    return upper if count % 2 else (float(values[:middle].max()) + upper) / 2
