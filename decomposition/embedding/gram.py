"""The Gram matrix of many models, streamed in float64, and the distances between them."""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import prod
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError, Run
from ...distributed.cores import cores
from ...evaluation.accelerators import refuse_without_memory
from ...evaluation.device import CPU, Compute, run_in_workers
from ...evaluation.float64 import where_float64
from ...results.resume import ResumeStore
from .shown_models import LayerColumns, Models, Point, known_layers, models_of, read_blocks, refuse_too_many

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[np.float64]

# Numbers of all models in a block, 16 MiB of float32; every worker has one.
NUMBERS = 4 * 2**20
# Numbers of all models that are brought to float64 at a time, 8 MiB a worker: fewer stay nearer to the processor, but
# a worker waits for Python's lock between short steps.
PART = 2**20
# Rows of one product: of those below the diagonal most are left out.
TILE = 128
# Seconds of work that an interruption may cost, of up to MANY models; of more it grows like what there is to keep.
KEEP_EVERY, MANY = 10.0, 1000
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
    partial: ResumeStore | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Gram:
    """Compute the Gram matrix of the clients of some rounds, and of the server's models ``global`` and ``averaged``
    there.

        g_ij = (w_i − r)·(w_j − r)

    with r what the clients of the first round were sent, its ``start`` (its first client where that was not recorded);
    distances do not depend on r. The models are streamed from disk in blocks of the same columns of all of them, each
    number once. In memory are two to three times ``numbers`` for every worker, and n² numbers, whatever the models'
    size and the number of rounds.

    Args:
        asked: runs and numbers of rounds whose clients were recorded.
        layers: only these parameters; all by default.
        compute: where products are made, in float64; where the device has none, on the processor.
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
    sums = None if partial is None else partial.take("gram", lambda value: _kept_products(value, n, chosen))
    if sums is not None:
        matrix += sums[0]
        finished += sums[1]
    left = {layer: sizes[layer] for layer in chosen if layer not in finished}
    expected = sum(sizes[layer] for layer in chosen)
    kept, every = time.monotonic(), KEEP_EVERY * max(1.0, (n / MANY) ** 2)
    for layer, columns, products in block_products(models, list(left), compute=compute, numbers=numbers):
        matrix += products
        left[layer] -= columns
        if progress is not None:
            progress(expected - sum(left.values()), expected)
        if left[layer]:
            continue
        finished.append(layer)
        # blocks come in order, so the sums are those of the finished layers and of no other
        if partial is not None and (time.monotonic() - kept > every or not any(left.values())):
            partial.add("gram", {"layers": finished, "upper": _packed(matrix)})
            kept = time.monotonic()
    upper = np.triu(matrix)
    return Gram(models.points, upper + np.triu(upper, 1).T, tuple(chosen))


def _packed(matrix: Array) -> str:
    """The numbers on and above the diagonal, which are all that is used, as their bytes in base64: digits would be four
    times as long, and take many times as long to write."""
    return b64encode(matrix[np.triu_indices(len(matrix))].astype("<f8").tobytes()).decode("ascii")


def _kept_products(value: Any, n: int, layers: Sequence[str]) -> tuple[Array, list[str]]:
    """Return the sums of finished layers, [n, n], and these.

    Raises:
        LookupError, TypeError, ValueError: it is none.
    """
    upper, finished = np.frombuffer(b64decode(value["upper"], validate=True), "<f8"), list(value["layers"])
    if len(upper) != n * (n + 1) // 2 or not set(layers).issuperset(finished):
        raise ValueError("sums of other models or layers")
    matrix = np.zeros((n, n))
    matrix[np.triu_indices(n)] = upper
    return matrix, finished


def distances(gram: Gram) -> Array:
    """‖w_i − w_j‖ = √(g_ii + g_jj − 2 g_ij), [n, n]; 0 where that is no more than rounding (2⁻⁴⁸ (g_ii + g_jj)).

    >>> distances(Gram((), np.array([[0.0, 0.0], [0.0, 25.0]]), ())).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    norms = np.diagonal(gram.matrix)
    whole = norms[:, None] + norms[None, :]
    squared = whole - 2 * gram.matrix
    return np.sqrt(np.where(squared > ROUNDING * whole, squared, 0.0))


