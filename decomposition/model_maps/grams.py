"""The Gram matrix of many models, and the distances between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt

from ...checkpoints import Partial, Run
from ...landscape.evaluation.compute import CPU, Compute
from ...landscape.evaluation.workers import cores
from .blocks import refuse_too_many
from .points import Point, known_layers, models_of
from .products import NUMBERS, Array, block_products

# Seconds of work that an interruption may cost.
KEEP_EVERY = 10.0
# Of the squared distances to the common point, what sums in float64 may be off by: shorter distances are none.
ROUNDING = 2.0**-48


@dataclass(frozen=True, eq=False)
class Gram:
    """Inner products of n models about a common point.

    Attributes:
        points: which models they are, clients first.
        matrix: (w_i − r)·(w_j − r), [n, n] float64, symmetric.
        layers: the parameters that were compared, ``state_dict`` keys; buffers (running statistics) are in none.
    """

    points: tuple[Point, ...]
    matrix: Array
    layers: tuple[str, ...]


def gram(
    asked: Sequence[tuple[Run, int]],
    *,
    layers: Collection[str] | None = None,
    compute: Compute = CPU,
    numbers: int = NUMBERS,
    partial: Partial | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Gram:
    """The Gram matrix of the clients of some rounds, and of the server's models ``global`` and ``averaged`` there.

        g_ij = (w_i − r)·(w_j − r)

    with r what the clients of the first round were sent, its ``start`` (its first client where that was not recorded);
    distances do not depend on r. The models are streamed from disk in blocks of the same columns of all of them, each
    number once. In memory are two to three times ``numbers`` for every worker, and n² numbers, whatever the models'
    size and the number of rounds.

    Args:
        asked: runs and numbers of rounds whose clients were recorded.
        layers: only these parameters; all by default.
        compute: where products are made, in float64.
        numbers: of all models in a block.
        partial: a store of finished layers, so that the same call goes on after an interruption.
        progress: told (columns done, in all).

    Raises:
        FedscopeError: rounds without clients, different layouts, layers that do not exist, a model that is not finite,
            more rounds than files may be open.
    """
    models = models_of(asked)
    chosen = known_layers(models, layers)
    refuse_too_many(models, compute.workers or cores())
    n = len(models.points)
    sizes = {entry.name: prod(entry.shape) for entry in models.layout.parameters}
    matrix, finished = np.zeros((n, n)), list[str]()
    if partial is not None and "gram" in partial.done:
        matrix += np.array(partial.done["gram"]["matrix"])
        finished += partial.done["gram"]["layers"]
    left = {layer: sizes[layer] for layer in chosen if layer not in finished}
    expected = sum(sizes[layer] for layer in chosen)
    kept = time.monotonic()
    for layer, columns, products in block_products(models, list(left), compute=compute, numbers=numbers):
        matrix += products
        left[layer] -= columns
        if progress is not None:
            progress(expected - sum(left.values()), expected)
        if left[layer]:
            continue
        finished.append(layer)
        # blocks come in order, so the sums are those of the finished layers and of no other
        if partial is not None and (time.monotonic() - kept > KEEP_EVERY or not any(left.values())):
            partial.add("gram", {"layers": finished, "matrix": matrix.tolist()})
            kept = time.monotonic()
    upper = np.triu(matrix)
    return Gram(models.points, upper + np.triu(upper, 1).T, tuple(chosen))


def distances(gram: Gram) -> Array:
    """‖w_i − w_j‖ = √(g_ii + g_jj − 2 g_ij), [n, n]; 0 where that is no more than rounding (2⁻⁴⁸ (g_ii + g_jj)).

    >>> distances(Gram((), np.array([[0.0, 0.0], [0.0, 25.0]]), ())).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    norms = np.diagonal(gram.matrix)
    whole = norms[:, None] + norms[None, :]
    squared = whole - 2 * gram.matrix
    return np.sqrt(np.where(squared > ROUNDING * whole, squared, 0.0))


def distinct(gram: Gram) -> npt.NDArray[np.int64]:
    """For every model the first one at distance 0, [n]: its own place, or that of a model that it equals.

    >>> distinct(Gram((), np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0]]), ())).tolist()
    [0, 1, 1]
    """
    first: npt.NDArray[np.int64] = (distances(gram) == 0).argmax(axis=1)
    return first


def subset(gram: Gram, places: npt.NDArray[np.int64]) -> Gram:
    """Of some of the models."""
    points = tuple(gram.points[i] for i in places.tolist())
    return replace(gram, points=points, matrix=gram.matrix[np.ix_(places, places)])


def spreads(gram: Gram) -> tuple[tuple[str, int, float], ...]:
    """How far a round's clients are from their mean: (run, round, mean_k ‖w_k − w̄‖) of every round of two or more.

    ‖w_k − w̄‖² = mean_j d_kj² − ½ mean_ij d_ij²; w̄ is the unweighted mean.

    >>> points = tuple(Point("ima", 3, which) for which in ("client-1", "client-2", "global"))
    >>> spreads(Gram(points, np.diag([0.0, 4.0, 9.0]), ()))
    (('ima', 3, 1.0),)
    """
    squared = distances(gram) ** 2
    rounds: dict[tuple[str, int], list[int]] = {}
    for place, point in enumerate(gram.points):
        if point.is_client:
            rounds.setdefault((point.run, point.round), []).append(place)
    made = []
    for (run, number), places in rounds.items():
        if len(places) < 2:
            continue
        own = squared[np.ix_(places, places)]
        to_mean = np.sqrt(np.maximum(own.mean(axis=1) - own.mean() / 2, 0.0))
        made.append((run, number, float(to_mean.mean())))
    return tuple(made)
