"""Products of the updates of a round's clients, streamed from disk, and what they say: angles, lengths, and how much of
them cancels in the mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...checkpoints import ColumnChunk, Round, read_chunks
from ...checkpoints.models.weights import taking_part
from ...evaluation.device import CPU, Compute, run_in_workers
from ...results import Serializable

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[np.float64]

# Numbers of all clients at a time, 4 MiB of float32 and 8 of float64 a worker.
NUMBERS = 2**20


@dataclass(frozen=True, eq=False)
class RoundUpdates(Serializable):
    """One round of C clients: updates Δ_i = w_i − start [P], weights p_i. NaN where a quantity does not exist.

    Attributes:
        round: its number; client_ids: [C] int64; weights: p, [C].
        norm: ‖Δ_i‖, [C]; 0 for a client that is where it started.
        cosine: ⟨Δ_i, Δ_j⟩/(‖Δ_i‖ ‖Δ_j‖), [C, C]; NaN in the rows and columns of clients that have not moved.
        cosine_mean, cosine_min, cosine_max: over the pairs i < j of clients that have moved, unweighted.
        cosine_stderr: of the mean, a jackknife over clients; NaN for fewer than three.
        mean_norm: Σ p_i ‖Δ_i‖; norm_of_mean: ‖Σ p_i Δ_i‖.
        orthogonal: what ``cancellation`` would be were the updates, with their norms and weights, orthogonal to each
            other: √(Σ p_i² ‖Δ_i‖²)/Σ p_i ‖Δ_i‖, which is 1/√C where all p_i ‖Δ_i‖ are equal.
        diversity: Σ p_i ‖Δ_i‖² / ‖Σ p_i Δ_i‖², the gradient diversity of Yin et al. (AISTATS 2018, Definition 1) with
            weights: 1 where all updates are equal, and C times the paper's number where all p_i are 1/C. Infinite where
            the updates cancel entirely.
        sketch: k where all of this is told from sketches of k numbers a client, 0 where it is exact.
    """

    round: int
    client_ids: npt.NDArray[np.int64]
    weights: Array
    norm: Array
    cosine: Array
    cosine_mean: float
    cosine_stderr: float
    cosine_min: float
    cosine_max: float
    mean_norm: float
    norm_of_mean: float
    orthogonal: float
    diversity: float
    sketch: int = 0

    @property
    def cancellation(self) -> float:
        """‖Σ p_i Δ_i‖ / Σ p_i ‖Δ_i‖: 1 where all go the same way, near 0 where drifts cancel; NaN where none moves."""
        return self.norm_of_mean / self.mean_norm if self.mean_norm else math.nan

    @property
    def unmoved(self) -> list[int]:
        """The clients whose update is zero, by their ids."""
        return [int(k) for k in self.client_ids[self.norm == 0]]

    @property
    def diverged(self) -> list[int]:
        """The clients whose update has no finite length, by their ids. Cosines over pairs do not exist in their round,
        and where one of them has a weight, no mean either."""
        return [int(k) for k in self.client_ids[~np.isfinite(self.norm)]]

    @property
    def has_mean(self) -> bool:
        """Whether no client that diverged has a weight."""
        return not self.weights[~np.isfinite(self.norm)].any()


def update_products(
    round_: Round,
    progress: Callable[[int, int], None] | None = None,
    *,
    compute: Compute = CPU,
    numbers: int = NUMBERS,
) -> Array:
    """⟨Δ_i, Δ_j⟩ of a recorded round, [C+1, C+1] float64, with Δ_i = w_i − start [P] and Δ_C = Σ_i p_i Δ_i.

    Every client is read once, in blocks of columns, and nothing of size C × P is held. Differences are taken before
    they are multiplied, both in float64: the difference of two float32 numbers is exact there, so that what is left is
    the rounding of sums, also after one small step. The mean update is a row of its own, because
    Σ_ij p_i p_j ⟨Δ_i, Δ_j⟩ would lose its digits just where the updates cancel. Of clients that diverged products stay
    NaN or infinite.

    Args:
        progress: called with how many of the P parameters are done.
        compute: of which the workers count; products are made on the CPU.
        numbers: of all clients at a time.

    Raises:
        FedscopeError: the round has no clients, or no start.
    """
    return layer_products(round_, (), progress, compute=compute, numbers=numbers)[-1]


def layer_products(
    round_: Round,
    selections: Sequence[Collection[str]],
    progress: Callable[[int, int], None] | None = None,
    *,
    compute: Compute = CPU,
    numbers: int = NUMBERS,
) -> list[Array]:
    """⟨Δ_i, Δ_j⟩ of some of the parameters, a matrix a selection, and last that of all of them, which is
    :func:`~fedscope.decomposition.updates.angles.update_products`.

    Every number is read once, whatever it is selected for: a block of columns is of one parameter, so that its products
    are added to those of every selection that holds it. What is held in addition is [C+1, C+1] a selection.

    Args:
        selections: names of parameters.
        progress, compute, numbers: as of :func:`~fedscope.decomposition.updates.angles.update_products`.

    Raises:
        FedscopeError: the round has no clients, or no start.
    """
    import torch

    start, p = torch.from_numpy(round_.read("start").parameters), torch.from_numpy(round_.weights)
    clients, weighed = len(p), taking_part(round_.weights)
    columns = max(1, numbers // max(1, clients))

    def rooms() -> tuple[np.ndarray, torch.Tensor]:
        return np.empty(clients * columns, round_.layout.dtype), torch.empty(clients + 1, columns, dtype=torch.float64)

    def task(piece: ColumnChunk, rooms: tuple[np.ndarray, torch.Tensor], _: Event) -> tuple[str, int, Array]:
        moved = rooms[1][:, : piece.count]
        moved[:-1] = torch.from_numpy(piece.read(rooms[0]))
        moved[:-1] -= start[piece.where]
        torch.mv(moved[:-1][weighed].T, p[weighed], out=moved[-1])
        products: Array = (moved @ moved.T).numpy()
        return piece.layer, piece.where.stop, products

    total = np.zeros((clients + 1, clients + 1))
    parts = [np.zeros_like(total) for _ in selections]
    pieces = read_chunks(round_, columns)
    for name, done, products in run_in_workers(task, pieces, make=rooms, workers=compute.workers):
        total += products
        for part, names in zip(parts, selections, strict=True):
            if name in names:
                part += products
        if progress is not None:
            progress(done, len(start))
    return [*parts, total]


def sketched_products(round_: Round) -> tuple[Array, int]:
    """Estimate what :func:`update_products` gives from a round's sketches, and k; reads C × k numbers.

    The sketch of the mean update is the mean of the sketches, so that it is as exact as any of them.

    Raises:
        FedscopeError: the round has no sketches.
    """
    rows = round_.sketch().astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # of clients that diverged
        part = taking_part(round_.weights)
        all_rows = np.vstack([rows, round_.weights[part] @ rows[part]])
        products: Array = all_rows @ all_rows.T
    return products, rows.shape[1]


def geometry(
    products: Array, p: Array, *, number: int, client_ids: npt.NDArray[np.int64], sketch: int = 0
) -> RoundUpdates:
    """Compute the geometry of one round's updates, see :class:`RoundUpdates`.

    The direction of an update that is zero does not exist: its cosines are NaN, and the mean, the extremes and the
    standard error are those of the pairs of other clients. A client that diverged makes them NaN, and with a weight
    above 0 also what is of the mean.

    Args:
        products: [C+1, C+1], as :func:`~fedscope.decomposition.updates.angles.update_products` makes them.
        p: [C], the weights of the clients, sum 1.
        sketch: k, where the products are of sketches.

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
        part = taking_part(p)
        own_p, own_squared = p[part], squared[:clients][part]
        mean_norm, square = float(own_p @ norm[part]), float(own_p @ own_squared)
        own = math.sqrt(float(own_p**2 @ own_squared))
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
        sketch=sketch,
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
