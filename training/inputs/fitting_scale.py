"""Checks that models are measured in the scale that they were trained in, where nobody said which that is: with the
other one, standardised or as the samples are, they would not be much better."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError, FedscopeWarning, Weights
from .given_scale import as_given, standardised_as_given

if TYPE_CHECKING:
    from torch import nn

    from ...evaluation.samples import Samples
    from .. import Dataset

#: test samples that a model is asked; training samples that say a scale; samples at a time
ASKED, SCALED_BY, BATCH = 500, 2000, 50
#: fewer samples decide nothing
LEAST = 10
#: standard errors by which the other scale is better, and what it leaves at most of errors
CLEARLY, LEFT = 3.0, 0.8


def refuse_misfit(
    module: nn.Module, dataset: Dataset, models: Sequence[tuple[str, Weights]], source: EvaluationConfig
) -> None:
    """Refuse samples that are standardised because their name means so, if a model answers far better on them as they
    are; of samples that are taken as they are, warn where it is the other way round.

    Compared are the errors of 500 test samples, or of ``--limit``, and of regressions the losses, sample by sample.
    The other scale has to be better by three standard errors, and to leave at most four fifths (of losses half) of
    the own number and of what one answer for all samples has, which an untrained model may give.

    Args:
        models: names and weights, of which the first and the last are asked.

    Raises:
        FedscopeError: has both numbers, and says what to give.
    """
    if source.standardise is not None or source.accept_data or not models:
        return
    both = in_both_scales(dataset, min(ASKED, source.limit or ASKED))
    if both is None:
        return
    for name, weights in dict([models[0], models[-1]]).items():
        own, other = (_numbers(module, samples, weights, source) for samples in both)
        if own is None or other is None or not is_better(own, other):
            continue
        of, unit, sign = ("an error", 100, " %") if own.errors else ("a loss", 1, "")
        shown = [f"{unit * float(one.values.mean()):.3g}{sign}" for one in (own, other)]
        if dataset.means:
            raise FedscopeError(
                f"{name} has {of} of {shown[1]} on {len(both[0])} samples of {dataset.name} as they are, and of "
                f"{shown[0]} on the same standardised by the training split, which is how it would be measured; give "
                "--no-standardise (standardise=False), or --standardise (standardise=True) if that is right"
            )
        warnings.warn(
            f"{name} has {of} of {shown[0]} on {len(both[0])} samples of {dataset.name} as they are, which is how it "
            f"is measured, and of {shown[1]} on the same standardised by the training split; give --standardise "
            "(standardise=True) if it was trained on those, else --no-standardise (standardise=False)",
            FedscopeWarning,
            stacklevel=3,
        )
        return


def in_both_scales(dataset: Dataset, count: int) -> tuple[Samples, Samples] | None:
    """Return some test samples as the data set has them, and the same in the other scale; None where there is no
    other: tokens, and no training samples to standardise by."""
    import torch

    whole = dataset.samples("test")
    if not whole.x.is_floating_point() or not (dataset.means or len(dataset.y_train)):
        return None
    samples, train = whole.limit(count), len(dataset.y_train)
    rows = np.sort(np.random.default_rng(0).choice(train, min(train, SCALED_BY), replace=False))
    few = replace(
        dataset,
        x_train=np.asarray(dataset.x_train[rows]) if train else np.asarray(samples.x[:0]),
        y_train=dataset.y_train[rows],
        x_test=np.asarray(samples.x),
        y_test=samples.y.numpy(),
    )
    other = as_given(few) if dataset.means else standardised_as_given(few)
    return samples, replace(samples, x=torch.from_numpy(np.asarray(other.x_test, np.float32)))


@dataclass(frozen=True, eq=False)
class Numbers:
    """Each sample's error, or its loss.

    Attributes:
        values: float64 [n]; errors: whether these are errors; guess: the mean of one answer for all samples.
    """

    values: np.ndarray
    errors: bool
    guess: float


def is_better(own: Numbers, other: Numbers) -> bool:
    """Check whether the other scale's numbers are lower beyond chance, by much, and better than a guess.

    >>> few, many = np.r_[np.ones(10), np.zeros(90)], np.r_[np.ones(60), np.zeros(40)]
    >>> is_better(Numbers(many, True, 0.5), Numbers(few, True, 0.5))
    True
    >>> is_better(Numbers(many, True, 0.1), Numbers(few, True, 0.1))
    False
    """
    if not (np.isfinite(own.values).all() and np.isfinite(other.values).all()):
        return False
    better, left = own.values - other.values, LEFT if own.errors else 0.5
    spread = float(better.std(ddof=1)) / sqrt(len(better)) if len(better) > LEAST else math.inf
    at_most = left * min(float(own.values.mean()), own.guess)
    return float(better.mean()) > CLEARLY * spread and float(other.values.mean()) <= at_most


def _numbers(module: nn.Module, samples: Samples, weights: Weights, source: EvaluationConfig) -> Numbers | None:
    """Measure each sample's error, of a regression its loss; None of other tasks."""
    import torch

    from ...evaluation.evaluator import Evaluator

    evaluator, found, errors = Evaluator(module, samples, compute=source.compute), [], True
    task, every = samples.task, samples.y
    for start in range(0, len(samples), BATCH):
        rows = slice(start, start + BATCH)
        outputs, y = evaluator.logits([weights], rows)[0].cpu(), every[rows]
        values = task.error(outputs, y)
        if values is None and outputs.shape == y.shape and y.is_floating_point():
            values, errors = task.loss(outputs, y), False
        if values is None or values.shape != y.shape[:1]:
            return None
        found.append(values.double().numpy())
    if errors and (every.ndim != 1 or every.is_floating_point()):
        return None
    if errors:
        guess = 1 - float(torch.unique(every, return_counts=True)[1].max()) / len(every)
    else:
        guess = float(task.loss(every.mean(0, keepdim=True).expand_as(every), every).double().mean())
    return Numbers(np.concatenate(found), errors, guess)
