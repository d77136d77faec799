"""Measuring the losses along the segments between pairs of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ...checkpoints import FedscopeError, Model
from ...evaluation.device import CPU, Compute
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
from ...evaluation.validation import fits_module, same_layout, same_model
from .barriers import barrier_of
from .betas import betas_on
from .result import Line


def line(
    module: nn.Module,
    samples: Samples | Mapping[str, Samples],
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
        samples: what the loss is measured on; several by name give every pair a curve on each, in one pass.
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
    refuse_same(pairs)
    parts = [samples] if isinstance(samples, Samples) else list(samples.values())
    evaluator = Evaluator(module, parts, compute=compute)
    fits_module(evaluator.layout, [model for pair in pairs for model in pair])
    buffers = pairs[0][0].weights.buffers
    policy = Normalization.of(module, buffers, normalization, calibration, evaluator.prepare)
    for pair in pairs:
        policy = policy.among(pair, evaluator.answers)
    segments = _Segments(pairs, np.union1d(beta, [0.0, 1.0]), evaluator, policy)
    visits = segments.visits(module, progress, partial)
    visits.measure([*segments.order, *segments.own])
    return segments.result(visits, module, () if isinstance(samples, Samples) else tuple(samples), provenance)


def refuse_same(pairs: Sequence[tuple[Model, Model]]) -> None:
    """Make sure that the models of each pair have one layout and differ.

    Raises:
        FedscopeError: they do not; names them.
    """
    for pair in pairs:
        same_layout(pair)
        if (words := same_model(*pair)) is not None:
            raise FedscopeError(f"{words}; a line needs two whose parameters differ")


@dataclass(frozen=True, eq=False)
class _Segments:
    """Segments that are measured: their points pair by pair, then the ends with their own statistics where the policy
    gives them others.

    Attributes:
        beta: the points of each, 0 and 1 among them.
    """

    pairs: Sequence[tuple[Model, Model]]
    beta: np.ndarray
    evaluator: Evaluator
    policy: Normalization

    @property
    def models(self) -> list[Model]:
        """The ends, pair by pair."""
        return [model for pair in self.pairs for model in pair]

    @property
    def shape(self) -> tuple[int, int]:
        """[pair, beta]."""
        return len(self.pairs), len(self.beta)

    @cached_property
    def order(self) -> list[int]:
        """The points of all segments, coarse to fine."""
        count, length = self.shape
        return [pair * length + point for point in coarse_to_fine([length]) for pair in range(count)]

    @cached_property
    def own(self) -> list[int]:
        """The ends with their own statistics, where those are others."""
        first = len(self.order)
        return [] if self.policy.leaves_own else [first + k for k in range(len(self.models))]

    @cached_property
    def at(self) -> list[int]:
        """The places at which β is 1 and 0."""
        return [int(np.flatnonzero(self.beta == end)[0]) for end in (1.0, 0.0)]

    def form(self, i: int, replica: Replica) -> None:
        """Load the model of a visit into a replica."""
        if i >= len(self.order):
            own = self.models[i - len(self.order)].weights
            replica.load(own.parameters, own.buffers)
            return
        pair, point = divmod(i, len(self.beta))
        ends = [model.weights for model in self.pairs[pair]]
        points = Points(ends, lambda k: (float(self.beta[k]), 1.0 - float(self.beta[k])), self.policy)
        if point in self.at:
            points.load(ends[self.at.index(point)], replica)
        else:
            points.interpolate_into(point, replica)

    def visits(self, module: nn.Module, progress: Progress | None, partial: Path | None) -> ResumableEvaluation:
        """All that is to be measured, with what is kept of it."""
        identity = fingerprint(
            "line",
            module,
            self.evaluator,
            [model.weights for model in self.models],
            beta=self.beta.tolist(),
            **statistics_identity(self.policy),
            **({"models_last": len(self.own)} if self.own else {}),
        )
        count = len(self.order) + len(self.own)
        return ResumableEvaluation(
            self.evaluator, self.form, count, progress=progress, partial=partial, fingerprint=identity
        )

    def _cut_variances(self) -> dict[str, int]:
        points = [(beta, 1.0 - beta) for beta in self.beta.tolist()]
        pairs = ([model.weights for model in pair] for pair in self.pairs)
        count = sum(self.policy.cut_variances(pair, points).get("cut_variances", 0) for pair in pairs)
        return {"cut_variances": count} if count else {}

    def result(
        self,
        visits: ResumableEvaluation,
        module: nn.Module,
        names: tuple[str, ...],
        provenance: Mapping[str, Any] | None,
    ) -> Line:
        """Return the curves of measured visits, with their barriers; of each pair one on every set of samples.

        Args:
            names: of the sets; none where there is one without a name.
        """
        count, sets = len(self.order), len(self.evaluator.parts)
        # [pair, set, beta], as curves
        loss, error = curves = [
            values[:, :count].reshape(sets, *self.shape).swapaxes(0, 1).reshape(-1, len(self.beta))
            for values in (visits.loss, visits.error)
        ]
        own_loss, own_error = (
            values[:, self.own].reshape(sets, -1, 2).swapaxes(0, 1).reshape(-1, 2) if self.own else curve[:, self.at]
            for values, curve in zip((visits.loss, visits.error), curves, strict=True)
        )
        barriers = [barrier_of(self.beta, curve, self.evaluator.layout.dtype) for curve in loss]
        ends_at = [pair * len(self.beta) + point for pair in range(len(self.pairs)) for point in self.at]
        precise = precision_errors(
            module, self.evaluator, lambda i, r: self.form(ends_at[i], r), visits.loss[:, ends_at]
        )
        worst = max(precise, key=_precision_error)  # of data on which no loss is finite it is none
        where = [(pair, name) for pair in self.pairs for name in names or ("",)]
        return Line(
            pairs=tuple(f"{a.label} - {b.label}{name and f' on {name}'}" for (a, b), name in where),
            ends=tuple((a.label, b.label) for (a, b), _ in where),
            beta=self.beta,
            loss=loss,
            error=error,
            barrier=np.array([height for height, _ in barriers]),
            barrier_beta=np.array([where for _, where in barriers]),
            attrs={
                **provenance_of(self.evaluator, self.evaluator.samples, self.models, provenance),
                "normalization_policy": self.policy.policy,
                **self.policy.provenance("the model at beta = 1"),
                **self._cut_variances(),
                **worst,
            },
            own_loss=own_loss,
            own_error=own_error,
            on=tuple(name for _, name in where) if names else (),
        )


def _precision_error(found: dict[str, float]) -> float:
    error = found.get("precision_error", 0.0)
    return -1.0 if np.isnan(error) else error
