"""The dispersion of a round's clients, in one pass over what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import isfinite
from threading import Event, Lock

import numpy as np

from ...checkpoints import ColumnChunk, FedscopeError, Round, read_chunks
from ...command_line import answering
from ...evaluation.device import CPU, Compute, run_in_workers
from ...training.methods.shared.micro_classes import TINY, high_entries
from .result import WHOLE, LayerDispersion, RoundDispersion
from .skew_maps import NUMBERS, count_clients
from .statistics import FEWEST, ROUNDING_MARGIN, Array, ColumnMoments, column_moments, count_skewed, critical_skewness

#: FedSA's, for cv scaled over a layer
CV_THRESHOLD = 0.2


def disperse_round(
    round_: Round,
    *,
    run: str,
    fdr: float = 0.05,
    numbers: int = NUMBERS,
    compute: Compute = CPU,
    progress: Callable[[int, int], None] | None = None,
) -> RoundDispersion:
    """Measure how the clients of a round differ, layer by layer, each number read once.

    For each of the M parameters of a layer (one parameter tensor) over the C clients, unweighted, in float64: μ, σ,
    cv = σ/|μ|, skewness and excess kurtosis (:func:`~fedscope.decomposition.dispersion.statistics.column_moments`), and
    from 8 clients on D'Agostino's test of skewness with Benjamini and Hochberg's control of the false discovery rate,
    within each layer and once over the whole model. Parameters are dependent, so the share rejected describes the
    clients and is no test of a layer.

    Memory: what each worker reads and computes at a time (some 20 MiB), 9 bytes a parameter of the layers in work, 4 of
    all, and 8 for every p-value of ``fdr`` or less.

    Args:
        round_: with its clients recorded.
        run: what the record calls the run.
        fdr: the false discovery rate, between 0 and 1.
        numbers: of all clients to read at a time.
        compute: where the moments are computed, in float64; their last digits differ between devices.
        progress: called with (parameters done, P).

    Raises:
        FedscopeError: no clients or only one; a rate out of range; a damaged file.
    """
    refuse_rate(fdr)
    layout, clients = round_.layout, count_clients(round_)
    cvs = np.empty(layout.size, np.float32)
    measured: dict[str, LayerDispersion] = {}
    whole, done = LayerSums(), 0

    def tasks() -> Iterator[tuple[LayerCVs, ColumnChunk]]:
        layer = LayerCVs("", cvs[:0])
        for piece in read_chunks(round_, max(1, numbers // clients)):
            if piece.layer != layer.name:
                layer = LayerCVs(piece.layer, cvs[layout.slices[piece.layer]])
            yield layer, piece

    def measure(
        task: tuple[LayerCVs, ColumnChunk], buffer: np.ndarray, stop: Event
    ) -> tuple[int, tuple[LayerSums, LayerDispersion] | None]:
        layer, piece = task
        sums = layer.measure(column_moments(piece.read(buffer), compute.device), piece.start, clients, fdr)
        if not layer.add(piece.start, sums):
            return piece.count, None
        sums = layer.finish()
        return piece.count, (sums, sums.record(layer.name, clients, fdr, layer.cv))

    def buffer() -> np.ndarray:
        return np.empty(max(numbers, clients), layout.dtype)

    for count, finished in run_in_workers(measure, tasks(), make=buffer, workers=compute.workers):
        done += count
        if finished is not None:
            whole.add(finished[0])
            measured[finished[1].layer] = finished[1]
        if progress is not None:
            progress(done, layout.size)
    empty = LayerSums().record("", clients, fdr, cvs[:0])
    layers = tuple(measured.get(name) or replace(empty, layer=name) for name in layout.slices)
    return RoundDispersion(run, round_.number, clients, layers, whole.record(WHOLE, clients, fdr, cvs))


def refuse_rate(fdr: float) -> None:
    """Refuse a false discovery rate outside (0, 1).

    Raises:
        FedscopeError: it is.
    """
    if not 0 < fdr < 1:
        raise FedscopeError(
            f"{'--fdr' if answering.get() else 'fdr ='} {fdr:g} is out of range: give one between 0 and 1, such as 0.05"
        )


@dataclass(eq=False)
class LayerSums:
    """Counts and sums over parameters; see :class:`~fedscope.decomposition.dispersion.result.LayerDispersion`.

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

    def add(self, other: LayerSums) -> None:
        """Take over another's."""
        for name in ("parameters", "constant", "zero_mean", "nonfinite", "high", "cv", "skewness", "kurtosis"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.extreme += other.extreme

    def record(self, layer: str, clients: int, fdr: float, cvs: np.ndarray) -> LayerDispersion:
        """Make the sums means, with the test's outcome at a false discovery rate.

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
            rejected=count_skewed(np.concatenate(self.extreme), clients, tested, fdr) if tested else 0,
            kurtosis_mean=self.kurtosis / skewed if skewed else None,
            median_cv=_median(cvs, spread) if spread else None,
        )


class LayerCVs:
    """Room for every parameter's cv of one layer, for what depends on all of them: FedSA's scale, and the median.

    ``cvs`` [size], float32, gets those that exist once the layer is finished, and NaN elsewhere.
    """

    def __init__(self, name: str, cvs: np.ndarray) -> None:
        size = len(cvs)
        self.name, self.missing, self.cvs = name, size, cvs
        self.cv = np.empty(size)
        self.left_out = np.zeros(size, np.bool_)
        self.parts: dict[int, LayerSums] = {}
        self.lock = Lock()

    def measure(self, moments: ColumnMoments, start: int, clients: int, fdr: float) -> LayerSums:
        """Compute the sums of some columns, the first of which is the ``start``-th; for several threads at once.
        Statistics are changed in place."""
        count = len(moments.mean)
        here = slice(start, start + count)
        constant, cv = moments.constant, moments.cv
        size = np.abs(moments.mean)
        counts, skewness, spread = LayerSums(count), moments.skewness, cv
        last = moments.kurtosis if clients >= 3 else moments.deviation
        added = float(last.sum())
        if constant.any() or size.min() < TINY or not isfinite(added):
            moving, small = np.isfinite(last) & ~constant, size < TINY
            cv[small] = moments.deviation[small] / TINY  # as FedSA's cv is defined here
            cv[constant] = 0.0
            zero = moving & (size == 0)
            counts = LayerSums(
                count, int(constant.sum()), int(zero.sum()), count - int(moving.sum()) - int(constant.sum())
            )
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
            counts.extreme = [skewness[skewness >= (1 - ROUNDING_MARGIN) * critical_skewness(fdr, clients)]]
        return counts

    def add(self, start: int, counts: LayerSums) -> bool:
        """Take over the sums of a piece; whether it was the last that was missing."""
        with self.lock:
            self.parts[start] = counts
            self.missing -= counts.parameters
            return not self.missing

    def finish(self) -> LayerSums:
        """Finish the sums of the layer, once all its columns have been measured, in any order."""
        sums = LayerSums()
        for start in sorted(self.parts):
            sums.add(self.parts[start])
        with np.errstate(over="ignore", invalid="ignore"):
            sums.high = int(np.count_nonzero(high_entries(self.cv, CV_THRESHOLD)))
        if self.left_out.any():
            self.cv[self.left_out] = np.nan
        with np.errstate(over="ignore"):
            self.cvs[:] = self.cv
        return sums


def _median(values: np.ndarray, count: int) -> float:
    """Find the median as ``np.nanmedian`` does, which takes four times as long; in place. ``count`` are not NaN: those
    go to the end."""
    middle = count // 2
    values.partition(middle)
    upper = float(values[middle])
    return upper if count % 2 else (float(values[:middle].max()) + upper) / 2
