"""What a page says of a round besides its factors: how similar its clients' outputs are, and how its models test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

from torch import nn

from ...checkpoints import Round, weighted_mean
from ...checkpoints.results import Kept
from ...landscape.evaluation.samples import Samples
from .comparing import Comparison, compare_models

#: (round, mean similarity of the clients' pairs, its standard error or None, over how many minibatches)
Similarity = tuple[int, float, float | None, int]


@dataclass(frozen=True)
class RoundMeasures(Kept):
    """Of one round's models: the clients' similarity, None where it has no value, and the comparisons on test data."""

    similarity: Similarity | None
    comparisons: tuple[Comparison, ...]


def measure_round(
    module: nn.Module,
    samples: Samples,
    tested: Samples,
    round_: Round,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    **how: Any,
) -> RoundMeasures:
    """The mean CKA of the clients' outputs, where there are two or more; the average of the clients against every one
    of them, and the average over rounds against the global model where both were recorded.

    Args:
        samples: on which outputs are similar or not; tested: on which models are compared.
        seed: of the minibatches.
        progress: called with (test samples done, all).
        how: ``device``, ``precision`` and ``workers``, as for :class:`~fedscope.landscape.Evaluator`.

    Raises:
        FedscopeError: models that do not fit the module.
    """
    from ..similarity import LEAST, minibatches, round_similarity, usual_batch

    clients, number, ids = round_.clients(), round_.number, round_.client_ids
    similarity: Similarity | None = None
    if len(ids) > 1 and len(samples) >= LEAST["unbiased"]:
        chosen: dict[str, Any] = {"batch": usual_batch(len(samples)), "seed": seed}
        (cka,) = round_similarity(module, samples, clients, number=number, client_ids=ids, **chosen, **how)
        mean, error = float(cka.mean), float(cka.mean_stderr)
        if isfinite(mean):
            batches = len(minibatches(len(samples), *chosen.values()))
            similarity = (number, mean, error if isfinite(error) else None, batches)
    others = {f"client-{k}": clients.row(row) for row, k in enumerate(ids.tolist())}
    compared = [("average", weighted_mean(clients, round_.weights), others)]
    if {"averaged", "global"} <= set(round_.models):
        compared.append(("averaged", round_.read("averaged"), {"global": round_.read("global")}))
    comparisons = []
    for name, model, against in compared:
        comparisons.append(
            compare_models(module, tested, model, against, name=name, number=number, progress=progress, **how)
        )
        progress = None  # the second takes no longer than two models do
    return RoundMeasures(similarity, tuple(comparisons))
