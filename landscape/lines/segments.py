"""Measuring the losses along the segments between pairs of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ...checkpoints import FedscopeError, Model
from ...evaluation.compute import CPU, Compute
from ...evaluation.evaluator import Evaluator
from ...evaluation.model_replica import Replica
from ...evaluation.normalization import Normalization, Points
from ...evaluation.resumable import (
    Progress,
    ResumableEvaluation,
    coarse_to_fine,
    fingerprint,
    precision_errors,
    provenance_of,
    statistics_identity,
)
from ...evaluation.samples import Samples
from ...evaluation.validation import fits_module, same_layout
from .result import Line


def line(
    module: nn.Module,
    samples: Samples,
    pairs: Sequence[tuple[Model, Model]],
    *,
    betas: int | Sequence[float] | np.ndarray = 81,
    compute: Compute = CPU,
    normalization: str = "interpolate",
    calibration: Samples | None = None,
    progress: Progress | None = None,
    partial: Path | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Line:
    """Measure the losses along the segments between pairs of models, and beyond both ends.

    Args:
        module: the architecture.
        samples: what the loss is measured on.
        pairs: (A, B): β = 1 is A, β = 0 is B.
        betas: how many points on [−0.5, 1.5], or the points themselves; 0 and 1 are added where they are missing.
        normalization: where the normalization statistics of points come from; see :class:`Normalization`. The ends
            have them from there, too; ``keep`` takes those of the model at β = 1.
        calibration: the samples on which ``re-estimate`` measures them.
        progress: called with (points done, points in all).
        partial: where finished points are kept; the same call goes on from there. The caller removes the file once
            the result is saved.
        provenance: becomes part of ``Line.attrs``.

    Raises:
        FedscopeError: no pairs, different layouts, a pair of one and the same model.
    """
    if not pairs:
        raise FedscopeError("a line needs a pair of models, but none was given; give A B")
    beta = betas_on((-0.5, 1.5), betas) if isinstance(betas, int) else np.asarray(betas, dtype=np.float64)
    if not np.isfinite(beta).all():
        raise FedscopeError("the points of a line must be finite numbers")
    beta = np.union1d(beta, [0.0, 1.0])
    for pair in pairs:
        same_layout(pair)
        if np.array_equal(pair[0].weights.parameters, pair[1].weights.parameters):
            raise FedscopeError(
                f"{pair[0].label} and {pair[1].label} are the same model (distance 0); a line needs two different ones"
            )
    evaluator = Evaluator(module, samples, compute=compute)
    models = [model for pair in pairs for model in pair]
    fits_module(evaluator.layout, models)
    shape = (len(pairs), len(beta))
    order = [pair * shape[1] + point for point in coarse_to_fine(shape[1:]) for pair in range(shape[0])]

    policy = Normalization.of(module, models[0].weights.buffers, normalization, calibration, evaluator.prepare)

    at = [int(np.flatnonzero(beta == end)[0]) for end in (1.0, 0.0)]
    # the curves' points, then the ends with their own statistics where the policy gives them others
    own = [] if policy.leaves_own else [len(order) + k for k in range(len(models))]

    def form(i: int, replica: Replica) -> None:
        if i >= len(order):
            replica.load(models[i - len(order)].weights.parameters, models[i - len(order)].weights.buffers)
            return
        pair, point = divmod(i, shape[1])
        ends = [model.weights for model in pairs[pair]]
        points = Points(ends, lambda k: (float(beta[k]), 1.0 - float(beta[k])), policy)
        if point in at:
            points.load(ends[at.index(point)], replica)
        else:
            points.interpolate_into(point, replica)

    identity = fingerprint(
        "line",
        module,
        evaluator,
        [model.weights for model in models],
        beta=beta.tolist(),
        **statistics_identity(policy),
        **({"models_last": len(own)} if own else {}),
    )
    count = len(order) + len(own)
    visits = ResumableEvaluation(evaluator, form, count, progress=progress, partial=partial, fingerprint=identity)
    visits.measure([*order, *own])
    loss, error = curves = [values[0, : len(order)].reshape(shape) for values in (visits.loss, visits.error)]
    own_loss, own_error = (
        values[0, own].reshape(-1, 2) if own else curve[:, at]
        for values, curve in zip((visits.loss, visits.error), curves, strict=True)
    )
    barriers = [barrier_of(beta, curve) for curve in loss]
    ends_at = [pair * shape[1] + point for pair in range(shape[0]) for point in at]
    (precise,) = precision_errors(module, evaluator, lambda i, r: form(ends_at[i], r), loss[None, :, at].reshape(1, -1))
    return Line(
        pairs=tuple(f"{a.label} - {b.label}" for a, b in pairs),
        ends=tuple((a.label, b.label) for a, b in pairs),
        beta=beta,
        loss=loss,
        error=error,
        barrier=np.array([height for height, _ in barriers]),
        barrier_beta=np.array([where for _, where in barriers]),
        attrs={
            **provenance_of(evaluator, samples, models, provenance),
            "normalization_policy": policy.policy,
            **policy.provenance("the model at beta = 1"),
            **precise,
        },
        own_loss=own_loss,
        own_error=own_error,
    )


def betas_on(span: tuple[float, float], points: int) -> np.ndarray:
    """``points`` equally spaced β on ``span``, 0 and 1 exactly among them where the span holds them.

    >>> betas_on((-0.5, 1.5), 5).tolist()
    [-0.5, 0.0, 0.5, 1.0, 1.5]
    >>> betas_on((0.5, 1.25), 2).tolist()
    [0.5, 1.0, 1.25]

    Raises:
        FedscopeError: fewer than two points, or a span that does not rise.
    """
    low, high = float(span[0]), float(span[1])
    if points < 2 or not low < high:
        raise FedscopeError(
            f"{points} points from {low:g} to {high:g} make no line; give at least 2, the smaller end first"
        )
    betas = np.linspace(low, high, points)
    step = (high - low) / (points - 1)
    for end in (0.0, 1.0):
        nearest = int(np.argmin(np.abs(betas - end)))
        if abs(betas[nearest] - end) < 1e-9 * step:
            betas[nearest] = end
        elif low < end < high:
            betas = np.sort(np.append(betas, end))
    return betas


def barrier_of(beta: np.ndarray, loss: np.ndarray) -> tuple[float, float]:
    """The greatest excess of ``loss`` [beta] over the straight line between its values at β = 0 and 1, and its β.

    >>> import numpy as np
    >>> barrier_of(np.array([0.0, 0.5, 1.0]), np.array([1.0, 5.0, 3.0]))
    (3.0, 0.5)
    """
    inside = (beta >= 0) & (beta <= 1)
    beta, loss = beta[inside], loss[inside]
    at_0, at_1 = loss[beta == 0][0], loss[beta == 1][0]
    with np.errstate(invalid="ignore"):
        excess = loss - (beta * at_1 + (1 - beta) * at_0)
        top = int(np.argmax(excess))
    return float(excess[top]), float(beta[top])
