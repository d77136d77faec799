"""A surface from some of its points: measured where it is hard to tell, interpolated elsewhere, and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isqrt

import numpy as np
from scipy.interpolate import LinearNDInterpolator, RBFInterpolator
from scipy.spatial import Delaunay, KDTree

from ....checkpoints import FedscopeError
from ....plotting.levels import depth, levels
from ..point_counts import START, USUAL, budget

#: Flat indices of grid points -> their losses and errors, in that order.
Measure = Callable[[Sequence[int]], tuple[np.ndarray, np.ndarray]]

#: Folds of the cross-validation, the least points of a step.
FOLDS, STEP = 10, 8
#: Points a side of the first lattice, and the least points of a step, where a base is known, of which only a slowly
#: varying difference is fitted; points that are held out where the base is lowest; and below which part of what is
#: tolerated it ends, with a base and without.
BASE_START, BASE_STEP, BASE_LOWEST, BASE_ENDS, ENDS = 5, 6, 8, 0.6, 0.5
#: Of more than MANY points only the nearest NEIGHBOURS make a value: slower, but without an n x n matrix.
MANY, NEIGHBOURS = 600, 60

#: What is tolerated beside a share t of the range: 50 t bands of the colour scale, and 4 t of the loss itself over the
#: lowest tenth of the points. With t = 0.005 that is a quarter of a band, and 2 %.
BANDS, ITSELF, LOWEST = 50.0, 4.0, 0.1
#: Losses that differ by less than a millionth are one flat surface in float32.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Refined:
    """A surface of which a part was computed.

    Attributes:
        loss, error: [b, a]; as measured where computed, interpolated elsewhere, NaN at the ``unknown`` points.
        computed: which points were measured, [b, a].
        held_out: measured points that the interpolation was not made from, and was checked at.
        loss_error: greatest |interpolated − measured| at them over max − min of the finite measured losses; infinite
            where none could be checked, 0 where everything was computed.
        loss_relative: greatest |interpolated − measured| / measured at them, which the range hides near the minimum.
        loss_low: the same of those within the lowest tenth of the surface's losses; 0 where none of them is.
        loss_bands: greatest difference at them in bands of the colour scale.
        beyond: greatest difference at them over the tolerated one (:class:`Tolerances`); at most 1: the aim is met.
        error_error, error_rms: greatest and root mean square of the same difference of the share misclassified.
        unknown: points neither computed nor interpolated, because a measured neighbour is not finite.
    """

    loss: np.ndarray
    error: np.ndarray
    computed: np.ndarray
    held_out: int
    loss_error: float
    loss_relative: float
    loss_low: float
    loss_bands: float
    beyond: float
    error_error: float
    error_rms: float
    unknown: int

    @property
    def met(self) -> bool:
        """Whether the aim is: at the held-out points, and no point is unknown."""
        return self.beyond <= 1 and not self.unknown


@dataclass(frozen=True, eq=False)
class RoughSurface:
    """A surface near the one that is wanted, known everywhere: [b, a] each; of the error NaN where there is none."""

    loss: np.ndarray
    error: np.ndarray


def refine(
    shape: tuple[int, int],
    measure: Measure,
    *,
    share: float = USUAL,
    tolerance: float = 0.005,
    seed: int = 0,
    base: RoughSurface | None = None,
    known: np.ndarray | None = None,
    sized: int | None = None,
) -> Refined:
    """Compute the surface on an evenly spaced grid [b, a], from at most :func:`budget` of its points.

    From a lattice of 7 x 7 on, each step adds a quarter more points where the surface is hardest to tell: by what
    ten-fold cross-validation misses at the points around, as a share of what is tolerated there, times the squared
    distance from them. Tolerated are ``tolerance`` of the range, 50 times so much of a band of the colour scale, and
    over the lowest tenth of the points 4 times so much of the loss itself (0.5 %, a quarter, 2 %). The loss is
    interpolated by quintic radial basis functions on sqrt(loss), the axes scaled to [0, 1]: far out a loss is close to
    a power of the distance, and a square is never below 0 (were losses below 0: on the loss itself). The error, which
    moves in steps of one sample, is interpolated linearly in Delaunay triangles.

    Checked are points that are not fitted: a random one in each of 16 to 64 equal blocks, and the last step's, which
    were trusted least. It ends once they differ by half of what is tolerated at most, or the budget is spent; where it
    goes on from ``known`` points, which a smaller budget ended at, once they differ by what is tolerated, in steps that
    grow no more. Once all points are measured nothing is interpolated, and nothing is off. In triangles with a corner
    that is not finite nothing is interpolated: half of each step goes there, and what it does not reach stays NaN.

    Args:
        shape: points along b and along a.
        measure: the same values lead to the same choices, so an interrupted refinement goes on from a store of them.
        share: of the points that may be computed.
        tolerance: greatest difference of the loss at the held-out points, as a share of its range.
        seed: of the held-out points and the folds.
        base: a surface near this one. Then only the difference of sqrt(loss) from it is interpolated, by cubic radial
            basis functions, and of the error the difference; it begins with 5 x 5 points and those held out, of which
            some lie where the base is lowest, and ends at six tenths of what is tolerated.
        known: [b, a], points that have been measured before, which count as such from the start.
        sized: how many points the steps and the held-out points are sized for, at most; by default :data:`USUAL` of
            them. Neither grows with a larger share, so that what a smaller one measured is where a larger one begins.

    Raises:
        FedscopeError: a share outside 0 to 1, a tolerance that is not positive.

    >>> a, b = np.meshgrid(np.linspace(-1, 1, 51), np.linspace(-1, 1, 51))
    >>> found = refine(a.shape, lambda points: ((2 + a**2 + b).flat[points] ** 2, (0.5 + a / 4).flat[points]))
    >>> int(found.computed.sum()), found.held_out, found.loss_error < 0.0025
    (130, 81, True)
    """
    if not 0 < share <= 1:
        raise FedscopeError(f"a share of {share:g} of the points cannot be computed; give one above 0 and at most 1")
    if not tolerance > 0:
        raise FedscopeError(f"no interpolation is within {tolerance:g} of the range; give a tolerance above 0 (0.005)")
    loss, error = np.full(shape, np.nan), np.full(shape, np.nan)
    measured, fitted = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)

    def ask(points: np.ndarray) -> None:
        loss.flat[points], error.flat[points] = measure([int(i) for i in points])
        measured.flat[points] = True

    most, sized = budget(shape, share), min(budget(shape, share), sized or budget(shape))
    if sized == loss.size:
        ask(np.arange(loss.size))
        return _all_measured(loss, error, measured)
    side = min(START if base is None else BASE_START, isqrt(sized // 2))
    fitted[np.ix_(*(np.round(np.linspace(0, count - 1, side)).astype(int) for count in shape))] = True
    if base is None:
        held = _scatter(fitted, min(64, max(16, sized // 8)), seed)
        least, ends = max(STEP, sized // 10), ENDS  # so that the last step, too, checks enough
    else:
        held = np.union1d(_scatter(fitted, 16, seed), _lowest(base.loss, fitted, BASE_LOWEST, seed))
        least, ends = BASE_STEP, BASE_ENDS
    first = np.concatenate([np.flatnonzero(fitted), held])
    if known is not None and known.any():
        ask(np.flatnonzero(known))
        first, ends = first[~known.flat[first]][: max(0, most - int(known.sum()))], 1.0
        fitted |= known
    largest = loss.size if known is None or not known.any() else 2 * least
    ask(first)
    fitted &= measured
    fitted.flat[held] = False
    while True:
        smooth, doubt = _interpolate(loss, fitted & np.isfinite(loss), tolerance, seed, base)
        left = most - int(measured.sum())
        count = left if left < 2 * least else min(max(least, int(fitted.sum()) // 4), largest, left - least)
        step = _hardest(loss, measured, fitted, doubt, max(0, count))
        ask(step)
        if measured.all():
            return _all_measured(loss, error, measured)
        found = _check(loss, error, measured, fitted, smooth, tolerance, base)
        if measured.sum() >= most or (found.beyond <= ends and not found.unknown):
            return found
        fitted.flat[step] = True


def _all_measured(loss: np.ndarray, error: np.ndarray, measured: np.ndarray) -> Refined:
    """A surface of which nothing is interpolated, so that nothing is off."""
    return Refined(loss, error, measured, 0, *(0.0,) * 7, 0)


def _scatter(taken: np.ndarray, count: int, seed: int) -> np.ndarray:
    """A random point that is not taken in each of about ``count`` equal blocks."""
    draw = np.random.default_rng(seed)
    down = min(count, max(1, round(np.sqrt(count * taken.shape[0] / taken.shape[1]))))
    strips = np.array_split(np.arange(taken.size).reshape(taken.shape), down)
    blocks = [block for strip in strips for block in np.array_split(strip, count // down, axis=1)]
    return np.array([draw.choice(free) for free in (block[~taken.flat[block]] for block in blocks) if free.size])


def _lowest(loss: np.ndarray, taken: np.ndarray, count: int, seed: int) -> np.ndarray:
    """So many random points that are not taken in the lowest tenth of a surface."""
    free = np.flatnonzero((loss <= np.quantile(loss, LOWEST)) & ~taken)
    return np.random.default_rng((seed, count)).choice(free, min(count, len(free)), replace=False)


def _places(shape: tuple[int, ...]) -> np.ndarray:
    """Coordinates of all points, [b, a, 2], from 0 to 1."""
    return np.stack(np.meshgrid(*(np.linspace(0, 1, count) for count in shape), indexing="ij"), axis=-1)


def _interpolate(
    loss: np.ndarray, used: np.ndarray, tolerance: float, seed: int, base: RoughSurface | None
) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate the loss at every point, NaN where those used do not tell it, with the cross-validation error around
    it.

    The latter over what is tolerated where it misses.
    """
    grid, values = _places(loss.shape), loss[used]
    at, missed, nothing = grid[used], np.empty(len(values)), (np.full(loss.shape, np.nan), np.zeros(loss.shape))
    if len(values) < FOLDS:
        return nothing
    rooted = bool(values.min() >= 0 and (base is None or base.loss.min() >= 0))
    root, back = (np.sqrt, np.square) if rooted else (np.asarray, np.asarray)
    under = np.zeros(loss.shape) if base is None else root(base.loss)
    true, values = values, root(values) - under[used]

    kernel = "quintic" if base is None else "cubic"
    make = partial(RBFInterpolator, kernel=kernel, neighbors=NEIGHBOURS if len(at) > MANY else None)
    fold = np.random.default_rng(seed).permutation(len(at)) % FOLDS
    try:
        smooth = back(under + make(at, values)(grid.reshape(-1, 2)).reshape(loss.shape))
        for rest in (fold != k for k in range(FOLDS)):
            left_out = back(under[used][~rest] + make(at[rest], values[rest])(at[~rest]))
            missed[~rest] = np.abs(left_out - true[~rest])
    except np.linalg.LinAlgError:  # points on one line or conic
        return nothing
    missed /= Tolerances.of(smooth.clip(true.min(), true.max()), tolerance).at(true)
    distance, near = KDTree(at).query(grid, k=3)
    weight = 1 / np.maximum(distance, 1e-12)
    return smooth, (missed[near] * weight).sum(axis=-1) / weight.sum(axis=-1)


