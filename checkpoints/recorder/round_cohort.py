"""The cohort of one round: who took part, with what weight, and what is seen of its models together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..models.adapters import factors_in
from ..models.weights import Layout
from ..rounds.drift import NUMBERS, Block, drift_in
from .accepted_rounds import AcceptedRounds
from .client_numbers import by_client, column_of, read_samples, read_weights
from .coerce_models import ModelTensors, numbers_of
from .identify_server import Rule, ServerIdentifier, ServerStep
from .own_starts import OwnStarts, read_mixing, read_staleness
from .retention import ClientRetention
from .round_models import RoundModels, first_not_finite


@dataclass(frozen=True, eq=False)
class Cohort:
    """Who took part in a round, in the order of the clients' numbers.

    Attributes:
        ids: [C], ascending.
        models: after local training.
        counts: n_k, [C]; None where they were not given.
        p: weights, [C], sum 1.
        own: the models that they started from, where these are not one.
    """

    ids: list[int]
    models: list[ModelTensors]
    counts: np.ndarray | None
    p: np.ndarray
    own: OwnStarts | None


def cohort_of(models: RoundModels, given: Mapping[str, Any], mixing: Any, place: str) -> Cohort:
    """Put what is given beside clients in their order.

    Args:
        given: ``samples``, ``weights`` and ``staleness``; None for none.

    Raises:
        FedscopeError: as :meth:`~fedscope.checkpoints.recorder.recorder.Recorder.round` says of them.
    """
    ids = sorted(models.clients)
    samples, weights, staleness = (
        by_client(given[what], models.clients, place, what) for what in ("samples", "weights", "staleness")
    )
    own = None
    if models.starts is not None:
        ages = read_staleness(column_of(staleness, ids, place, "staleness"), place)
        own = OwnStarts([models.starts[k] for k in ids], read_mixing(mixing, ids, place), ages)
    counts = read_samples(samples, ids, place)
    p = read_weights(weights, counts, ids, place)
    return Cohort(ids, [models.clients[k] for k in ids], counts, p, own)


def weighs_by_numbers(step: ServerStep, models: RoundModels, cohort: Cohort, layout: Layout) -> bool:
    """Check whether the clients' numbers, taken for n_k, make the server's model their mean, and equal weights do not:
    pairs of loops that weigh with them are (n_k, model)."""
    known = (Rule.MEAN, Rule.MEDIAN, Rule.ONE_CLIENT, Rule.UNCHANGED, Rule.COARSE)
    if step.rule in known or models.global_ is None or not all(cohort.ids):  # no number of samples is 0
        return False
    total = sum(cohort.ids)
    p = np.array([k / total for k in cohort.ids])
    told, _ = ServerIdentifier(layout).look(models.start, cohort.models, p, models.global_)
    return told.rule is Rule.MEAN and not told.plain


def tell_diverged(known: AcceptedRounds, cohort: Cohort, place: str) -> None:
    """Tell which starts and clients are not finite."""
    starts = () if cohort.own is None else cohort.own.models
    for kind, who, models in (("start", "the start of client", starts), ("client", "client", cohort.models)):
        for k, model in zip(cohort.ids, models, strict=False):  # of starts all, or none
            if diverged := first_not_finite(model):
                sentence = f"{place}: {who} {k} has diverged ({diverged} is not finite); it is recorded as is"
                known.tell(f"{kind} {k}", sentence)


def tell_unsketched(known: AcceptedRounds, models: RoundModels, keeping: ClientRetention, place: str) -> bool:
    """Check whether there is no start, so that no updates are sketched, and tell where they should be."""
    if keeping.sketch and models.start is None:
        which = "start=" if models.starts is None else "one start for all clients"
        known.tell("sketch", f"{place}: no sketches are kept without {which}, which updates are made of")
    return models.start is None


def drift_of(
    known: AcceptedRounds, models: RoundModels, cohort: Cohort, layout: Layout, place: str
) -> dict[str, float]:
    """How far the clients' updates agree; nothing where there are none, or of adapters."""
    if models.start is None or not cohort.models:
        which = "start= and clients=" if models.starts is None else "one start for all clients"
        known.tell("drift", f"{place}: no drift is measured without {which}, which updates are made of")
        return {}
    if factors_in(layout.names):
        known.tell("drift", f"{place}: of adapters no drift is measured; fedscope updates compares their products")
        return {}
    start, end = models.start, models.global_

    def blocks() -> Iterator[Block]:
        for entry in layout.parameters:
            *rows, sent, made = (
                None if one is None else numbers_of(one.arrays[entry.name], one.dtypes[entry.name]).reshape(-1)
                for one in (*cohort.models, start, end)
            )
            assert sent is not None
            step = max(1, NUMBERS // len(rows))
            for at in range(0, len(sent), step):
                where = slice(at, at + step)
                values = np.stack([row[where] for row in rows if row is not None])
                yield sent[where], values, None if made is None else made[where]

    return drift_in(blocks(), np.asarray(cohort.p, np.float64))
