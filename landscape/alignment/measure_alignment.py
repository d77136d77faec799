"""Alignment of models and of a round's clients, and what their means are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoints import FedscopeError, Layout, Weights
from ...evaluation.device import Compute
from ...evaluation.float64 import where_float64
from ...evaluation.model_replica import Replica
from ...evaluation.normalization import statistics_of
from ...evaluation.sample_losses import stderr_of_mean
from ...evaluation.samples import Samples
from ...results import deviation_over
from .apply import Mover, Permutation
from .groups import Specification
from .repair import measure, repair
from .result import AverageRow, MovedRow, labels_of_means
from .same_answers import refuse_other_answers
from .several import align_arrays, arrays_of, loaded, mean_of
from .tracing import specification_of

#: samples at a time; of which BatchNorm's statistics are measured at least, because one has no variance
BATCH, FEWEST = 500, 2
#: samples with which units are followed
FOLLOWED = 2


class Aligner:
    """Networks of one architecture, whose units are brought into one order.

    Args:
        module: the architecture.
        samples: on which activations are matched and repaired.
        option: what says by what units are matched, in sentences.
    """

    def __init__(self, module: nn.Module, samples: Samples, compute: Compute, *, option: str = "--align") -> None:
        self.option = option
        self.replica = Replica(module, where_followed(module, compute))
        self.module, self.samples = self.replica.module, samples
        self.x: Tensor = self.replica.prepare(samples.x)[:]
        self._exact = self.replica.compute.exact
        with self._exact.products():
            self.specification: Specification = specification_of(self.module, self.x[:FOLLOWED])

    def batches(self) -> list[Tensor]:
        """The inputs, so many at a time."""
        return list(torch.split(self.x, BATCH))

    def align(
        self, models: Sequence[Weights], labels: Sequence[str], by: str, to: str
    ) -> tuple[list[Weights], list[MovedRow]]:
        """Align models to the first: all of them, and how far they moved, which the first does not.

        Raises:
            FedscopeError: a model that is not finite, or that answers otherwise with its units permuted.
        """
        arrays, moves = self._matched(models, labels, by, to)
        rows = [
            MovedRow(label, group.name, group.units, move.moved)
            for label, own in list(zip(labels, moves, strict=True))[1:]
            for group, move in zip(self.specification.groups, own, strict=True)
        ]
        return [made.layout.flatten(one) for made, one in zip(models, arrays, strict=True)], rows

    def moved(
        self,
        models: Sequence[Weights],
        labels: Sequence[str],
        by: str,
        to: str,
        numbers: Sequence[Mapping[str, np.ndarray]],
    ) -> list[dict[str, np.ndarray]]:
        """Return the same models in one order, as they are elsewhere.

        Args:
            numbers: their tensors by name in a precision of their own, in which they are moved and stay the same bits.
        """
        _, moves = self._matched(models, labels, by, to)
        mover = Mover(self.specification)
        return [mover.arrays(own, move) for own, move in zip(numbers, moves, strict=True)]

    def _matched(
        self, models: Sequence[Weights], labels: Sequence[str], by: str, to: str
    ) -> tuple[list[dict[str, np.ndarray]], list[tuple[Permutation, ...]]]:
        mover = Mover(self.specification)
        for label, weights in zip(labels, models, strict=True):
            # a buffer whose entries stay may hold an infinity on purpose: a mask, the best loss so far
            moving = (values for name, values in weights.buffers.items() if mover.moves(name))
            if not all(np.isfinite(one).all() for one in (weights.parameters, *moving)):
                raise FedscopeError(f"{label} holds a NaN or an infinity, so its units cannot be matched; leave it out")
        arrays = [weights.arrays() for weights in models]
        aligned, moves = align_arrays(
            self.specification,
            arrays,
            by=by,
            to=to,
            module=self.module,
            batches=self.batches() if by == "activations" else (),
            option=self.option,
        )
        for label, own, made, move in zip(labels, arrays, aligned, moves, strict=True):
            if any(one.moved for one in move):
                self._refuse_other_answers(label, own, made)
        return aligned, moves

    def _refuse_other_answers(self, label: str, own: Mapping[str, np.ndarray], made: Mapping[str, np.ndarray]) -> None:
        """Refuse a model that answers otherwise in another order of its units."""
        before, after = (loaded(self.module, one) for one in (own, made))
        with self._exact.products():
            refuse_other_answers(before, after, self.x, label, self.specification)

    def repaired(self, models: Sequence[Weights]) -> tuple[Weights, tuple[str, ...]]:
        """Return the mean of models with its activations brought back to the size of theirs, and the layers that stay
        because not all of them are run by all models and the mean."""
        layout: Layout = models[0].layout
        if statistics_of(self.module) and len(self.x) < FEWEST:
            raise FedscopeError(
                f"the repaired mean's BatchNorm statistics need at least {FEWEST} samples, but got {len(self.x)}; give "
                "more data or a larger --limit"
            )
        average = loaded(self.module, mean_of([one.arrays() for one in models]))
        measured = [measure(loaded(self.module, one.arrays()), self.batches()) for one in models]
        done = repair(average, measured, self.x, BATCH)
        return layout.flatten(arrays_of(average, list(models[0].arrays()))), done.left


def where_followed(module: nn.Module, compute: Compute) -> Compute:
    """Return where a module's units are followed: where activations are summed in float64, and recurrent layers on the
    processor, which computes them a step at a time. An accelerator has one operation for all their layers and steps, in
    which no unit can be followed.

    >>> where_followed(nn.LSTM(2, 2), Compute("cpu", workers=2))
    Compute(device='cpu', precision='float32', workers=2)
    """
    compute = where_float64(compute)
    recurrent = any(isinstance(layer, nn.RNNBase | nn.RNNCellBase) for layer in module.modules())
    return replace(compute, device="cpu", workers=None) if recurrent and compute.is_gpu else compute


def measure_means(
    module: nn.Module,
    samples: Samples,
    compute: Compute,
    models: Sequence[tuple[str, Weights]],
    means: Sequence[Weights],
) -> list[AverageRow]:
    """Measure models and their means on the same samples, with the standard error of what a mean has more.

    Samples count as the task says (:class:`~fedscope.evaluation.tasks.Task`): loss = Σ_j c_j loss_j / Σ_j c_j, and
    error = Σ_j e_j error_j / Σ_j e_j. A mean's barrier is Σ_j c_j d_j / Σ_j c_j of d_j, its loss of sample j less the
    models' mean loss of it.
    """
    replica = Replica(module, where_float64(compute))
    x, y, task = replica.prepare(samples.x), replica.targets(samples.y), samples.task
    batches = torch.split(y, BATCH)
    counts = _weights([task.weights(own) for own in batches])
    shares = _weights([task.error_weights(own) for own in batches])

    def losses(weights: Weights) -> tuple[np.ndarray, float]:
        replica.load(weights.parameters, weights.buffers)
        each, wrong = [], []
        for start, own in zip(range(0, len(samples), BATCH), batches, strict=True):
            outputs = replica.logits(x[start : start + BATCH])
            each.append(task.loss(outputs, own).double().cpu())
            error = task.error(outputs, own)
            wrong.append(torch.full((len(own),), float("nan")) if error is None else error.double().cpu())
        errors = torch.cat(wrong).double()
        return torch.cat(each).numpy(), float(errors.mean()) if shares is None else _mean(errors.numpy(), shares)

    found = [(label, *losses(weights)) for label, weights in models]
    rows = [AverageRow(label, _mean(each, counts), error, None, None) for label, each, error in found]
    own = np.mean([each for _, each, _ in found], axis=0)
    for label, weights in zip(labels_of_means(), means, strict=True):
        each, error = losses(weights)
        more = each - own
        rows.append(AverageRow(label, _mean(each, counts), error, _mean(more, counts), _stderr(more, counts)))
    return rows


def _weights(batches: Sequence[Tensor | None]) -> np.ndarray | None:
    """Return how much each sample counts, [n]; None where all count alike."""
    known = [one.cpu().double().numpy() for one in batches if one is not None]
    return np.concatenate(known) if known else None


def _mean(values: np.ndarray, weights: np.ndarray | None) -> float:
    """Σ_j c_j v_j / Σ_j c_j; NaN where nothing counts."""
    if weights is None:
        return float(values.mean())
    total = weights.sum()
    return float(weights @ values / total) if total > 0 else float("nan")


def _stderr(values: np.ndarray, weights: np.ndarray | None) -> float | None:
    """Return the standard error over samples of :func:`_mean`; None of one sample."""
    if len(values) < 2:
        return None
    return float(deviation_over(values) / np.sqrt(len(values))) if weights is None else stderr_of_mean(values, weights)