def spreads(gram: Gram) -> tuple[tuple[str, int, float], ...]:
    """Measure the distances of a round's clients from their mean: (run, round, mean_k ‖w_k − w̄‖) of every round of two
    or more.

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
    means = []
    for (run, number), places in rounds.items():
        if len(places) < 2:
            continue
        among = squared[np.ix_(places, places)]
        to_mean = np.sqrt(np.maximum(among.mean(axis=1) - among.mean() / 2, 0.0))
        means.append((run, number, float(to_mean.mean())))
    return tuple(means)


def block_products(
    models: Models, layers: Sequence[str], *, compute: Compute = CPU, numbers: int = NUMBERS
) -> Iterator[tuple[str, int, Array]]:
    """(w_i − r)·(w_j − r) over the columns of block after block: the layer, how many columns, and [n, n].

    The common r is subtracted before anything is multiplied, and differences and products are float64: from round to
    round models move further than clients are apart, and in float32 short distances drown in the products of long ones
    (at the end of 60 rounds on the digits 1e-3 of them was wrong). Products are made by workers, one core each, and
    come in the layers' order, so the sums do not depend on how many there are.

    Args:
        compute: where they are made, in float64; where the device has none, on the processor.

    Raises:
        FedscopeError: parameters that are not finite; names the model. A device without the memory.
    """
    if not layers:
        return
    import torch

    compute = where_float64(compute)
    n, where, dtype = len(models.points), torch.device(compute.device), models.layout.dtype
    columns = max(1, numbers // n)
    doing = f"multiply {n:,} models"

    def rooms() -> tuple[np.ndarray, torch.Tensor]:
        with refuse_without_memory(compute.device, doing):
            part = torch.empty(n, min(columns, max(1, PART // n)), dtype=torch.float64, device=where)
        return np.empty(n * columns, dtype), part

    def task(block: LayerColumns, rooms: tuple[np.ndarray, torch.Tensor], _: Event) -> tuple[str, int, Array]:
        with refuse_without_memory(compute.device, doing):
            return block.reference.layer, block.reference.count, _products(models, block, *rooms)

    blocks = read_blocks(models, layers, columns)
    with closing(blocks), closing(run_in_workers(task, blocks, make=rooms, workers=compute.workers)) as results:
        yield from results


def _products(models: Models, block: LayerColumns, buffer: np.ndarray, room: torch.Tensor) -> Array:
    """Compute the upper triangle and some numbers below it; ``room`` [n, columns] is written to."""
    import torch

    n, step = room.shape
    rows = block.read(buffer)
    reference = torch.from_numpy(block.reference.read()[0]).to(room.device).to(room.dtype)
    sums = torch.zeros(n, n, dtype=torch.float64, device=room.device)
    for start in range(0, len(reference), step):
        part = slice(start, start + step)
        x, at = room[:, : len(reference[part])], 0
        for values in rows:
            # they travel as they are, and become float64 there
            x[at : at + len(values)] = torch.from_numpy(values[:, part]).to(room.device)
            at += len(values)
        x -= reference[part]
        for i in range(0, n, TILE):
            sums[i : i + TILE, i:].addmm_(x[i : i + TILE], x[i:].T)
    if not sums.diagonal().isfinite().all():
        _refuse_not_finite(models, block, rows)
    products: Array = sums.cpu().numpy()
    return products


def _refuse_not_finite(models: Models, block: LayerColumns, rows: list[np.ndarray]) -> None:
    broken = np.concatenate([~np.isfinite(values).all(axis=1) for values in (*rows, block.reference.read())])
    layer = block.reference.layer
    if not broken.any():
        raise FedscopeError(
            f"squared distances between the models of {models.rounds[0].run_label} are greater than the greatest "
            f"float64 (in {layer}); ask for other rounds"
        )
    raise FedscopeError(
        f"{models.address(int(broken.argmax()))} has parameters that are not finite (in {layer}), so it has no "
        "distance to other models; ask for other rounds"
    )
