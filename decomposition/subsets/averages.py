"""Averages of some of a round's clients: which subsets are averaged, and their losses and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError, Round, Weights
from ...checkpoints.models.weights import stack
from ...evaluation.device import CPU, Compute
from ...landscape.alignment.step import Aligning
from ...results import deviation_over
from ..draws.divergence import diverged_rows
from .result import OWN, RoundSubsets, SizeRow, SubsetsAtPlaces

if TYPE_CHECKING:
    from torch import nn

    from ...evaluation.measured_statistics import MeasuredStatistics
    from ...evaluation.model_replica import Replica
    from ...evaluation.samples import Samples

#: cohorts of up to so many clients have averages of every size, larger ones of so many sizes
ALL, SPREAD = 20, 12


def spread_sizes(clients: int) -> tuple[int, ...]:
    """Return the sizes m of subsets of C clients to look at: every one up to 20 clients, else at most 12 from 1 to C.

    Of the 12, equal ratios lie between 2 and C, because an average changes most where it has few models.

    >>> spread_sizes(4)
    (1, 2, 3, 4)
    >>> spread_sizes(100)
    (1, 2, 3, 4, 6, 10, 14, 21, 31, 46, 68, 100)
    """
    if clients <= ALL:
        return tuple(range(1, clients + 1))
    return tuple(sorted({1, *(int(m) for m in np.geomspace(2, clients, SPREAD - 1).round())}))


def choose(clients: int, size: int, most: int, draw: np.random.Generator) -> list[tuple[int, ...]]:
    """``most`` different subsets of m of the C clients, drawn uniformly; all of them, each once, where there are no
    more. Each is rows of the cohort, ascending.

    Raises:
        FedscopeError: a size outside 1..C, or no subset asked for.

    >>> choose(3, 2, 20, np.random.default_rng(0))
    [(0, 1), (0, 2), (1, 2)]
    >>> len(set(choose(100, 50, 20, np.random.default_rng(0))))
    20
    """
    if not 1 <= size <= clients:
        of, give = (f"{clients} clients", "sizes from 1 to") if clients > 1 else ("one client", "size")
        raise FedscopeError(f"there is no subset of {size} of {of}; give {give} {clients}")
    if most < 1:
        raise FedscopeError(f"{most} subsets of a size have no mean; give 1 or more")
    if comb(clients, size) <= most:
        return list(combinations(range(clients), size))
    # What was drawn before is drawn again: uniform over sets of subsets, and more of them begin with the same.
    chosen: dict[tuple[int, ...], None] = {}
    while len(chosen) < most:
        chosen[tuple(sorted(draw.permutation(clients)[:size].tolist()))] = None
    return list(chosen)


def average_subsets(
    module: nn.Module,
    samples: Samples,
    clients: Weights,
    shares: Sequence[float] | np.ndarray,
    *,
    sizes: Sequence[int],
    subsets: int = 20,
    seed: Sequence[int] = (0,),
    compute: Compute = CPU,
    progress: Callable[[int, int], None] | None = None,
    measured: MeasuredStatistics | None = None,
) -> tuple[SizeRow, ...]:
    """Loss and error of w_S = Σ_{k in S} p_k w_k / Σ_{k in S} p_k over subsets S of m of the C clients, for every m.

    For every size, ``subsets`` different S are drawn without replacement, or all of them taken where there are no more:
    then S of size 1 are the clients themselves, and the one of size C is the whole average. Over the n subsets of N,

        mean x̄ = Σ x / n,   std s² = Σ (x − x̄)² / (n − 1),   stderr = s / √n · √(1 − n/N),

    the standard error of x̄ as an estimate of the mean over all N (it is that of drawing without replacement); where all
    were taken there is none, and of one subset there is no std. They say nothing of another cohort or seed.

    Averages are formed in place, one a worker at a time. Values that are not finite are kept.

    Args:
        module: the architecture; its own parameters are not used and not changed.
        samples: what loss and error are measured on.
        clients: [C, P].
        shares: [C], what p is proportional to: the clients' numbers of samples, or ones.
        sizes: the m, in the order of the rows.
        seed: key of the draws; a size's subsets depend on it and on the size alone.
        progress: called with (averages done, averages in all).
        measured: measures the running statistics of averages; those of a single client are its own. None: they are
            averaged as the weights are.

    Raises:
        FedscopeError: shares that are not positive numbers, one a client; sizes outside 1..C; clients that do not fit
            the module.

    Source: Zhou et al., "Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data",
    Figure 4 (model number). Sampling without replacement, and its standard error, are ours.

    >>> import torch
    >>> from fedscope.checkpoints import Layout
    >>> from fedscope import Samples
    >>> module = torch.nn.Linear(1, 2, bias=False)
    >>> samples = Samples(torch.ones(1, 1), torch.tensor([0]), 2, "toy", "test", np.arange(1))
    >>> clients = Weights(Layout.of(module), np.array([[3, 0], [0, 1], [0, 1]], np.float32), {})
    >>> for row in average_subsets(module, samples, clients, [1, 1, 1], sizes=(1, 2, 3)):
    ...     print(row.m, row.subsets, round(row.error_mean, 3), row.error_stderr)
    1 3 0.667 None
    2 3 0.333 None
    3 1 0.0 None
    """
    found = measure_averages(
        module,
        [samples],
        clients,
        shares,
        sizes=sizes,
        subsets=subsets,
        seed=seed,
        compute=compute,
        progress=progress,
        measured=measured,
    )
    return found.rows(found.loss[:, 0], found.error[:, 0])


@dataclass(frozen=True)
class MeasuredAverages:
    """Averages of subsets on several sets of samples.

    Attributes:
        clients: C; sizes: the m; chosen: the subsets of each size, rows of the cohort.
        shares: [n, C], the weights of each average's members, 0 of the others.
        loss, error: [n, S], of the averages on each set.
    """

    clients: int
    sizes: tuple[int, ...]
    chosen: list[list[tuple[int, ...]]]
    shares: np.ndarray
    loss: np.ndarray
    error: np.ndarray

    def rows(self, loss: np.ndarray, error: np.ndarray) -> tuple[SizeRow, ...]:
        """Compute the row of each size from a loss and an error [n] of each average."""
        ends = np.cumsum([len(own) for own in self.chosen])[:-1]
        return tuple(
            size_row(m, comb(self.clients, m), own_loss, own_error)
            for m, own_loss, own_error in zip(self.sizes, np.split(loss, ends), np.split(error, ends), strict=True)
        )


def refuse_shares(
    shares: np.ndarray, client_ids: Sequence[int] | np.ndarray, remedy: str = "give each client a positive one"
) -> None:
    """Refuse weights of clients that no average can have.

    Args:
        remedy: what stands behind the semicolon.

    Raises:
        FedscopeError: a share that is no positive number.
    """
    for client, share in zip(client_ids, shares.tolist(), strict=True):
        if not 0 < share < np.inf:
            raise FedscopeError(
                f"client {client} of the cohort has the share {share:g} in its averages, so a subset of it alone has "
                f"none; {remedy}"
            )


def measure_averages(
    module: nn.Module,
    samples: Sequence[Samples],
    clients: Weights,
    shares: Sequence[float] | np.ndarray,
    *,
    sizes: Sequence[int],
    subsets: int = 20,
    seed: Sequence[int] = (0,),
    compute: Compute = CPU,
    progress: Callable[[int, int], None] | None = None,
    measured: MeasuredStatistics | None = None,
) -> MeasuredAverages:
    """Measure averages of subsets on several sets of samples, each average formed once; see :func:`average_subsets`.

    Raises:
        FedscopeError: as :func:`average_subsets`.
    """
    from ...evaluation.evaluator import Evaluator
    from ...evaluation.unlike_buffers import warn_of_averaged

    count = len(clients)
    shares = np.asarray(shares, dtype=np.float64)
    if shares.shape != (count,):
        raise FedscopeError(f"there are {count} clients, but {len(shares)} shares; give each client one")
    refuse_shares(shares, range(count))
    evaluator = Evaluator(module, samples, compute=compute)
    difference = evaluator.layout.difference(clients.layout)
    if difference is not None:
        raise FedscopeError(f"the clients do not fit the module: {difference}")
    warn_of_averaged(clients.buffers, clients.layout.names)
    rows = [clients.row(k) for k in range(count)]
    chosen = [choose(count, m, subsets, np.random.default_rng([*seed, m])) for m in sizes]
    every = [members for own in chosen for members in own]

    def form(i: int, replica: Replica) -> None:
        members = list(every[i])
        replica.combine([rows[k] for k in members], (shares[members] / shares[members].sum()).tolist())
        if measured is not None and measured.x is not None and len(members) > 1:
            replica.re_estimate(measured.x)

    loss, error = np.empty((2, len(every), len(samples)))
    with closing(evaluator.evaluate(len(every), form)) as losses:
        for i, model_loss, model_error in losses:
            loss[i], error[i] = model_loss, model_error
            if progress is not None:
                progress(i + 1, len(every))
    weights = np.zeros((len(every), count))
    for i, own in enumerate(every):
        weights[i, list(own)] = shares[list(own)] / shares[list(own)].sum()
    return MeasuredAverages(count, tuple(sizes), chosen, weights, loss, error)


def round_subsets(
    module: nn.Module,
    samples: Samples,
    round_: Round,
    *,
    run: str,
    weights: str = "samples",
    aligned: Aligning | None = None,
    **settings: Any,
) -> RoundSubsets:
    """Compute the averages of a recorded round's clients; ``settings`` are those of :func:`average_subsets`.

    Args:
        weights: ``samples``, so that p is proportional to the clients' numbers of samples; ``recorded``, the round's
            own p; or ``uniform``.
        aligned: brings the clients' units into one order before.
    """
    clients, shares = clients_of(round_, aligned), shares_of(round_, weights)
    rows = average_subsets(module, samples, clients, shares, **settings)
    return RoundSubsets(run, round_.number, len(shares), rows, diverged_in(round_, clients))


def clients_of(round_: Round, aligned: Aligning | None) -> Weights:
    """Return a round's clients, their units in one order where that is asked."""
    clients = round_.clients()
    return clients if aligned is None else stack(aligned([clients.row(k) for k in range(len(clients))]))


