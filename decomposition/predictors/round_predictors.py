"""A round's gain of the mean, and numbers that may predict it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite, nan

import numpy as np
import numpy.typing as npt

from ...checkpoints import Layout, Round, Weights, recorded_matrix, weighted_mean
from ...checkpoints.models.products import Adapters
from ...checkpoints.models.weights import taking_part
from ...evaluation.evaluator import Evaluator, load_into
from ...evaluation.memory import return_freed_memory
from ...evaluation.model_replica import Replica
from ...evaluation.unlike_buffers import warn_of_averaged
from ..adapters.inner_products import differences
from ..reaggregation.conflicts import sign_conflict
from ..updates.adapter_products import adapter_products
from ..updates.angles import geometry, update_products
from .result import PredictedRound

#: directions of a layer's update that are compared
DIRECTIONS = 4


def predicted_round(
    round_: Round,
    evaluator: Evaluator,
    run: str,
    progress: Callable[[int, int], None] = lambda done, of: None,
    adapters: Adapters | None = None,
) -> PredictedRound:
    """Measure a round of C clients θ_i with updates Δ_i = θ_i − start and weights p::

        gain         = Σ p_i loss(θ_i) − loss(Σ p_i θ_i)
        cosine       = mean cos(Δ_i, Δ_j) over pairs
        kept         = ‖Σ p_i Δ_i‖ / Σ p_i ‖Δ_i‖
        conflict     = share of moved parameters with updates of both signs
        barrier      = mean over i of loss(½ θ_i + ½ θ_{i+1}) − ½ loss(θ_i) − ½ loss(θ_{i+1})
        overlap      = mean over layers and pairs (i, i+1) of ‖U_iᵀ U_{i+1}‖²_F / r
        rank         = exp(entropy of the eigenvalues λ / Σ λ of ⟨Δ_i, Δ_j⟩) / C

    i + 1 is the next client by its id, after the last the first. ``barrier`` is of pairs, because that of the mean
    itself is the gain with another sign. U_i [·, r] are the r = 4 first singular vectors, on the shorter side, of Δ_i
    in a layer, which is taken as a matrix [out, rest]; layers in which a side has fewer than 2 r are left out.
    NaN where one does not exist.

    Of adapters Δ_i is what client i changed in the weights that they add to, s (B_i A_i − B_0 A_0), and U_i are its
    directions in a layer; ``conflict`` is of the entries of these products, and the mean and pairs are those of
    factors, which is what a server averages.

    Args:
        evaluator: of the samples.
        run: its name.
        adapters: what the models add, where they are adapters.
    """
    p, ids = np.asarray(round_.weights, np.float64), round_.client_ids
    clients = recorded_matrix(round_)
    count = len(ids)
    nexts = [(i, (i + 1) % count) for i in range(count if count > 2 else 1)]
    with np.errstate(over="ignore", invalid="ignore"):  # of clients that diverged
        mean = weighted_mean(clients, p)
    warn_of_averaged(clients.buffers, clients.layout.names, p)
    halves = np.full(2, 0.5)

    def form(k: int, replica: Replica) -> None:
        if k <= count:
            load_into(replica, clients.row(k) if k < count else mean)
            return
        pair = [clients.row(i) for i in nexts[k - count - 1]]
        replica.combine(pair, halves.tolist())

    models = count + 1 + len(nexts)
    loss = np.empty(models)
    for done, (k, own, _) in enumerate(evaluator.evaluate(models, form, here=True)):
        loss[k] = own[0]
        progress(done + 1, models)
    return_freed_memory()  # before all clients' factors of a layer are held: a hundred MB, of batches of a wide network
    with np.errstate(invalid="ignore"):
        part = taking_part(p)
        alone, middle = float(p[part] @ loss[:count][part]), loss[count + 1 :]
        barrier = float(np.mean([m - 0.5 * (loss[i] + loss[j]) for m, (i, j) in zip(middle, nexts, strict=True)]))
        if adapters is None:
            products = update_products(round_, compute=evaluator.compute)
        else:
            products = adapter_products(round_, adapters, ())[-1]
        shown = geometry(products, p, number=round_.number, client_ids=ids)
        gain = alone - float(loss[count])
    conflict = sign_conflict(round_, adapters)
    numbers = {
        "cosine": shown.cosine_mean,
        "kept": shown.cancellation,
        "conflict": nan if conflict is None else conflict,
        "barrier": barrier,
        "overlap": subspace_overlap(round_.read("start"), clients, nexts, adapters),
        "rank": directions_of_updates(products[:count, :count]) / count,
    }
    return PredictedRound(
        run,
        round_.number,
        count,
        alone,
        float(loss[count]),
        *(value if isfinite(value) else None for value in (gain, *numbers.values())),
    )


def directions_of_updates(products: npt.NDArray[np.float64]) -> float:
    """exp(−Σ q log q) of the eigenvalues' shares q (Roy and Vetterli, EUSIPCO 2007): how many directions the updates
    have, 1 to C; NaN where none has moved.

    >>> directions_of_updates(np.eye(3)), directions_of_updates(np.ones((3, 3)))
    (3.0, 1.0)
    """
    if not np.isfinite(products).all() or not products.any():
        return nan
    values = np.maximum(np.linalg.eigvalsh(products), 0.0)
    shares = values[values > 1e-12 * values.max()] / values.sum()
    return round(float(np.exp(-(shares * np.log(shares)).sum())), 12)


def subspace_overlap(
    start: Weights, clients: Weights, pairs: list[tuple[int, int]], adapters: Adapters | None = None
) -> float:
    """Compute the mean over layers and pairs of ‖U_iᵀ U_j‖²_F / r; NaN where no layer is large enough.

    A layer of all clients is in memory at a time. A client that has hardly moved there has no directions. Of adapters
    a layer is what a product adds to.
    """
    found = []
    for bases in (*_of_matrices(start, clients, adapters), *_of_products(start, clients, adapters)):
        for i, j in pairs:
            one, other = bases[i], bases[j]
            if one is not None and other is not None:
                found.append(float(np.square(one.T @ other).sum()) / DIRECTIONS)
    return float(np.mean(found)) if found else nan


Bases = list[npt.NDArray[np.float64] | None]


def _of_matrices(start: Weights, clients: Weights, adapters: Adapters | None) -> Iterator[Bases]:
    """Yield the clients' directions in each layer, but for factors of adapters."""
    factors = () if adapters is None else adapters.names
    for name, where in matrices(start.layout):
        if name in factors:
            continue
        shape = start.layout.by_name[name].shape
        bases = []
        for row in np.asarray(clients.parameters[:, where]):
            with np.errstate(invalid="ignore", over="ignore"):
                moved = np.subtract(row, start.parameters[where], dtype=np.float64).reshape(shape[0], -1)
            bases.append(main_directions(moved))
        yield bases


