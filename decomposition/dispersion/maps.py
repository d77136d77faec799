"""Where in a layer its clients are skewed: a histogram of skewness, and its mean by mean and deviation."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, sqrt

import numpy as np

from ...checkpoints import FedscopeError, Round, read_pieces
from .dispersing import NUMBERS, count_clients
from .moments import Array, Moments, column_moments
from .records import Cells, LayerMap, SkewHistogram

# Cells across a map; parameters that its limits are taken from; values whose skewness is the expected one.
ACROSS, SAMPLE, SIMULATED = 40, 100_000, 500_000
# Of a standard deviation of a normal sample's skewness, a bin of the histogram.
BIN = 0.2


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
    low, high = _limits(list(_moments(round_, layer, every)))
    edges = skew_edges(clients)
    counts = np.zeros(len(edges) - 1, np.int64)
    grid = Grid(low, high)
    for found in _moments(round_, layer, 1):
        fine = np.isfinite(found.skewness)
        skewness = np.clip(found.skewness[fine], edges[0], edges[-1])  # of clients that differ in a last digit
        counts += np.histogram(skewness, edges)[0]
        grid.add(found.mean[fine], np.log10(found.deviation[fine]), skewness)
    return LayerMap(
        run, round_.number, layer, clients, SkewHistogram(edges, counts, expected_shares(edges, clients)), grid.cells()
    )


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
        """The hexagons that hold a parameter."""
        held = np.flatnonzero(self.count)
        rest, j = np.divmod(held, self.shape[1] + 1)
        second, i = np.divmod(rest, self.shape[0] + 1)
        centres = (np.stack([i, j]) + 0.5 * second) / self.shape[:, None]
        mean, log_deviation = self.low[:, None] + centres * (self.high - self.low)[:, None]
        width, height = ((self.high - self.low) / self.shape).tolist()
        return Cells(width, height, mean, 10**log_deviation, self.count[held], self.skewness[held] / self.count[held])


def _moments(round_: Round, layer: str, every: int) -> Iterator[Moments]:
    """Of every ``every``-th parameter of a layer."""
    clients = len(round_.client_ids)
    buffer = np.empty(max(NUMBERS, clients), round_.layout.dtype)
    for piece in read_pieces(round_, max(1, NUMBERS // clients), [layer]):
        yield column_moments(piece.read(buffer)[:, -piece.start % every :: every])


def _limits(found: list[Moments]) -> tuple[Array, Array]:
    """The least and greatest μ and log10 σ of a map."""
    kept = [np.isfinite(one.skewness) for one in found]
    if not any(fine.any() for fine in kept):
        return np.zeros(2), np.ones(2)
    mean = np.concatenate([one.mean[fine] for one, fine in zip(found, kept, strict=True)])
    deviation = np.concatenate([one.deviation[fine] for one, fine in zip(found, kept, strict=True)])
    low, high = np.quantile(np.stack([mean, np.log10(deviation)]), [0.001, 0.999], axis=1)
    same = np.where(high > low, 0.0, np.maximum(np.abs(low), 1e-3) / 2)  # of a single value
    return low - same, high + same