def subsets_at(
    module: nn.Module,
    places: Mapping[str, Samples],
    round_: Round,
    *,
    run: str,
    own: bool = False,
    weights: str = "samples",
    aligned: Aligning | None = None,
    **settings: Any,
) -> SubsetsAtPlaces:
    """Compute the same on the data of several places, in one pass over the averages.

    With ``own`` the places are those of the cohort, in its order, and an average S is measured on the data of its
    members: the loss is Σ_{k in S} p_k L_k(w_S) / Σ_{k in S} p_k with the weights p of the average. With ``weights`` =
    ``samples`` it is the loss on all that its members hold: where the samples of a task do not count alike, p_k is
    multiplied with the mean c̄_k of how much client k's samples count (of errors ē_k, see
    :class:`~fedscope.evaluation.tasks.Task`).
    """
    clients, shares = clients_of(round_, aligned), shares_of(round_, weights)
    found = measure_averages(module, list(places.values()), clients, shares, **settings)
    about = (run, round_.number, len(shares))
    diverged = diverged_in(round_, clients)
    if own:
        counted = [count_of_samples(part) if weights == "samples" else (None, None) for part in places.values()]
        loss, error = (
            _of_members(found.shares, values, counts)
            for values, counts in zip((found.loss, found.error), zip(*counted, strict=True), strict=True)
        )
        return SubsetsAtPlaces((RoundSubsets(*about, found.rows(loss, error), diverged, OWN),))
    return SubsetsAtPlaces(
        tuple(
            RoundSubsets(*about, found.rows(found.loss[:, i], found.error[:, i]), diverged, name)
            for i, name in enumerate(places)
        )
    )


