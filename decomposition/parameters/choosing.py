"""Which parameters are the most skewed over a round's clients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError, Round, read_columns
from ..dispersion.statistics import column_moments
from .places import Place, place_of

#: skewness is compared to so many decimals, so that parameters of equal skewness are equal whatever the rounding
DECIMALS = 9
# A deviation of fewer rounding steps than this is left out: models that hardly train a parameter differ in its last
# digits, whose skewness is the rounding's. From here on skewness has three digits.
RESOLVED = 2**10


def most_skewed(round_: Round, top: int = 4, progress: Callable[[int, int], None] | None = None) -> tuple[Place, ...]:
    """The ``top`` parameters with the greatest |skewness| over a round's C clients, at most one a layer.

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
        found = [(-float(skewness[i]), block.start + i) for i in _greatest(skewness, top)]
        best[block.layer] = sorted([*best.get(block.layer, []), *found])[:top]
        if progress is not None:
            progress(block.where.stop, round_.layout.size)
    ranked = sorted(
        (rank, value, round_.layout.slices[layer].start + flat, layer, flat)
        for layer, found in best.items()
        for rank, (value, flat) in enumerate(found)
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
    """Where the greatest ``most`` values are, the first of equals, without NaN."""
    there = np.flatnonzero(~np.isnan(values))
    if len(there) > most:
        least = np.partition(values[there], -most)[-most]
        there = there[values[there] >= least]
    return [int(i) for i in there[np.argsort(-values[there], kind="stable")][:most]]
