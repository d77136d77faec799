"""Answers of the user's own code for a few samples: they change with the code, where its name does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...checkpoints import Layout
from ...checkpoints.io.warn_user import warn_user
from ...checkpoints.models.weights import tensors_of
from .odd_outputs import say_odd_outputs

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ...checkpoints import Weights
    from ...evaluation.samples import Samples

#: numbers that are kept of outputs, of which a language model has millions
KEPT = 4096
#: and of numbers that stand in a run's own files
FEW = 16
#: samples of which a task's losses and errors are looked at, and of which its weights are; means that are kept of each
LOOKED_AT, WEIGHED, MEANS = 64, 1000, 4


def behaviour(module: nn.Module, samples: Samples, weights: Weights) -> list[float] | None:
    """Compute the outputs of a module of the user's own: its layers' names stay when its code changes, and so does its
    address.

    The outputs of a model for four samples, evenly chosen ones of very many; None where it has none, which the
    evaluator refuses with the reason.
    """
    return _first(module, samples, weights, _some)[0]


def behaviour_settings(module: nn.Module, samples: Samples, weights: Weights) -> dict[str, Any]:
    """Describe how a module of the user's own answers, for a result's provenance: :func:`behaviour`, and of outputs
    that are no tensor what is taken, and what is odd about them, which a warning says, too."""
    values, taken = _first(module, samples, weights, _some)
    said = [*_said(taken).values(), *say_odd_outputs(module, samples, weights)]
    return {"behaviour": values, **({"outputs": "; ".join(said)} if said else {})}


def outputs_settings(module: nn.Module, samples: Samples) -> dict[str, Any]:
    """Describe what is taken of a module's outputs that are no tensor, and say it as :func:`behaviour_settings`."""
    weights = Layout.of(module).flatten({name: value.detach().numpy() for name, value in tensors_of(module).items()})
    return _said(_first(module, samples, weights, _some)[1])


def _said(taken: str) -> dict[str, Any]:
    if not taken:
        return {}
    warn_user(f"the model returns no tensor: {taken}")
    return {"outputs": taken}


def task_settings(module: nn.Module, samples: Samples, weights: Weights) -> dict[str, Any]:
    """Compute what a task of the user's own answers: its name stays when its code changes.

    Returns:
        ``task_behaviour``, the losses of four samples, and ``task_means_behaviour``, see :func:`task_means`, which
        results of earlier versions lack.
    """
    from ...evaluation.standard_tasks import is_own_task

    if not is_own_task(samples.task):
        return {}
    values, _ = _first(module, samples, weights, lambda outputs: samples.task.loss(outputs, samples.y[:4]))
    return {"task_behaviour": values, "task_means_behaviour": task_means(module, samples, weights)}


def task_means(module: nn.Module, samples: Samples, weights: Weights) -> list[float] | None:
    """Compute means of a task's losses, errors, weights and weights of errors over evenly chosen samples: four of each,
    of every fourth sample, and nothing of what the task does not have.

    None where they cannot be computed, which the evaluator refuses with the reason.
    """
    import torch

    from ...evaluation.layered_replica import replica_for
    from ...evaluation.resumable import evenly

    task = samples.task
    try:
        replica = replica_for(module, samples.x[:1])
        replica.load(weights.parameters, weights.buffers)
        one = replica.logits(replica.prepare(samples.x[:1])).numel()
        rows = evenly(len(samples), min(LOOKED_AT, max(MEANS, KEPT * LOOKED_AT // max(1, one))))
        losses, errors = [], []
        for some in torch.split(rows, MEANS):  # few at a time, as outputs of a language model are large
            outputs, y = replica.logits(replica.prepare(samples.x[some])), samples.y[some]
            losses.append(task.loss(outputs, y))
            errors.append(task.error(outputs, y))
        y = samples.y[evenly(len(samples), WEIGHED)]
        given = [_whole(losses), _whole(errors), task.weights(y), task.error_weights(y)]
        kinds = [values.detach().double().flatten() for values in given if values is not None]
        return [float(values[i::MEANS].mean()) for values in kinds for i in range(min(MEANS, len(values)))]
    except Exception:
        return None


def _whole(parts: list[Any]) -> Tensor | None:
    import torch

    return None if any(part is None for part in parts) else torch.cat(parts)


def answers_of(module: nn.Module, samples: Samples, weights: Weights) -> dict[str, list[float]]:
    """Compute a few answers of a model and of a task of the user's own, for numbers that more are put beside later;
    without those that are not finite, and without a word.

    Returns:
        ``behaviour``, the first outputs, and of a task of the user's own what :func:`task_settings` has.
    """
    found = {"behaviour": behaviour(module, samples, weights), **task_settings(module, samples, weights)}
    few = {name: values[:FEW] for name, values in found.items() if values}
    return {name: values for name, values in few.items() if all(map(math.isfinite, values))}


def _some(outputs: Tensor) -> Tensor:
    return outputs.flatten()[:: max(1, -(-outputs.numel() // KEPT))]


def _first(
    module: nn.Module, samples: Samples, weights: Weights, values: Callable[[Tensor], Tensor]
) -> tuple[list[float] | None, str]:
    """Compute values from a model's outputs for four samples, and say what was taken of outputs that are no tensor."""
    from ...evaluation.layered_replica import replica_for
    from ...evaluation.taken_logits import taken_from

    try:
        replica = replica_for(module, samples.x[:1])
        replica.load(weights.parameters, weights.buffers)
        made = values(replica.logits(replica.prepare(samples.x[:4])))
        return [float(value) for value in made.flatten().tolist()], taken_from(replica.module)
    except Exception:
        return None, ""
