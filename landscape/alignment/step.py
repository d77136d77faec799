"""Alignment as a step of other questions: their models, with their units in the order of the first one's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...analysis.settings import EvaluationConfig, refuse_unknown_choice
from ...training.inputs.samples import limit_samples
from ...training.inputs.statistics import CALIBRATION

if TYPE_CHECKING:
    from torch import nn

    from ...checkpoints import Model, Weights
    from ...evaluation.device import Compute
    from ...evaluation.samples import Samples
    from ...training.data.dataset import Dataset
    from ...training.inputs.models import ResolvedModels

#: brings the units of models into one order
Aligning = Callable[[list["Weights"]], list["Weights"]]
#: how a question aligns its models
ALIGN = ("none", "weights", "activations")


def refuse_unknown_align(align: str) -> None:
    """Refuse another word.

    Raises:
        FedscopeError: names the nearest.
    """
    refuse_unknown_choice("align", align, ALIGN)


def align_resolved(resolved: ResolvedModels, source: EvaluationConfig, align: str) -> tuple[Model, ...]:
    """Return the models of a question with their units in the order of the first one's."""
    if align == "none":
        return resolved.models
    weights = align_weights(
        resolved.module,
        calibration_samples(resolved.dataset, resolved.samples, source),
        [model.weights for model in resolved.models],
        [model.label for model in resolved.models],
        align,
        source.compute,
    )
    return tuple(replace(model, weights=own) for model, own in zip(resolved.models, weights, strict=True))


def calibration_samples(dataset: Dataset, samples: Samples, source: EvaluationConfig) -> Samples:
    """Return the training samples on which activations are taken; of data without any those that are measured on."""
    if not len(dataset.y_train):
        return samples.limit(CALIBRATION, source.seed)
    return limit_samples(dataset, replace(source, split="train", limit=source.limit or CALIBRATION))


def align_weights(
    module: nn.Module,
    calibration: Samples,
    models: Sequence[Weights],
    labels: Sequence[str],
    align: str,
    compute: Compute,
) -> list[Weights]:
    """Return models with their units in the order of the first one's.

    Args:
        calibration: samples on which activations are matched.
    """
    from .measure_alignment import Aligner

    aligned, _ = Aligner(module, calibration, compute).align(models, labels, align, "first")
    return aligned
