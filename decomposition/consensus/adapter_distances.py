"""Consensus distances of nodes whose models are adapters: between the products that they add, from the factors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...checkpoints import Round
from ...checkpoints.models.products import Adapters
from ..adapters.inner_products import differences, inner_products
from ..adapters.recorded_adapters import read_parameter

Array = npt.NDArray[np.float64]


def product_distances(
    round_: Round,
    adapters: Adapters,
    then: Round | None,
    staying: npt.NDArray[np.int64],
    first: Round | None,
    mixed: Array | None,
) -> tuple[float, float | None, float | None]:
    """Compute the ``before``, ``after`` and ``moved`` of
    :func:`~fedscope.decomposition.consensus.distances.measure_distances` with s B A in place of w, summed over the
    pairs of factors, and with the parameters beside them as they are.

    w̄ is the mean of the products, which no mean of factors is. Of all models one pair is held at a time.

    Args:
        then, staying: the next round, if its starts were recorded, and the rows of nodes that took part in this one.
        first: round 1, if its starts were recorded; else None, and then ``moved`` is None.
        mixed: a matrix [S, C] that makes the next starts' factors, where they were not recorded; ``after`` is None
            without both.
    """
    which = "start" if first is not None and "start" in first.models else "starts"
    nodes, initial, between = len(round_.weights), 0, then is not None or mixed is not None
    models, starts = np.zeros(()), np.zeros(())
    with np.errstate(invalid="ignore", over="ignore"):  # of models that diverged
        for names, inner in _parts(adapters):
            own = [read_parameter(round_, name).astype(np.float64) for name in names]
            sent = [] if first is None else [read_parameter(first, name, which) for name in names]
            initial = len(sent[0]) if sent else 0
            rows = [np.concatenate([one, other]) for one, other in zip(own, sent, strict=True)] if sent else own
            models = models + inner(*rows)
            if then is not None:
                starts = starts + inner(*(read_parameter(then, name, "starts")[staying] for name in names))
            elif mixed is not None:
                starts = starts + inner(*(mixed @ one for one in own))
        moved = None
        if initial:
            away = np.repeat([1 / nodes, -1 / initial], [nodes, initial])
            moved = _root(float(away @ models @ away))
        return spread(models[:nodes, :nodes]), spread(starts) if between else None, moved


def spread(gram: Array) -> float:
    """√(1/n Σ ‖P_i − P̄‖²) from inner products, about whatever point they are.

    >>> spread(np.array([[0.0, 0.0], [0.0, 4.0]]))
    1.0
    """
    return _root(float(np.trace(gram) / len(gram) - gram.mean()))


def _parts(adapters: Adapters) -> list[tuple[tuple[str, ...], Callable[..., Array]]]:
    """List what is read together, and what makes inner products of models of it, about the first of them: 0 exactly
    between models that are the same."""
    parts: list[tuple[tuple[str, ...], Callable[..., Array]]] = []
    for product in adapters.products:

        def of_pair(a: Array, b: Array, factors: Callable[..., tuple[Array, Array]] = product.factors) -> Array:
            shaped_a, shaped_b = factors(a, b)
            changes = differences(shaped_a, shaped_b, shaped_a[0], shaped_b[0])
            del shaped_a, shaped_b  # as large as half of what they are compared by
            return inner_products(*changes)

        parts.append(((product.a, product.b), of_pair))

    def of_parameter(values: Array) -> Array:
        moved = values.astype(np.float64) - values[0]
        return np.asarray(moved @ moved.T, np.float64)

    return parts + [((name,), of_parameter) for name in adapters.dense]


def _root(square: float) -> float:
    return float(np.sqrt(max(square, 0.0))) if not np.isnan(square) else square
