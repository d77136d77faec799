"""Consensus distances of a recorded round, streamed from disk: before and after mixing, and how far the mean is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt

from ...checkpoints import ColumnChunk, Round, Run, read_chunks
from ...checkpoints.rounds.mixing import Mixing, Moments, explain_mixing, identify_mixing
from ...evaluation.device import CPU, Compute, run_in_workers
from ..adapters.recorded_adapters import adapters_of_run, eps_of
from .adapter_distances import product_distances

Array = npt.NDArray[np.float64]
#: numbers of all models at a time, 8 MiB of float64 a worker
NUMBERS = 2**20


@dataclass(frozen=True, eq=False)
class RoundDistances:
    """Distances of a round's C nodes.

    Attributes:
        before: √(1/C Σ_c ‖w_c − w̄‖²), of the models after local training about their mean w̄.
        after: the same of the next starts about their own mean; None where neither they nor a matrix is known.
        moved: ‖w̄ − w⁰‖, how far the mean is from the initial model; None where round 1's start was not recorded.
        mixing: what made the next starts; None where all nodes are sent one model.
    """

    before: float
    after: float | None
    moved: float | None
    mixing: Mixing | None


def measure_distances(
    run: Run, number: int, progress: Callable[[int, int], None] | None = None, *, compute: Compute = CPU
) -> RoundDistances:
    """Measure a recorded round's distances, over the parameters (not the statistics of normalization layers).

    With the C nodes' models w_c [P] after local training, their mean w̄ = 1/C Σ_c w_c, the next round's starts s_c of
    the S nodes that take part in both rounds, s̄ = 1/S Σ_c s_c, and w⁰ the mean of round 1's starts:

        before = √(1/C Σ_c ‖w_c − w̄‖²),  after = √(1/S Σ_c ‖s_c − s̄‖²),  moved = ‖w̄ − w⁰‖

    Where round 1 kept no start, no later one stands in for it, and there is no ``moved``.
    Where the next starts were not recorded and the mixing matrix W was given, s = W w. Where the next round has one
    start for all, and behind the last round of a run with a server, ``after`` is 0. Each number is read once, in blocks
    of columns, in float64. Of adapters the three are distances of what they do
    (:func:`~fedscope.decomposition.consensus.adapter_distances.product_distances`), and the mixing is that of the
    factors, which are what nodes send.

    Args:
        progress: called with how many of the P parameters are done.

    Raises:
        FedscopeError: the round has no clients.
    """
    round_ = run.round(number)
    following = run.round(number + 1) if number + 1 in run.rounds else None
    is_served = sends_one(run, round_, following)
    then = following if following is not None and following.has_starts else None
    ids = round_.client_ids
    staying = np.zeros(0, np.int64) if then is None else np.flatnonzero(np.isin(then.client_ids, ids))
    then = then if len(staying) else None
    first = initial_round(run)
    sums = _stream(round_, then, staying, first, progress, compute)
    clients = sums["clients"]
    before = _root(np.trace(clients) / len(ids))
    after: float | None = 0.0 if is_served else None
    mixing: Mixing | None = None
    if not is_served:
        moments = None
        if then is not None:
            after = _root(float(sums["spread"]) / len(staying))
            size = float(sums["size"]) / len(staying)
            moments = Moments(clients, sums["across"], sums["starts"], size, round_.layout.size, eps_of(round_))
        mixing = _mixing_of(round_, then, staying, moments)
        if after is None and mixing.matrix is not None:
            turned = mixing.matrix - mixing.matrix.mean(axis=0)
            with np.errstate(invalid="ignore"):
                after = _root(float(np.einsum("ij,jk,ik->", turned, clients, turned)) / len(turned))
    adapters = adapters_of_run(run)
    if adapters is not None:
        mixed = None if mixing is None or then is not None else mixing.matrix
        before, between, moved = product_distances(round_, adapters, then, staying, first, mixed)
        return RoundDistances(before, after if between is None else between, moved, mixing)
    return RoundDistances(before, after, None if first is None else _root(float(sums["moved"])), mixing)


def mixing_of(run: Run, number: int) -> Mixing | None:
    """Return the mixing matrix of a recorded round, given or found from the next round's starts; None where all nodes
    are sent one model. See :func:`~fedscope.checkpoints.rounds.mixing.identify_mixing`."""
    return measure_distances(run, number).mixing


def initial_round(run: Run) -> Round | None:
    """Return round 1, whose starts are the initial model; None where it kept neither its start nor all clients'
    starts."""
    first = run.round(1) if 1 in run.rounds else None
    return first if first is not None and ("start" in first.models or first.has_starts) else None


def sends_one(run: Run, round_: Round, following: Round | None) -> bool:
    """Tell whether all are sent one model after a round; behind the last one, whether there is a server that will."""
    if following is not None:
        return "start" in following.models
    # nodes without a server may share the first start, too
    told = round_.models if "global" in round_.models or round_.number > 1 else ()
    return "start" in told or not run.is_foreign


def _mixing_of(round_: Round, then: Round | None, staying: npt.NDArray[Any], moments: Moments | None) -> Mixing:
    given = round_.mixing
    if given is not None:
        if then is None:
            return explain_mixing(given, None)
        rows = np.searchsorted(round_.client_ids, then.client_ids[staying])
        found = explain_mixing(given[rows], moments)
        return Mixing("given", given, found.residual)
    if moments is None:
        why = "the next round's starts were not recorded, and no matrix was given"
        return Mixing("unknown", None, None, why=why)
    return identify_mixing(moments)


def _stream(
    round_: Round,
    then: Round | None,
    staying: npt.NDArray[Any],
    first: Round | None,
    progress: Callable[[int, int], None] | None,
    compute: Compute,
) -> dict[str, Any]:
    """Sum what all distances are made of, in one pass over the columns of up to three rounds."""
    most = max(len(one.client_ids) for one in (round_, then, first) if one is not None)
    columns, size = max(1, NUMBERS // max(1, most)), round_.layout.size
    count = len(round_.client_ids)
    sums: dict[str, Any] = {"clients": np.zeros((count, count)), "moved": 0.0, "spread": 0.0, "size": 0.0}
    sums |= {"across": np.zeros((len(staying), count)), "starts": np.zeros(len(staying))}

    def pieces() -> Iterator[tuple[ColumnChunk | None, ...]]:
        sources: list[Iterator[ColumnChunk | None]] = [read_chunks(round_, columns)]
        sources.append(_none() if then is None else read_chunks(then, columns, which="starts"))
        which = "start" if first is not None and "start" in first.models else "starts"
        sources.append(_none() if first is None else read_chunks(first, columns, which=which))
        yield from zip(*sources, strict=False)  # the shortest is the round's own

    def task(piece: tuple[ColumnChunk | None, ...], _: Any, __: Event) -> tuple[int, dict[str, Any]]:
        own, starts, initial = piece
        assert own is not None
        w = own.read().astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # of models that diverged
            mean = w.mean(axis=0)
            w -= mean
            found: dict[str, Any] = {"clients": w @ w.T}
            if starts is not None:
                s = starts.read()[staying].astype(np.float64)
                found["size"] = (s**2).sum()
                found["spread"] = ((s - s.mean(axis=0)) ** 2).sum()
                s -= mean
                found |= {"across": s @ w.T, "starts": (s**2).sum(axis=1)}
            if initial is not None:
                found["moved"] = ((mean - initial.read().astype(np.float64).mean(axis=0)) ** 2).sum()
        return own.where.stop, found

    for done, found in run_in_workers(task, pieces(), workers=compute.workers):
        with np.errstate(invalid="ignore"):
            for name, value in found.items():
                sums[name] += value
        if progress is not None:
            progress(done, size)
    return sums


def _none() -> Iterator[None]:
    while True:
        yield None


def _root(square: float) -> float:
    return float(np.sqrt(max(square, 0.0))) if not np.isnan(square) else square
