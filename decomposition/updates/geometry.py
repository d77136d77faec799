"""What the products of a round's updates say: angles, lengths, and how much of them cancels in the mean."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .result import RoundUpdates

Array = npt.NDArray[np.float64]


def geometry(products: Array, p: Array, *, number: int, client_ids: npt.NDArray[np.int64]) -> RoundUpdates:
    """The geometry of one round's updates, see :class:`RoundUpdates`.

    The direction of an update that is zero does not exist: its cosines are NaN, and the mean, the extremes and the
    standard error are those of the pairs of other clients. A client that diverged makes them NaN.

    Args:
        products: [C+1, C+1], as :func:`~fedscope.decomposition.updates.update_products` makes them.
        p: [C], the weights of the clients, sum 1.

    >>> # one step to the east, two to the north: products of (1, 0), (0, 2) and their mean (1/2, 1)
    >>> products = np.array([[1, 0, 0.5], [0, 4, 2.0], [0.5, 2.0, 1.25]])
    >>> one = geometry(products, np.array([0.5, 0.5]), number=1, client_ids=np.array([3, 8]))
    >>> one.cosine_mean, one.mean_norm, round(one.cancellation, 6), one.diversity
    (0.0, 1.5, 0.745356, 2.0)
    """
    clients = len(p)
    squared = np.diagonal(products).copy()
    norm = np.sqrt(squared[:clients])
    moved = norm != 0
    length = np.where(moved, norm, np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        cosine = products[:clients, :clients] / np.outer(length, length)
        # 1 by definition, and not the last digit of a root squared; what is not finite stays
        np.fill_diagonal(cosine, np.where(np.isfinite(length), 1.0, np.nan))
        mean, stderr, least, greatest = _pairs(cosine[np.ix_(moved, moved)])
        mean_norm, square = float(p @ norm), float(p @ squared[:clients])
        own = math.sqrt(float(p**2 @ squared[:clients]))
    return RoundUpdates(
        round=number,
        client_ids=np.asarray(client_ids, np.int64),
        weights=np.asarray(p, np.float64),
        norm=norm,
        cosine=cosine,
        cosine_mean=mean,
        cosine_stderr=stderr,
        cosine_min=least,
        cosine_max=greatest,
        mean_norm=mean_norm,
        norm_of_mean=float(np.sqrt(squared[clients])),
        orthogonal=own / mean_norm if mean_norm else math.nan,
        diversity=_ratio(square, float(squared[clients])),
    )


def _pairs(cosine: Array) -> tuple[float, float, float, float]:
    """Mean over pairs, its standard error, least and greatest; NaN where there is no pair.

    The error is a jackknife over clients: θ_(−i) is the mean of the pairs without client i, from three clients on
    sqrt((C−1)/C Σ_i (θ_(−i) − mean_i θ_(−i))²). Pairs that share a client depend on each other, so that a standard
    error over pairs would be too small.
    """
    clients = len(cosine)
    if clients < 2:
        return (math.nan,) * 4
    values = cosine[np.triu_indices(clients, 1)]
    mean, least, greatest = float(values.mean()), float(values.min()), float(values.max())
    if clients < 3:
        return mean, math.nan, least, greatest
    off = cosine.copy()
    np.fill_diagonal(off, 0.0)
    without = (values.sum() - off.sum(axis=1)) / ((clients - 1) * (clients - 2) / 2)
    return mean, float(np.sqrt((clients - 1) * without.var())), least, greatest


def _ratio(above: float, below: float) -> float:
    """above / below; infinite where only ``below`` is 0, NaN where both are."""
    if below == 0:
        return math.inf if above > 0 else math.nan
    return above / below
