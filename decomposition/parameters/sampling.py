"""A sample of a model's parameters, in proportion to its layers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...checkpoints import Layout

#: a layer with fewer parameters in proportion has at least so many in the sample, or all it has
LEAST = 20


def sample_counts(sizes: npt.NDArray[np.int64], count: int, least: int = LEAST) -> npt.NDArray[np.int64]:
    """How many of each layer's parameters are in a sample of ``count``: in proportion, but at least ``least``.

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
    replacement with a generator of (seed, layer), so that a layer's draw hangs on no other layer.

    >>> from fedscope.checkpoints import Entry
    >>> layout = Layout((Entry("w", (2, 3), "float32", "parameter"), Entry("b", (2,), "float32", "parameter")))
    >>> sample_columns(layout, 8).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    where = list(layout.slices.values())
    counts = sample_counts(np.array([one.stop - one.start for one in where], np.int64), count, least)
    drawn = [
        one.start + np.sort(np.random.default_rng([seed, i]).choice(one.stop - one.start, int(n), replace=False))
        for i, (one, n) in enumerate(zip(where, counts, strict=True))
        if n
    ]
    return np.concatenate(drawn).astype(np.int64) if drawn else np.empty(0, np.int64)