def _of_products(start: Weights, clients: Weights, adapters: Adapters | None) -> Iterator[Bases]:
    """Yield the clients' directions in each layer that adapters add to, from the factors."""
    slices = start.layout.slices
    for product in () if adapters is None else adapters.products:
        places = slices[product.a], slices[product.b]
        a, b = product.factors(*(np.asarray(clients.parameters[:, where]) for where in places))
        a0, b0 = product.factors(*(start.parameters[None, where] for where in places))
        if min(b.shape[1], a.shape[2]) >= 2 * DIRECTIONS:
            one_each = (differences(a[i : i + 1], b[i : i + 1], a0[0], b0[0]) for i in range(len(a)))
            yield [directions_of_product(left[0], right[0]) for left, right in one_each]


def matrices(layout: Layout) -> list[tuple[str, slice]]:
    """Return the layers that are matrices with 2 r rows and columns at least, and where they lie."""
    found = []
    for entry in layout.parameters:
        if len(entry.shape) > 1:
            rows, columns = entry.shape[0], int(np.prod(entry.shape[1:]))
            if min(rows, columns) >= 2 * DIRECTIONS:
                found.append((entry.name, layout.slices[entry.name]))
    return found


def main_directions(moved: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
    """Return the r first singular vectors of a matrix on its shorter side, [·, r]; None where it has fewer."""
    if not np.isfinite(moved).all():
        return None
    short = moved if moved.shape[0] <= moved.shape[1] else moved.T
    values, vectors = np.linalg.eigh(short @ short.T)
    if values[-DIRECTIONS] <= 1e-12 * values[-1] or values[-1] == 0:
        return None
    return np.asarray(vectors[:, -DIRECTIONS:])


def directions_of_product(
    left: npt.NDArray[np.float64], right: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64] | None:
    """Return :func:`main_directions` of U V [out, in] from its factors, [out, q] and [q, in].

    >>> u, v = np.random.default_rng(0).normal(size=(2, 9, 5))
    >>> whole = main_directions(u @ v.T)
    >>> found = directions_of_product(u, v.T)
    >>> bool(np.allclose(found @ found.T, whole @ whole.T))
    True
    """
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return None
    (q_left, r_left), (q_right, r_right) = np.linalg.qr(left), np.linalg.qr(right.T)
    u, values, v = np.linalg.svd(r_left @ r_right.T, full_matrices=False)
    if len(values) < DIRECTIONS or values[DIRECTIONS - 1] <= 1e-6 * values[0] or values[0] == 0:
        return None
    short = q_left @ u[:, :DIRECTIONS] if len(left) <= right.shape[1] else q_right @ v[:DIRECTIONS].T
    return np.asarray(short, np.float64)
