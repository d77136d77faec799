"""Answers of the user's own code for a few samples: they change with the code, where its name does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ...checkpoints import Weights
    from ...evaluation.samples import Samples


def behaviour(module: nn.Module, samples: Samples, weights: Weights) -> list[float] | None:
    """Compute the outputs of a module of the user's own: its layers' names stay when its code changes, and so does its
    address.

    The outputs of a model for four samples; None where it has none, which the evaluator refuses with the reason.
    """
    return _first(module, samples, weights, lambda outputs: outputs)


def task_settings(module: nn.Module, samples: Samples, weights: Weights) -> dict[str, Any]:
    """Compute the losses of a task of the user's own: its name stays when its code changes."""
    from ...evaluation.standard_tasks import is_own

    if not is_own(samples.task):
        return {}
    values = _first(module, samples, weights, lambda outputs: samples.task.loss(outputs, samples.y[:4]))
    return {"task_behaviour": values}


def _first(
    module: nn.Module, samples: Samples, weights: Weights, values: Callable[[Tensor], Tensor]
) -> list[float] | None:
    """Compute values from a model's outputs for four samples."""
    from ...evaluation.model_replica import Replica

    try:
        replica = Replica(module)
        replica.load(weights.parameters, weights.buffers)
        made = values(replica.logits(replica.prepare(samples.x[:4])))
        return [float(value) for value in made.flatten().tolist()]
    except Exception:
        return None