def count_of_samples(samples: Samples) -> tuple[float | None, float | None]:
    """Return c̄ and ē, the means of how much samples count in a mean of losses and of errors; None where all count
    alike."""
    task, y = samples.task, samples.y
    loss, error = (
        None if one is None else float(one.double().mean()) for one in (task.weights(y), task.error_weights(y))
    )
    return loss, error


def _of_members(shares: np.ndarray, values: np.ndarray, counts: Sequence[float | None]) -> np.ndarray:
    """Return the mean [n] of values [n, C] of each average on its members' data.

    Args:
        shares: of members, [n, C], whose sum is 1.
        counts: how much each client's samples count, on average; None where all count alike.
    """
    known = [one for one in counts if one is not None]
    own = shares * np.array(known) if known else shares
    with np.errstate(invalid="ignore"):  # a client that is no member has no part, even where its loss is infinite
        total: np.ndarray = np.where(own > 0, own * values, 0).sum(axis=1)
        return total / own.sum(axis=1) if known else total


def diverged_in(round_: Round, clients: Weights) -> tuple[int, ...]:
    """Return the ids of the clients whose model is not finite."""
    return tuple(int(k) for k in round_.client_ids[diverged_rows(clients)])


def shares_of(round_: Round, weights: str) -> np.ndarray:
    """Return what p of a subset's clients is proportional to, [C]; see :func:`round_subsets`.

    Raises:
        FedscopeError: a share that is no positive number; names the client by its id.
    """
    p = round_.weights
    shares = {"recorded": p, "uniform": np.ones(len(p))}.get(weights, p)
    if weights != "uniform" and round_.has("client_samples"):
        n = round_.client_samples
        # where p are of the samples, the same bits as of a run that says no more
        if weights == "samples" or np.allclose(n / max(1, n.sum()), p, rtol=1e-12):
            shares = n
    refuse_shares(shares, round_.client_ids, "weigh the round's clients equally (--weights uniform)")
    return shares


def size_row(m: int, population: int, loss: np.ndarray, error: np.ndarray) -> SizeRow:
    """Compute the row of a size from the losses and errors [n] of n of its ``population`` subsets."""
    return SizeRow(
        m,
        len(error),
        len(error) == population,
        *_moments(error, population),
        *_moments(loss, population),
        error_min=float(error.min()),
        error_max=float(error.max()),
    )


def _moments(values: np.ndarray, population: int) -> tuple[float, float | None, float | None]:
    """Mean, standard deviation and standard error of the mean, None where one does not exist."""
    n = len(values)
    with np.errstate(invalid="ignore"):  # infinite losses have none
        mean = float(values.mean())
    if n == 1:
        return mean, None, None
    std = float(deviation_over(values))
    return mean, std, None if n == population else std * float(np.sqrt((1 - n / population) / n))
