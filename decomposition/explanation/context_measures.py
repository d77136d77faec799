"""Measures of a round besides its factors: how similar its clients' outputs are, and how its models test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import nn

from ...checkpoints import Round, Weights, weighted_mean
from ...evaluation.device import CPU, Compute
from ...evaluation.measured_statistics import Measured
from ...evaluation.samples import Samples
from ...evaluation.tasks import require_classes
from ...evaluation.unlike_buffers import warn_of_averaged
from ...results import Serializable
from ..factors.model_outputs import model_outputs

#: (round, mean similarity of the clients' pairs, its standard error or None, over how many minibatches)
Similarity = tuple[int, float, float | None, int]


@dataclass(frozen=True)
class Against(Serializable):
    """Another model: its mean cross-entropy (nats) and error (share, 0..1), and the means over samples of the first
    model's minus its own, with their standard errors over samples: sd of the n differences, with n - 1, / √n; NaN of
    one sample."""

    name: str
    loss: float
    error: float
    loss_gap: float
    loss_stderr: float
    error_gap: float
    error_stderr: float


@dataclass(frozen=True)
class ModelComparison(Serializable):
    """`model` of a round, "average" (of its clients) or "averaged" (over rounds), against others on `samples` samples:
    its mean cross-entropy (nats) and error (share, 0..1), and each of the others."""

    round: int
    model: str
    samples: int
    loss: float
    error: float
    others: tuple[Against, ...]


@dataclass(frozen=True)
class RoundMeasures(Serializable):
    """Measures of one round's models: the clients' similarity, None where it has no value, and the comparisons on test
    data."""

    similarity: Similarity | None
    comparisons: tuple[ModelComparison, ...]


def measure_round(
    module: nn.Module,
    samples: Samples,
    tested: Samples,
    round_: Round,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    measured: Measured | None = None,
    **how: Any,
) -> RoundMeasures:
    """Compute the mean CKA of the clients' outputs, where there are two or more; the average of the clients against
    every one of them, and the average over rounds against the global model where both were recorded.

    Args:
        samples: on which outputs are similar or not; tested: on which models are compared.
        seed: of the minibatches.
        progress: called with (test samples done, all).
        measured: gives the average its running statistics; None: they are averaged as the weights are.
        how: ``device``, ``precision`` and ``workers``, as for :class:`~fedscope.evaluation.evaluator.Evaluator`.

    Raises:
        FedscopeError: models that do not fit the module.
    """
    from ..cka.hsic import LEAST, minibatches, usual_batch
    from ..cka.pairs import round_similarity

    clients, number, ids = round_.clients(), round_.number, round_.client_ids
    similarity: Similarity | None = None
    if len(ids) > 1 and len(samples) >= LEAST["unbiased"]:
        chosen: dict[str, Any] = {"batch": usual_batch(len(samples)), "seed": seed}
        (cka,) = round_similarity(module, samples, clients, number=number, client_ids=ids, **chosen, **how)
        mean, error = float(cka.mean), float(cka.mean_stderr)
        if isfinite(mean):
            batches = len(minibatches(len(samples), *chosen.values()))
            similarity = (number, mean, error if isfinite(error) else None, batches)
    # a client of weight 0 is no part of the average
    others = {f"client-{k}": clients.row(row) for row, k in enumerate(ids.tolist()) if round_.weights[row]}
    warn_of_averaged(clients.buffers, clients.layout.names, round_.weights)
    average = weighted_mean(clients, round_.weights)
    compared = [("average", average if measured is None else measured(average), others)]
    if {"averaged", "global"} <= set(round_.models):
        compared.append(("averaged", round_.read("averaged"), {"global": round_.read("global")}))
    comparisons = []
    for name, model, against in compared:
        comparisons.append(
            compare_models(module, tested, model, against, name=name, number=number, progress=progress, **how)
        )
        progress = None  # the second takes no longer than two models do
    return RoundMeasures(similarity, tuple(comparisons))


def compare_models(
    module: nn.Module,
    samples: Samples,
    model: Weights,
    others: Mapping[str, Weights],
    *,
    name: str,
    number: int,
    compute: Compute = CPU,
    progress: Callable[[int, int], None] | None = None,
) -> ModelComparison:
    """Cross-entropy and error of a model against those of others, sample by sample.

    The same samples meet all models, so that the difference to each has a standard error of its own, smaller than that
    of two means. Sums are in double precision. An output of NaN is a wrong answer, and its loss is NaN.

    Args:
        module: the architecture; its own parameters are not used and not changed.
        name, number: of the model and its round, for the result.
        progress: called with (samples done, n).

    Raises:
        FedscopeError: models that do not fit the module.
    """
    require_classes(samples, "a comparison of cross-entropy and error")
    models, n = [model, *others.values()], len(samples.y)
    # [loss or error; its mean, the mean gap, the mean squared gap; model]
    total = torch.zeros(2, 3, len(models), dtype=torch.float64)
    named = {name: model, **others}
    for rows, outputs in model_outputs(
        module, samples, models, named, number=number, compute=compute, progress=progress
    ):
        f = outputs.double()
        y = samples.y[rows].to(f.device).expand(len(models), -1)
        loss = -torch.log_softmax(f, dim=-1).gather(-1, y[..., None])[..., 0]
        wrong = (f.argmax(dim=-1) != y) | f.isnan().any(dim=-1)
        for row, values in enumerate((loss, wrong.double())):
            gap = values[:1] - values
            total[row] += torch.stack([values.sum(-1), gap.sum(-1), gap.square().sum(-1)])
    means, gaps, squares = (total / n).unbind(dim=1)
    spread = ((squares - gaps.square()).clamp(min=0) / (n - 1)).sqrt()
    return ModelComparison(
        round=number,
        model=name,
        samples=n,
        loss=float(means[0, 0]),
        error=float(means[1, 0]),
        others=tuple(
            Against(
                label,
                *(means[:, k].tolist()),
                *(float(values[what, k]) for what in (0, 1) for values in (gaps, spread)),
            )
            for k, label in enumerate(others, start=1)
        ),
    )
