"""Selection of parameters: the most skewed over a round's clients, or a sample in proportion to the layers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError, Layout, Round, read_columns
from ..dispersion.statistics import column_moments
from .parameter_names import ParameterPlace, place_of

#: skewness is compared to so many decimals, so that parameters of equal skewness are equal whatever the rounding
DECIMALS = 9
# A deviation of fewer rounding steps than this is left out: models that hardly train a parameter differ in its last
# digits, whose skewness is the rounding's. From here on skewness has three digits.
RESOLVED = 2**10
#: a layer with fewer parameters in proportion has at least so many in a sample, or all it has
LEAST = 20


def most_skewed(
    round_: Round, top: int = 4, progress: Callable[[int, int], None] | None = None
) -> tuple[ParameterPlace, ...]:
    """Return the ``top`` parameters with the greatest |skewness| over a round's C clients, at most one a layer.

    Where fewer layers have one, at most two a layer, and so on: the first of every layer by falling |skewness|, then
    the seconds. Of equals (|skewness| to nine decimals) the one that stands first in the model. |skewness| of C values
    is at most (C − 2)/√(C − 1), which they have where all but one are the same.

    Never chosen: parameters that are the same in all clients, or not finite in one, which have no skewness; and those
    that differ in their last digits only, σ < 1024 ε max_k |w_k| with ε the spacing of the dtype's numbers at 1, whose
    skewness is that of rounding.

    One pass over the clients on disk, a block in memory at a time.

    Args:
        progress: told the parameters seen and all of them.

    Raises:
        FedscopeError: ``top`` < 1; no clients; fewer than three of them; no parameter has a skewness.
    """
    if top < 1:
        raise FedscopeError(f"the {top} most skewed parameters are none; ask for 1 or more (--top 4)")
    best: dict[str, list[tuple[float, int]]] = {}
    for block in read_columns(round_):
        clients = len(block.values)
        if clients < 3:
            raise FedscopeError(
                f"{round_.label} has {clients} client{'s' if clients > 1 else ''}, but skewness exists from three on; "
                f"take a round with more clients{', or name parameters with --parameter' if clients == 2 else ''}"
            )
        skewness = resolved_skewness(block.values)
        greatest = [(-float(skewness[i]), block.start + i) for i in _greatest(skewness, top)]
        best[block.layer] = sorted([*best.get(block.layer, []), *greatest])[:top]
        if progress is not None:
            progress(block.where.stop, round_.layout.size)
    ranked = sorted(
        (rank, value, round_.layout.slices[layer].start + flat, layer, flat)
        for layer, greatest in best.items()
        for rank, (value, flat) in enumerate(greatest)
    )
    if not ranked:
        raise FedscopeError(
            f"{round_.label}: no parameter has a skewness, because each is the same in all clients, up to rounding, "
            "or not finite in one; name parameters with --parameter"
        )
    return tuple(place_of(round_.layout, layer, flat) for *_, layer, flat in ranked[:top])


def resolved_skewness(values: np.ndarray) -> npt.NDArray[np.float64]:
    """|skewness| of every column of ``values`` [C, n], to nine decimals; NaN where it does not exist or is rounding's.

    >>> small = np.finfo(np.float32).eps
    >>> resolved_skewness(np.array([[1, 1], [1, 1], [1 + small, 2]], np.float32)).round(3).tolist()
    [nan, 0.707]
    """
    moments = column_moments(values)
    step = np.finfo(values.dtype).eps * np.abs(values).max(0).astype(np.float64)
    there = moments.deviation >= RESOLVED * step
    return np.where(there, np.abs(moments.skewness).round(DECIMALS), np.nan)


def _greatest(values: npt.NDArray[np.float64], most: int) -> list[int]:
    """Find the places of the greatest ``most`` values, the first of equals, without NaN."""
    there = np.flatnonzero(~np.isnan(values))
    if len(there) > most:
        least = np.partition(values[there], -most)[-most]
        there = there[values[there] >= least]
    return [int(i) for i in there[np.argsort(-values[there], kind="stable")][:most]]


def sample_counts(sizes: npt.NDArray[np.int64], count: int, least: int = LEAST) -> npt.NDArray[np.int64]:
    """Count each layer's parameters in a sample of ``count``: in proportion, but at least ``least``.

    Layers whose proportional share is smaller than ``least`` get that many (all, where they have fewer), and the others
    share the rest in proportion, rounded down, the largest remainders up (ties: the earlier layer). Where ``count`` is
    too small for ``least`` a layer, the greatest least that it allows counts. All parameters, where there are fewer.

    Args:
        sizes: parameters of each layer, [L].

    >>> sample_counts(np.array([8192, 128, 640, 10]), 500).tolist()
    [436, 20, 34, 10]
    >>> sample_counts(np.array([8192, 128, 640, 10]), 30).tolist()
    [9, 7, 7, 7]
    """
    sizes = np.asarray(sizes, dtype=np.int64)
    if count >= sizes.sum():
        return sizes.copy()
    while np.minimum(sizes, least).sum() > count:
        least -= 1
    counts = np.minimum(sizes, least)
    free = np.ones(len(sizes), np.bool_)
    while True:
        rest, shared = count - int(counts[~free].sum()), int(sizes[free].sum())
        small = free & (rest * sizes < counts * shared)
        if not small.any():
            break
        free &= ~small
    # in whole numbers, so that equal remainders are equal
    quota, remainder = np.divmod(rest * sizes[free], shared)
    quota[np.argsort(-remainder, kind="stable")[: rest - int(quota.sum())]] += 1
    counts[free] = quota
    return counts


def sample_columns(layout: Layout, count: int, seed: int = 0, least: int = LEAST) -> npt.NDArray[np.int64]:
    """Columns of the flat vector [P], ascending: of each layer as many as :func:`sample_counts` says, drawn without
    replacement with a generator of (seed, layer), so that a layer's draw depends on no other layer.

    >>> from fedscope.checkpoints import TensorEntry
    >>> w, b = TensorEntry("w", (2, 3), "float32", "parameter"), TensorEntry("b", (2,), "float32", "parameter")
    >>> layout = Layout((w, b))
    >>> sample_columns(layout, 8).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    where = list(layout.slices.values())
    sizes = np.array([layer.stop - layer.start for layer in where], np.int64)
    drawn = [
        layer.start + np.sort(np.random.default_rng([seed, i]).choice(size, n, replace=False))
        for i, (layer, size, n) in enumerate(zip(where, sizes, sample_counts(sizes, count, least), strict=True))
    ]
    return np.concatenate([np.empty(0, np.int64), *drawn])