def _triangles(loss: np.ndarray, corners: np.ndarray) -> tuple[Delaunay, np.ndarray]:
    """Delaunay triangles, and how many corners of each point's triangle are finite."""
    grid = _places(loss.shape)
    triangles = Delaunay(grid[corners])
    finite = np.isfinite(loss[corners])[triangles.simplices].sum(axis=1)
    return triangles, np.append(finite, 0)[triangles.find_simplex(grid)]  # -1, of a point in none, finds the 0


def _hardest(loss: np.ndarray, measured: np.ndarray, fitted: np.ndarray, doubt: np.ndarray, count: int) -> np.ndarray:
    """Return the next points; half of them, if there are so many, in triangles with a corner that is not finite."""
    grid = _places(loss.shape)
    corners = fitted | (measured & ~np.isfinite(loss))
    hole, finite = np.ravel(KDTree(grid[corners]).query(grid)[0]), _triangles(loss, corners)[1].ravel()
    order = np.lexsort((-hole, -doubt.ravel() * hole**2))
    sound = order[(~measured.ravel() & (finite == 3))[order]]
    # the border of what is finite before the inside of what is not
    order = np.lexsort((-hole, finite == 0))
    broken = order[(~measured.ravel() & (finite < 3))[order]]
    chosen: list[int] = []
    for group, upto in ((broken, max(count // 2, count - len(sound))), (sound, count)):
        far = np.ones(len(hole), dtype=bool)
        for i in group:  # none nearer to an earlier one than that one is to the points there already
            if len(chosen) < upto and far[i]:
                chosen.append(int(i))
                far &= np.hypot(*(grid.reshape(-1, 2) - grid.reshape(-1, 2)[i]).T) > 0.99 * hole[i]
        chosen += group[~np.isin(group, chosen)][: max(0, upto - len(chosen))].tolist()
    return np.array(chosen, dtype=np.int64)


def _check(
    loss: np.ndarray,
    error: np.ndarray,
    measured: np.ndarray,
    fitted: np.ndarray,
    smooth: np.ndarray,
    tolerance: float,
    base: RoughSurface | None,
) -> Refined:
    """Return the surface, and how far it is off at measured points that were not fitted."""
    finite = np.isfinite(loss)
    corners = fitted | (measured & ~finite)
    triangles, sound = _triangles(loss, corners)
    under = np.zeros(loss.shape) if base is None else base.error
    linear = LinearNDInterpolator(triangles, (error - under)[corners])(_places(loss.shape)) + under
    known = (sound == 3) & np.isfinite(smooth)
    held = measured & ~fitted & finite & known
    surface = np.where(measured, loss, np.where(known, smooth, np.nan))
    off, misses, true = np.abs(smooth - loss)[held], np.abs(linear - error)[held], loss[held]
    relative = off / np.maximum(np.abs(true), np.finfo(float).tiny)
    span, low, bands, beyond = 1.0, relative[:0], off, off
    if len(off):
        allowed = Tolerances.of(surface[np.isfinite(surface)].clip(loss[finite].min(), loss[finite].max()), tolerance)
        span, low, beyond = allowed.span, relative[true <= allowed.low], off / allowed.at(true)
        bands = allowed.bands(smooth[held], true)
    return Refined(
        loss=surface,
        error=np.where(measured, error, np.where(known, linear, np.nan)),
        computed=measured,
        held_out=len(off),
        loss_error=float(off.max()) / span if len(off) else float("inf"),
        loss_relative=float(np.max(relative, initial=0.0)),
        loss_low=float(np.max(low, initial=0.0)),
        loss_bands=float(np.max(bands, initial=0.0)),
        beyond=float(beyond.max()) if len(off) else float("inf"),
        error_error=float(np.max(misses, initial=0.0)),
        error_rms=float(np.sqrt(np.mean(misses**2))) if len(off) else 0.0,
        unknown=int((~measured & ~known).sum()),
    )


@dataclass(frozen=True, eq=False)
class Tolerances:
    """Tolerated errors on a surface whose finite losses are ``known`` [n], as far as one knows.

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
        """Return the tolerances for a surface."""
        # what rounding makes of a loss of 0 is a difference, too
        span = max(float(np.ptp(known)), ROUNDING * float(np.abs(known).max()), np.finfo(float).tiny)
        return cls(share, levels(known, float(known.min()))[0], float(np.quantile(known, LOWEST)), span)

    def at(self, loss: np.ndarray) -> np.ndarray:
        """Return the greatest difference tolerated where the loss is ``loss``, the same shape; above 0."""
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
        """Count the bands of the colour scale that lie between two losses; all above the last edge look alike."""
        first, second = (depth(np.clip(values, self.edges[0], self.edges[-1]), self.edges) for values in (loss, other))
        between: np.ndarray = np.abs(first - second)
        return between
