"""Means of adapters, and how far each is from the mean of what the adapters do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...checkpoints import Round
from ...checkpoints.models.low_rank import best_of_rank, difference, norm, singular_values, stacked
from ...checkpoints.models.products import Adapters
from ...results import Serializable
from .recorded_adapters import Factors, eps_of, factors_of

Array = npt.NDArray[np.float64]

#: kinds of mean that fit the adapter, by their name in tables
MEANS = ("factors", "products", "frozen_a")
#: the last row's label
ALL_LAYERS = "all layers"
#: of M: a recorded model that is nearer to one of its means than this was made by it; float32 rounds to 1e-7
SAME = 1e-4
#: of M: means that are as near as this to the nearest one are told to be the first of them in ``MEANS``
TIED = 1e-6


@dataclass(frozen=True)
class LayerMeans(Serializable):
    """One layer of one round, with M = Σ_i p_i s B_i A_i.

    Attributes:
        layer: its name, or ``all layers``, of which squared norms are added up.
        rank: of the adapter; None of all layers together.
        norm: ‖M‖; moved: ‖M − s B_0 A_0‖, what the clients' mean has changed, None without the round's ``start``.
        factors: ‖(Σ p_i B_i)(Σ p_i A_i) s − M‖ / ‖M‖, the aggregation error of averaging factors.
        products: the same of M's best approximation of the adapter's rank.
        frozen_a: of Σ p_i B_i with the start's A; None without ``start``.
        recorded: of the round's ``global``; None where that was not recorded.
        recorded_is: which of these means that is, ``other`` for none of them; "" where it was not recorded. Of means
            that are the same, as where no client has changed A, the first in this order.
        factors_of_moved: the error of averaging factors over ``moved`` instead of ‖M‖.
        effective_rank: of M, exp of the entropy of its singular values (σ_i / Σσ); None of all layers together.
        cost, cost_stderr: of all layers together the loss of the mean of factors less that of ``products``, and its
            standard error over samples; None where it was not measured, and of single layers.
        error_cost, error_cost_stderr: the same of the error, 0..1; None for tasks without one.
    """

    round: int
    layer: str
    rank: int | None
    norm: float
    moved: float | None
    factors: float
    products: float
    frozen_a: float | None
    recorded: float | None
    recorded_is: str
    factors_of_moved: float | None
    effective_rank: float | None
    cost: float | None = None
    cost_stderr: float | None = None
    error_cost: float | None = None
    error_cost_stderr: float | None = None


@dataclass(frozen=True)
class RoundAdapterMeans(Serializable):
    """One round: a row a layer, all layers last."""

    cells: tuple[LayerMeans, ...]


@dataclass(frozen=True)
class _Distances:
    """Norms of one layer: of M, of its change, and of the differences of means and the recorded model to M; and by how
    much the product of the recorded factors may be off because they are kept in half precision."""

    norm: float
    moved: float | None
    to_mean: dict[str, float]
    recorded_to: dict[str, float]
    rounding: float


@np.errstate(invalid="ignore", over="ignore")  # of clients that diverged, who are told
def round_means(round_: Round, adapters: Adapters) -> RoundAdapterMeans:
    """Measure a round's means of adapters, see :class:`LayerMeans`. Of all clients one pair of factors is held at a
    time, and no product is formed.

    Raises:
        FedscopeError: the round has no clients.
    """
    p = np.asarray(round_.weights, np.float64)
    start = "start" in round_.models
    recorded, eps = "global" in round_.models, eps_of(round_)
    found, cells = [], []
    for product in adapters.products:
        own = factors_of(round_, product)[p > 0]  # a client of weight 0 may have diverged
        sent = factors_of(round_, product, "start") if start else None
        made = factors_of(round_, product, "global") if recorded else None
        mean = stacked(own.b, own.a, p[p > 0])
        distances = _distances(own, mean, p[p > 0], product.rank, sent, made, eps)
        found.append(distances)
        values = singular_values(*mean)
        cells.append(_cell(round_.number, product.name, product.rank, distances, effective_rank(values)))
    return RoundAdapterMeans((*cells, _cell(round_.number, ALL_LAYERS, None, _together(found), None)))


def means_of(own: Factors, p: Array, rank: int, sent: Factors | None) -> Iterator[tuple[str, tuple[Array, Array]]]:
    """Yield the means that fit an adapter: their names, and B [out, r] and A [r, in]."""
    b = np.tensordot(p, own.b, axes=1)
    yield "factors", (b, np.tensordot(p, own.a, axes=1))
    yield "products", best_of_rank(*stacked(own.b, own.a, p), rank)
    if sent is not None:
        yield "frozen_a", (b, sent.a[0])


def effective_rank(values: Array) -> float:
    """exp(−Σ q log q) with q = σ/Σσ; 0 where all σ are 0.

    >>> round(effective_rank(np.array([2.0, 2.0, 0.0])), 12)
    2.0
    """
    total = values.sum()
    if not total > 0:
        return 0.0 if total == 0 else math.nan
    shares = values[values > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _distances(
    own: Factors,
    mean: tuple[Array, Array],
    p: Array,
    rank: int,
    sent: Factors | None,
    made: Factors | None,
    eps: float,
) -> _Distances:
    to_mean, recorded_to = {}, {}
    for name, one in means_of(own, p, rank, sent):
        to_mean[name] = norm(*difference(one, mean))
        if made is not None:
            recorded_to[name] = norm(*difference((made.b[0], made.a[0]), one))
    if made is not None:
        to_mean["recorded"] = norm(*difference((made.b[0], made.a[0]), mean))
    moved = None if sent is None else norm(*difference(mean, (sent.b[0], sent.a[0])))
    # each entry of both factors by half of eps
    off = 0.0 if made is None else eps * float(np.linalg.norm(made.b) * np.linalg.norm(made.a))
    return _Distances(norm(*mean), moved, to_mean, recorded_to, off)


def _together(found: list[_Distances]) -> _Distances:
    """Norms over all layers."""

    def root(values: list[float]) -> float:
        return math.hypot(*values)

    moved = [one.moved for one in found if one.moved is not None]
    return _Distances(
        root([one.norm for one in found]),
        root(moved) if moved else None,
        {name: root([one.to_mean[name] for one in found]) for name in found[0].to_mean},
        {name: root([one.recorded_to[name] for one in found]) for name in found[0].recorded_to},
        root([one.rounding for one in found]),
    )


def _cell(round_: int, layer: str, rank: int | None, found: _Distances, effective: float | None) -> LayerMeans:
    def share(name: str, of: float | None = found.norm) -> float | None:
        distance = found.to_mean.get(name)
        if distance is None or of is None:
            return None
        return distance / of if of else (0.0 if distance == 0 else math.nan)

    least = min(found.recorded_to.values(), default=math.nan)
    tied = (name for name in MEANS if found.recorded_to.get(name, math.inf) <= least + TIED * found.norm)
    nearest = next(tied, "other") if found.recorded_to else ""
    if nearest and not least <= max(SAME * found.norm, found.rounding):
        nearest = "other"
    factors, products = share("factors"), share("products")
    assert factors is not None
    assert products is not None
    return LayerMeans(
        round=round_,
        layer=layer,
        rank=rank,
        norm=found.norm,
        moved=found.moved,
        factors=factors,
        products=products,
        frozen_a=share("frozen_a"),
        recorded=share("recorded"),
        recorded_is=nearest,
        factors_of_moved=share("factors", found.moved),
        effective_rank=effective,
    )
