"""Checks that models are measured on what they were trained on, where nobody said how: samples standardised or as they
are, or in another usual scale, and labels as they are numbered. On the other one they would be far better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from ...analysis.settings import EvaluationConfig
from ...checkpoints import FedscopeError, Weights
from ...checkpoints.io.warn_user import warn_user
from ...evaluation.standard_tasks import PADDED
from .other_scales import OtherScale, asked_scale, other_axes, usual_scales
from .renumbered_labels import renumbered

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ...evaluation.evaluator import Evaluator
    from ...evaluation.samples import Samples
    from .. import Dataset

#: test samples that a model is asked in the scale of an option, and in usual ones; at a time where outputs are large
ASKED, FEW, BATCH = 500, 100, 50
#: fewer samples decide nothing
LEAST = 10
#: numbers in the outputs that are held
OUTPUTS = 1 << 20
#: share of a guess's errors that a model which has learnt has at most
LEARNT = 0.15
#: standard errors by which the other scale is better, and what it leaves at most: models that have hardly been trained
#: may lose a third of their errors in a scale that they have not learnt
CLEARLY, HALF = 3.0, 0.5
#: the same of losses that are absurd
SURER = 2.0
#: an error up to which the usual scales are not tried
GOOD = 0.1
#: times the loss of a guess, beyond which a classifier's loss is no matter of confidence; beyond which it is sure
ABSURD, SURE = 3.0, 1.5


def refuse_misfit(
    module: nn.Module, dataset: Dataset, models: Sequence[tuple[str, Weights]], source: EvaluationConfig
) -> None:
    """Refuse samples that are standardised because their name means so, if a model answers far better on them as they
    are, or in another usual scale; of samples that are taken as they are, warn where it is the other way round.

    Compared are the errors of 500 test samples, or of ``--limit``, and of tasks without errors the losses, sample by
    sample; of 100 where these show that a model is right as it is. The other scale has to be better by three standard
    errors, and to leave at most half of the own number and of what one answer for all samples has, which an untrained
    model may give; and there the model has to be good, or its loss half as well, as one that has hardly been trained
    is not. Scales that no option asks for (:func:`~.other_scales.usual_scales`) are tried on 100 samples, if a model's
    error is above a tenth, or its loss absurd.

    A warning says, too, if a classifier's answers are right but for the numbers of the labels.

    Args:
        models: names and weights, of which the first and the last are asked.

    Raises:
        FedscopeError: has both numbers, and says what to give.
    """
    if source.standardise is not None or source.accept_data or not models:
        return
    whole = dataset.samples("test")
    if not whole.x.is_floating_point() or _may_not_look_up(module, source):
        return
    most = ASKED if dataset.means or len(dataset.y_train) else FEW
    samples = whole.limit(min(most, source.limit or most))
    if len(samples) <= LEAST:
        return
    asked, places = asked_scale(dataset, samples), _Places(module, source)
    begin = samples.limit(FEW)
    first = None if asked is None or len(samples) <= FEW else asked_scale(dataset, begin)
    for name, weights in dict([models[0], models[-1]]).items():
        if first is not None and _is_settled(places, begin, first, weights):
            continue
        own = places.measure(samples, weights)
        if own is None:
            return
        other = None if asked is None else places.try_scale(asked.samples, weights)
        if asked is not None and other is not None and _has_learnt(own, other):
            _say(name, dataset, own.compared, other.compared, asked)
            return
        if own.is_bad and (found := _usual(places, dataset, samples, weights, own)) is not None:
            _say(name, dataset, *found)
            return
        error, words = own.renumbered
        # an untrained model, which may answer so, is not sure of it
        if words and own.losses is not None and own.losses.mean > SURE * own.losses.guess:
            warn_user(
                f"{name} has {own.compared} on {len(samples)} samples of {dataset.name}, and would have "
                f"{100 * error:.3g} % if their labels were numbered otherwise: it answers {words}; give y as the "
                "model's outputs are numbered, or --accept-data (accept_data=True) if it is right"
            )
            return


def _is_settled(places: _Places, samples: Samples, asked: OtherScale, weights: Weights) -> bool:
    """Check whether few samples do: a model is good on them as they are measured, and by far the worse in the other
    scale."""
    own = places.try_scale(samples, weights)
    other = None if own is None or own.is_bad else places.try_scale(asked.samples, weights)
    return own is not None and other is not None and is_better(other.compared, own.compared, HALF)


def _may_not_look_up(module: nn.Module, source: EvaluationConfig) -> bool:
    """Check whether samples in another scale may be places in a table that there are not, which stop a GPU for good."""
    from torch import nn

    return source.compute.is_gpu and any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in module.modules())


def _usual(
    places: _Places, dataset: Dataset, samples: Samples, weights: Weights, own: _Measured | None
) -> tuple[Numbers, Numbers, OtherScale] | None:
    """Find the usual scale in which a model is far better, and best, with its own and the other numbers."""
    few = samples.limit(FEW)
    best: tuple[Numbers, Numbers, OtherScale] | None = None
    for scale in chain(usual_scales(dataset, few), other_axes(few)):
        if own is None or len(own.compared.values) > len(few):
            own = places.measure(few, weights)
        other = places.try_scale(scale.samples, weights)
        if own is None or other is None:
            continue
        found = (own.compared, other.compared) if _has_learnt(own, other) else None
        # of losses that a few wrong answers make, the deviation is as large
        if own.absurd is not None and other.losses is not None and is_better(own.absurd, other.losses, SURER):
            found = own.absurd, other.losses
        if found is not None and (best is None or found[1].mean < best[1].mean):
            best = *found, scale
    return best


def _has_learnt(own: _Measured, other: _Measured) -> bool:
    """Check whether the other scale is better, and no mere chance of a model that has hardly learnt its own."""
    if not is_better(own.compared, other.compared):
        return False
    good = other.compared.mean <= LEARNT * other.compared.guess
    surer = own.losses is not None and other.losses is not None and other.losses.mean <= HALF * own.losses.mean
    return good or surer or not own.compared.errors


def _say(name: str, dataset: Dataset, own: Numbers, other: Numbers, scale: OtherScale) -> None:
    """Refuse the scale that data have by their name, or warn of it; with both numbers."""
    count = len(own.values)
    if scale.axes:
        warn_user(
            f"{name} has {own} on {count} samples of {dataset.name} as they are measured, and of {other.number} on the "
            f"same {scale.words}; give them so if it was trained on those (a function for --data is taken as it is), "
            "else --accept-data (accept_data=True)"
        )
        return
    if dataset.means:
        give = "give" if scale.asked else "save them so, and give"
        raise FedscopeError(
            f"{name} has {other} on {count} samples of {dataset.name} {scale.words}, and of {own.number} on the same "
            f"standardised by the training split, which is how it would be measured; {give} --no-standardise "
            "(standardise=False), or --standardise (standardise=True) if that is right"
        )
    give = "--standardise (standardise=True)" if scale.asked else "them so"
    warn_user(
        f"{name} has {own} on {count} samples of {dataset.name} as they are, which is how it is measured, and of "
        f"{other.number} on the same {scale.words}; give {give} if it was trained on those, else --no-standardise "
        "(standardise=False)"
    )


@dataclass(frozen=True, eq=False)
class Numbers:
    """Each sample's error, or its loss.

    Attributes:
        values: float64 [n]; errors: whether these are errors; guess: the mean of one answer for all samples.
    """

    values: np.ndarray
    errors: bool
    guess: float

    @property
    def mean(self) -> float:
        """Over samples."""
        return float(self.values.mean())

    @property
    def number(self) -> str:
        """The mean in words."""
        return f"{100 * self.mean:.3g} %" if self.errors else f"{self.mean:.3g}"

    def __str__(self) -> str:
        return f"{'an error' if self.errors else 'a loss'} of {self.number}"


def is_better(own: Numbers, other: Numbers, clearly: float = CLEARLY) -> bool:
    """Check whether the other scale's numbers are lower beyond chance, by much, and better than a guess.

    >>> few, many = np.r_[np.ones(10), np.zeros(90)], np.r_[np.ones(60), np.zeros(40)]
    >>> is_better(Numbers(many, True, 0.5), Numbers(few, True, 0.5))
    True
    >>> is_better(Numbers(many, True, 0.1), Numbers(few, True, 0.1))
    False
    """
    if own.errors != other.errors or not (np.isfinite(own.values).all() and np.isfinite(other.values).all()):
        return False
    better = own.values - other.values
    spread = float(better.std(ddof=1)) / sqrt(len(better)) if len(better) > LEAST else math.inf
    return float(better.mean()) > clearly * spread and other.mean <= HALF * min(own.mean, own.guess)


@dataclass(frozen=True, eq=False)
class _Measured:
    """What a model makes of some samples.

    Attributes:
        compared: errors where the task has some, else losses.
        losses: of a classifier, whose guess is the entropy of the labels; None of others.
        renumbered: as :func:`~.renumbered_labels.renumbered` says it of a classifier.
    """

    compared: Numbers
    losses: Numbers | None = None
    renumbered: tuple[float, str] = (math.nan, "")

    @property
    def absurd(self) -> Numbers | None:
        """The losses of a classifier that is surer of wrong answers than one in its own scale will be."""
        return self.losses if self.losses is not None and self.losses.mean > ABSURD * self.losses.guess else None

    @property
    def is_bad(self) -> bool:
        """Whether another scale may be the right one."""
        limit = GOOD if self.compared.errors else self.compared.guess
        return self.compared.mean > limit or self.absurd is not None


class _Places:
    """Samples in several scales with an evaluator each, which all models are measured in."""

    def __init__(self, module: nn.Module, source: EvaluationConfig) -> None:
        self.module, self.compute = module, source.compute
        self._made: dict[int, tuple[Samples, Evaluator]] = {}

    def try_scale(self, samples: Samples, weights: Weights) -> _Measured | None:
        """Measure samples in a scale that nobody asked for; None where the module fails on them, as one does that looks
        them up in a table."""
        try:
            return self.measure(samples, weights)
        except Exception:
            return None

    def measure(self, samples: Samples, weights: Weights) -> _Measured | None:
        """Measure a model; None where one sample's number is not known, or not what one answer for all would have."""
        from ...evaluation.evaluator import Evaluator

        if id(samples) not in self._made:
            self._made[id(samples)] = samples, Evaluator(self.module, samples, compute=self.compute)
        evaluator, task = self._made[id(samples)][1], samples.task
        errors, losses, answers = [], [], []
        shape: tuple[int, ...] = ()
        start, step = 0, BATCH
        while start < len(samples):
            rows = slice(start, start + step)
            outputs, y = evaluator.logits([weights], rows)[0].cpu(), samples.y[rows]
            shape = tuple(outputs.shape[1:])
            # of few outputs all the others at once, as a large model is loaded for each batch
            start, step = rows.stop, max(BATCH, OUTPUTS // max(1, math.prod(shape)))
            error, loss = task.error(outputs, y), task.loss(outputs, y)
            losses.append(loss.double())
            if error is not None:
                errors.append(error.double())
            if task.has_classes and outputs.ndim == 2:
                answers.append(outputs.argmax(dim=1))
        return _numbers(samples, shape, errors, losses, answers)


def _numbers(
    samples: Samples, shape: tuple[int, ...], errors: list[Tensor], losses: list[Tensor], answers: list[Tensor]
) -> _Measured | None:
    """Put together what batches gave.

    Args:
        shape: of a sample's outputs.
    """
    import torch

    y = samples.y
    if not errors:
        guess = _guess(samples, shape)
        values = torch.cat(losses)
        return (
            None if guess is None or values.shape != y.shape[:1] else _Measured(Numbers(values.numpy(), False, guess))
        )
    if y.is_floating_point():
        return None
    values = torch.cat(errors)
    if y.ndim > 1:  # classes at positions
        counts = torch.stack([torch.bincount(part[part >= 0], minlength=samples.classes) for part in y]).sum(dim=0)
        guess = 1 - float(counts.max()) / float(counts.sum())
        # a sample counts as its positions do: where all have as many, exactly once
        if (shares := samples.task.error_weights(y)) is not None:
            values = values * (shares.double() / shares.double().mean())
        return _Measured(Numbers(values.numpy(), True, guess))
    counted = y != PADDED
    q = torch.unique(y[counted], return_counts=True)[1] / counted.sum()
    found = Numbers(values[counted].numpy(), True, 1 - float(q.max()))
    if not answers:
        return _Measured(found)
    entropy = Numbers(torch.cat(losses)[counted].numpy(), False, -float((q * q.log()).sum()))
    return _Measured(found, entropy, renumbered(torch.cat(answers)[counted].numpy(), y[counted].numpy()))


def _guess(samples: Samples, shape: tuple[int, ...]) -> float | None:
    """The least mean loss of one answer for all samples, which is the mean of the targets, of 0..1 its logit as well;
    None of outputs that are not one a target."""
    import torch

    y = samples.y
    if not y.is_floating_point() or math.prod(shape) != math.prod(y.shape[1:]):
        return None
    mean = y.mean(0, keepdim=True)
    answers = [mean, torch.logit(mean, 1e-6)] if 0 <= float(y.min()) <= float(y.max()) <= 1 else [mean]
    found = []
    for answer in answers:
        with suppress(Exception):  # a criterion that takes other numbers alone
            outputs = answer.expand_as(y).reshape(len(y), *shape)
            found.append(float(samples.task.loss(outputs, y).double().mean()))
    return min(found, default=None)
