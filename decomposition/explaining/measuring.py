"""What a page says of a round besides its factors: how similar its clients' outputs are, and how its models test."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from torch import nn

from ...checkpoints import Round, weighted_mean
from ...checkpoints.results import Kept
from ...landscape.samples import Samples
from .comparing import Comparison, compare_models
from .similar import Similarity


@dataclass(frozen=True)
class RoundSimilarity(Kept):
    """The clients' mean CKA of outputs over ``batches`` minibatches, NaN where it does not exist, and its standard
    error."""

    round: int
    mean: float
    stderr: float
    batches: int

    @property
    def told(self) -> Similarity | None:
        """As statements take it; None where there is no value."""
        error = self.stderr if isfinite(self.stderr) else None
        return (self.round, self.mean, error, self.batches) if isfinite(self.mean) else None


@dataclass(frozen=True)
class RoundTests(Kept):
    """The models of a round against each other on test data."""

    comparisons: tuple[Comparison, ...]


def outputs_similarity(
    module: nn.Module, samples: Samples, round_: Round, *, seed: int, **settings: Any
) -> RoundSimilarity:
    """The similarity of the clients of a recorded round, two or more; ``settings`` are those of
    :func:`~fedscope.decomposition.similarity.round_similarity`."""
    from ..similarity import minibatches, round_similarity, usual_batch

    batch, number = usual_batch(len(samples)), round_.number
    chosen: dict[str, Any] = {"number": number, "client_ids": round_.client_ids, "batch": batch, "seed": seed}
    (one,) = round_similarity(module, samples, round_.clients(), **chosen, **settings)
    return RoundSimilarity(number, float(one.mean), float(one.mean_stderr), len(minibatches(len(samples), batch, seed)))


def round_tests(module: nn.Module, samples: Samples, round_: Round, *, progress: Any = None, **how: Any) -> RoundTests:
    """The average of a recorded round's clients against every one of them, and the average over rounds against the
    global model where both were recorded; ``how`` as for :func:`~fedscope.decomposition.explaining.compare_models`."""
    clients, number = round_.clients(), round_.number
    others = {f"client-{k}": clients.row(row) for row, k in enumerate(round_.client_ids.tolist())}
    average = weighted_mean(clients, round_.weights)
    made = [compare_models(module, samples, average, others, name="average", number=number, progress=progress, **how)]
    if {"averaged", "global"} <= set(round_.models):
        averaged, others = round_.read("averaged"), {"global": round_.read("global")}
        made.append(compare_models(module, samples, averaged, others, name="averaged", number=number, **how))
    return RoundTests(tuple(made))
