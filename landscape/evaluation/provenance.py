"""What a measurement was made from, and how exact it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from ...checkpoints import Model, versions
from .evaluator import Evaluator
from .known_tasks import CLASSIFICATION
from .replica import Replica
from .samples import Samples


def provenance_of(
    evaluator: Evaluator, samples: Samples, models: Sequence[Model], given: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What a result on one of the evaluator's data sets was made from; what the caller says comes on top."""
    return {
        "addresses": [model.address for model in models],
        "data": samples.name,
        "data_sha256": samples.sha256,
        "split": samples.split,
        "samples": len(samples),
        "precision": evaluator.compute.precision,
        "device": evaluator.compute.device,
        "versions": versions(),
        **task_of(samples),
        **dict(given or {}),
    }


def task_of(samples: Samples) -> dict[str, Any]:
    """The task and the unit of its loss, where they are not those of a classification."""
    task = samples.task
    named = {} if task.name == CLASSIFICATION.name else {"task": task.name}
    return named | ({} if task.unit == CLASSIFICATION.unit else {"loss_units": task.unit})


def precision_errors(
    module: nn.Module, evaluator: Evaluator, form: Callable[[int, Replica], None], loss: np.ndarray
) -> list[dict[str, float]]:
    """How far losses [S, C] measured with less than float32 are from float32's, at most: entries of ``attrs``.

    ``form(i, replica)`` writes the i-th of the C models.
    """
    if evaluator.compute.precision == "float32":
        return [{} for _ in evaluator.parts]
    exact = Evaluator(module, evaluator.parts, compute=evaluator.compute.exact)
    measured = np.array([row for _, row, _ in exact.evaluate(loss.shape[1], form)])
    return [{"precision_error": float(error)} for error in np.max(np.abs(measured.T - loss), axis=1)]
