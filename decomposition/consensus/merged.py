"""The merged model that a round's nodes would have, were they averaged: its loss against their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...checkpoints import Round, mean
from ...evaluation.device import CPU, Compute
from ...evaluation.sample_losses import stderr_of_mean
from ...evaluation.samples import Samples
from ...evaluation.validation import with_outputs
from ..draws.divergence import diverged_rows
from ..factors.model_outputs import model_outputs

#: samples at a time: a multiple of the batches that suit convolutions and linear layers on a CPU
CHUNK = 2000


@dataclass(frozen=True)
class MergedLosses:
    """Means over samples; an error is NaN where the task has none.

    Attributes:
        merged_loss, merged_error: of the merged model.
        nodes_loss, nodes_error: the mean over the nodes of each one's own.
        loss_gain, error_gain: of the nodes less that of the merged model, above 0 where the merged one is better, with
            standard errors over samples of this paired difference.
        diverged: ids of the nodes whose model is not finite.
    """

    merged_loss: float
    merged_error: float
    nodes_loss: float
    nodes_error: float
    loss_gain: float
    loss_gain_stderr: float
    error_gain: float
    error_gain_stderr: float
    diverged: tuple[int, ...] = ()


def merged_losses(
    module: torch.nn.Module,
    samples: Samples,
    round_: Round,
    *,
    compute: Compute = CPU,
    progress: Callable[[int, int], None] | None = None,
) -> MergedLosses:
    """Measure the counterfactual merged model w̄ = 1/C Σ_c w_c of a round's nodes, as if all were averaged after it.

    With losses l_cj of node c on sample j, and l̄_j of the merged model, all of them means over the samples:

        merged = l̄,  nodes = 1/C Σ_c l_c,  gain = 1/C Σ_c l_cj − l̄_j

    Args:
        module: the architecture; its own parameters are not used and not changed.
        progress: called with (samples done, of).

    Raises:
        FedscopeError: models that do not fit the module.
    """
    samples, clients = with_outputs(module, samples), round_.clients()
    models = [clients.row(k) for k in range(len(clients))]
    models.append(mean(clients))
    parts: dict[str, list[np.ndarray]] = {"loss": [], "error": []}
    weights: dict[str, list[np.ndarray]] = {"loss": [], "error": []}
    how: dict[str, Any] = {"compute": compute, "progress": progress, "chunk": CHUNK, "number": round_.number}
    for rows, outputs in model_outputs(module, samples, models, {"the client model": models[0]}, **how):
        y, task = samples.y[rows].cpu(), samples.task
        measures = (("loss", task.loss, task.weights), ("error", task.error, task.error_weights))
        for name, of_outputs, of_targets in measures:
            known = [_numbers(value) for own in outputs if (value := of_outputs(own, y)) is not None]
            if len(known) < len(models):
                continue
            with np.errstate(invalid="ignore", over="ignore"):  # of models that diverged
                parts[name].append(np.stack([np.mean(known[:-1], axis=0), known[-1]]))
            counted = of_targets(y)
            weights[name].append(np.ones(len(known[-1])) if counted is None else _numbers(counted))
    measured: dict[str, float] = {}
    for name, chunks in parts.items():
        nodes, merged, gain, stderr = (np.nan,) * 4
        if chunks:
            values, c = np.concatenate(chunks, axis=1), np.concatenate(weights[name])
            with np.errstate(invalid="ignore", over="ignore"):
                nodes, merged = (float(c @ row / c.sum()) for row in values)
                away = values[0] - values[1]
                gain, stderr = float(c @ away / c.sum()), stderr_of_mean(away, c)
            if name == "error":
                nodes, merged, gain = _of_counts(values, c, len(models) - 1) or (nodes, merged, gain)
        measured |= {f"merged_{name}": merged, f"nodes_{name}": nodes}
        measured |= {f"{name}_gain": gain, f"{name}_gain_stderr": stderr}
    diverged = tuple(int(k) for k in round_.client_ids[diverged_rows(clients)])
    return MergedLosses(**measured, diverged=diverged)


def _of_counts(errors: np.ndarray, weights: np.ndarray, nodes: int) -> tuple[float, float, float] | None:
    """The mean errors of nodes and of the merged model and their difference, from counts of wrong answers, so that as
    many make a difference of 0 and not what rounding leaves; None where the errors are no counts.

    Args:
        errors: [2, samples], the mean over the nodes and that of the merged model.

    >>> _of_counts(np.array([[1 / 3, 2 / 3, 1], [1, 0, 1]]), np.ones(3), 3)
    (0.6666666666666666, 0.6666666666666666, 0.0)
    """
    wrong = errors * weights * nodes
    counts = np.rint(wrong)
    if not np.allclose(counts, wrong, rtol=1e-6, atol=1e-6):
        return None
    (own, merged), of = counts.sum(axis=1), nodes * weights.sum()
    return float(own / of), float(merged / of), float((own - merged) / of)


def _numbers(values: torch.Tensor) -> np.ndarray:
    return values.detach().double().cpu().numpy()
