"""Skewness within a layer: a histogram of skewness, and its mean by mean and deviation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError, Round, read_chunks
from .statistics import Array, ColumnMoments, column_moments

Rows = list[dict[str, Any]]

# Of all clients to read at a time: 8 MiB of float32. Of shorter pieces workers wait for Python's lock more often.
NUMBERS = 2**21
# Cells across a map; parameters that its limits are taken from; values whose skewness is the expected one.
ACROSS, SAMPLE, SIMULATED = 40, 100_000, 500_000
# Of a standard deviation of a normal sample's skewness, a bin of the histogram.
BIN = 0.2


@dataclass(frozen=True, eq=False)
class SkewHistogram:
    """Numbers of a layer's parameters by skewness, between ``edges`` [B + 1]: ``counts`` [B], and ``expected`` [B],
    the shares of independent normal values."""

    edges: Array
    counts: npt.NDArray[np.int64]
    expected: Array

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """low, high, count and expected share of every bin."""
        columns = (self.edges[:-1], self.edges[1:], self.counts, self.expected)
        return zip(*(column.tolist() for column in columns), strict=True)

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """Build it from the rows of :meth:`rows`, by name."""
        edges = np.concatenate([_column(rows[:1], "low"), _column(rows, "high")])
        return cls(edges, _column(rows, "count", np.int64), _column(rows, "expected"))


@dataclass(frozen=True, eq=False)
class Cells:
    """H hexagons of a map: their centres ``mean`` (μ) and ``deviation`` (σ), how many parameters each holds (``count``)
    and their mean ``skewness``, [H] each; ``width`` in μ and ``height`` in log10 σ from one centre to the next but one.
    """

    width: float
    height: float
    mean: Array
    deviation: Array
    count: npt.NDArray[np.int64]
    skewness: Array

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """mean, deviation, count and skewness of every hexagon."""
        columns = (self.mean, self.deviation, self.count, self.skewness)
        return zip(*(column.tolist() for column in columns), strict=True)

    @classmethod
    def of(cls, width: float, height: float, rows: Rows) -> Self:
        """Build it from the rows of :meth:`rows`, by name."""
        count = _column(rows, "count", np.int64)
        return cls(width, height, _column(rows, "mean"), _column(rows, "deviation"), count, _column(rows, "skewness"))


@dataclass(frozen=True, eq=False)
class LayerMap:
    """One layer of a round over C ``clients``, parameter by parameter."""

    run: str
    round: int
    layer: str
    clients: int
    histogram: SkewHistogram
    cells: Cells


def map_layer(round_: Round, layer: str, *, run: str) -> LayerMap:
    """A layer of a round, parameter by parameter: streamed twice, never held whole.

    The histogram has bins of equal width over all values that the skewness of C numbers can take, ±(C−2)/√(C−1). What
    is expected of C independent normal values is simulated: 500,000 of them, the same every time.

    The map has hexagons over μ and log10 σ. Its limits are the 0.1 and 99.9 % quantiles of at most 100,000 parameters
    evenly spread over the layer; what lies beyond counts in the outermost cells. Parameters that are constant or not
    finite have no skewness and are left out.

    Args:
        round_: with 3 clients or more.
        layer: the ``state_dict`` key of a parameter.
        run: what the record calls the run.

    Raises:
        FedscopeError: no clients, or fewer than three; no such parameter.
    """
    clients = count_clients(round_)
    if clients < 3:
        raise FedscopeError(f"{round_.label} has {clients} clients, and skewness begins at three; ask for other rounds")
    where = round_.layout.slices.get(layer, slice(0, 0))
    every = ceil((where.stop - where.start) / SAMPLE) or 1
    low, high = _limits(_moments(round_, layer, every))
    edges = skew_edges(clients)
    counts = np.zeros(len(edges) - 1, np.int64)
    grid = Grid(low, high)
    for moments in _moments(round_, layer, 1):
        fine = np.isfinite(moments.skewness)
        skewness = np.clip(moments.skewness[fine], edges[0], edges[-1])  # of clients that differ in a last digit
        counts += np.histogram(skewness, edges)[0]
        grid.add(moments.mean[fine], np.log10(moments.deviation[fine]), skewness)
    return LayerMap(
        run, round_.number, layer, clients, SkewHistogram(edges, counts, expected_shares(edges, clients)), grid.cells()
    )


def count_clients(round_: Round) -> int:
    """C.

    Raises:
        FedscopeError: only one, so that nothing is dispersed.
    """
    clients = len(round_.client_ids)
    if clients < 2:
        raise FedscopeError(
            f"{round_.label} has {clients} client, so there is no dispersion; ask for rounds with two or more, or "
            "train with more clients a round (--clients, --participation)"
        )
    return clients


def skew_edges(clients: int) -> Array:
    """Edges of the histogram, symmetric about 0."""
    # a hair wider, because the greatest skewness is exceeded by rounding
    greatest = (clients - 2) / sqrt(clients - 1) * (1 + 1e-9)
    spread = sqrt(6 * (clients - 2) / ((clients + 1) * (clients + 3)))
    return np.linspace(-greatest, greatest, 2 * ceil(greatest / (BIN * spread)) + 2)


def expected_shares(edges: Array, clients: int) -> Array:
    """Share of C independent normal values' skewness in each bin, simulated with one seed."""
    draw, count = np.random.default_rng(0), np.zeros(len(edges) - 1)
    for _ in range(10):
        skewness = column_moments(draw.standard_normal((clients, SIMULATED // 10))).skewness
        count += np.histogram(skewness, edges)[0]
    return (count + count[::-1]) / (2 * SIMULATED)  # it is symmetric


class Grid:
    """Hexagons, :data:`ACROSS` of them across, that count parameters and sum their skewness."""

    def __init__(self, low: Array, high: Array) -> None:
        self.low, self.high = low, high
        self.shape = np.array([ACROSS, round(ACROSS / sqrt(3))])
        size = 2 * int(np.prod(self.shape + 1))
        self.count, self.skewness = np.zeros(size, np.int64), np.zeros(size)

    def add(self, mean: Array, log_deviation: Array, skewness: Array) -> None:
        """Count parameters [n]."""
        at = (np.stack([mean, log_deviation]) - self.low[:, None]) / (self.high - self.low)[:, None]
        at = np.clip(at, 0.0, 1.0) * self.shape[:, None]
        # centres are two lattices of rectangles, one half a step aside in both directions: the nearer centre's it is
        corner, middle = np.rint(at), np.minimum(np.floor(at), self.shape[:, None] - 1)
        distances = [dx**2 + 3 * dy**2 for dx, dy in (at - corner, at - middle - 0.5)]
        second = distances[1] < distances[0]
        i, j = np.where(second, middle, corner).astype(np.int64)
        cell = (second * (self.shape[0] + 1) + i) * (self.shape[1] + 1) + j
        self.count += np.bincount(cell, minlength=len(self.count))
        self.skewness += np.bincount(cell, weights=skewness, minlength=len(self.count))

    def cells(self) -> Cells:
        """Return the hexagons that hold a parameter."""
        held = np.flatnonzero(self.count)
        rest, j = np.divmod(held, self.shape[1] + 1)
        second, i = np.divmod(rest, self.shape[0] + 1)
        centres = (np.stack([i, j]) + 0.5 * second) / self.shape[:, None]
        mean, log_deviation = self.low[:, None] + centres * (self.high - self.low)[:, None]
        width, height = ((self.high - self.low) / self.shape).tolist()
        return Cells(width, height, mean, 10**log_deviation, self.count[held], self.skewness[held] / self.count[held])


def _moments(round_: Round, layer: str, every: int) -> Iterator[ColumnMoments]:
    """Measure the moments of every ``every``-th parameter of a layer."""
    clients = len(round_.client_ids)
    buffer = np.empty(max(NUMBERS, clients), round_.layout.dtype)
    for piece in read_chunks(round_, max(1, NUMBERS // clients), [layer]):
        yield column_moments(piece.read(buffer)[:, -piece.start % every :: every])


def _limits(pieces: Iterable[ColumnMoments]) -> tuple[Array, Array]:
    """Return the least and greatest μ and log10 σ of a map."""
    mean, deviation = np.empty(0), np.empty(0)
    for piece in pieces:
        fine = np.isfinite(piece.skewness)
        mean, deviation = np.append(mean, piece.mean[fine]), np.append(deviation, piece.deviation[fine])
    if not len(mean):
        return np.zeros(2), np.ones(2)
    low, high = np.quantile(np.stack([mean, np.log10(deviation)]), [0.001, 0.999], axis=1)
    same = np.where(high > low, 0.0, np.maximum(np.abs(low), 1e-3) / 2)  # of a single value
    return low - same, high + same


def _column(rows: Rows, name: str, dtype: type = np.float64) -> np.ndarray:
    return np.array([row[name] for row in rows], dtype)
