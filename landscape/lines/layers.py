"""Measuring the losses between two models of which only some layers move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ...checkpoints import FedscopeError, Model
from ...checkpoints.models.layer_selections import CUMULATIVE, EACH, Selection, selections_of
from ...evaluation.alike_models import AlikeModels
from ...evaluation.device import CPU, Compute
from ...evaluation.evaluator import Evaluator
from ...evaluation.model_replica import Replica
from ...evaluation.normalization import Normalization, Points
from ...evaluation.resumable import (
    Progress,
    ResumableEvaluation,
    coarse_to_fine,
    digest,
    fingerprint,
    precision_errors,
    provenance_of,
    statistics_identity,
)
from ...evaluation.sample_losses import SampleLosses, stderr_of_mean
from ...evaluation.samples import Samples
from ...evaluation.tied_parameters import tied_names
from ...evaluation.validation import fits_module
from .barriers import barrier_of
from .betas import betas_on
from .layer_result import LayerLine
from .segments import refuse_same


def layer_lines(
    module: nn.Module,
    samples: Samples,
    pair: tuple[Model, Model],
    *,
    layers: str = EACH,
    betas: int | Sequence[float] | np.ndarray = 11,
    compute: Compute = CPU,
    normalization: str = "interpolate",
    calibration: Samples | None = None,
    progress: Progress | None = None,
    partial: Path | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> LayerLine:
    """Measure the losses along segments between two models A and B on which only some layers move from one to the
    other: for each selection of layers once with the others at A, and once with the others at B.

    At β the layers that move are β w_A + (1−β) w_B, as on the whole line. Tensors that the module holds under two names
    (tied weights) move together. Each model is formed and measured once, however many lines it lies on: the ends A
    and B, and all points of layers that are the same in both.

    Args:
        module: the architecture.
        samples: what the loss is measured on.
        pair: (A, B): β = 1 is A, β = 0 is B.
        layers: see :func:`~fedscope.checkpoints.models.layer_selections.selections_of`.
        betas: how many points on [0, 1], or the points themselves; 0 and 1 are added where they are missing.
        normalization: where the normalization statistics of points come from; see :class:`Normalization`. With
            ``interpolate`` those of a layer move with it; ``keep`` takes those of A for all. Other floating buffers
            always move with their layer.
        calibration: the samples on which ``re-estimate`` measures them.
        progress: called with (points done, points in all).
        partial: where finished points are kept; the same call goes on from there.
        provenance: becomes part of ``LayerLine.attrs``.

    Raises:
        FedscopeError: a pattern that names no layer, or layers that are the same in both models; different layouts; a
            pair of one and the same model.
    """
    lines = LayerLines(
        module,
        samples,
        layers=layers,
        betas=betas,
        compute=compute,
        normalization=normalization,
        calibration=calibration,
        provenance=provenance,
    )
    return lines.between(pair, progress=progress, partial=partial)


class LayerLines:
    """Lines of one choice of layers on the same samples, between any pairs of models.

    Of a pair that begins where one before it ended, as rounds do, that model is not measured again.

    Args:
        module, samples, layers, betas, compute, normalization, calibration, provenance: as of :func:`layer_lines`.
        reuse: False computes all of every model, for comparison; the numbers are the same bits.
    """

    def __init__(
        self,
        module: nn.Module,
        samples: Samples,
        *,
        layers: str = EACH,
        betas: int | Sequence[float] | np.ndarray = 11,
        compute: Compute = CPU,
        normalization: str = "interpolate",
        calibration: Samples | None = None,
        provenance: Mapping[str, Any] | None = None,
        reuse: bool = True,
    ) -> None:
        beta = betas_on((0.0, 1.0), betas) if isinstance(betas, int) else np.asarray(betas, dtype=np.float64)
        if not np.isfinite(beta).all():
            raise FedscopeError("the points of a line must be finite numbers")
        self.module, self.samples, self.layers, self.provenance = module, samples, layers, provenance
        self.beta, self.reuse = np.union1d(beta, [0.0, 1.0]), reuse
        self._compute, self._normalization, self._calibration = compute, normalization, calibration
        self._known: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray | None]] = {}
        self._kept_policy: Normalization | None = None

    @cached_property
    def evaluator(self) -> Evaluator:
        """What measures all models."""
        return Evaluator(self.module, self.samples, compute=self._compute)

    def between(
        self, pair: tuple[Model, Model], *, progress: Progress | None = None, partial: Path | None = None
    ) -> LayerLine:
        """Measure the lines of one pair; see :func:`layer_lines`."""
        refuse_same([pair])
        fits_module(self.evaluator.layout, list(pair))
        selections = selections_of(pair[0].weights.layout, self.layers, "line", statistics=True, cumulative=True)
        policy = self.policy_of(pair[0]).among(pair, self.evaluator.answers)
        tied = tied_names(self.module)
        lines = _LayerLines(pair, self.beta, selections, self.evaluator, policy, tied, self.module, self.reuse)
        if self.layers not in (EACH, CUMULATIVE) and not lines.moving[0]:
            raise FedscopeError(
                f"layers {self.layers!r} are the same in {pair[0].label} and {pair[1].label}, so nothing moves; choose "
                "others"
            )
        visits = lines.visits(self.module, progress, partial)
        ends = [digest(model.weights) for model in pair] if policy.leaves_own else []
        for i, end in enumerate(ends):
            if end in self._known:
                loss, error, by_sample = self._known[end]
                visits.know(i, loss, error)
                if by_sample is not None:
                    lines.losses.know(i, by_sample)
        visits.measure(lines.order, lines.alike)
        found = lines.result(visits, self.module, self.samples, self.provenance, self.layers)
        self._known = {
            end: (visits.loss[:, i].copy(), visits.error[:, i].copy(), lines.losses.kept(i))
            for i, end in enumerate(ends)
        }
        return found

    def policy_of(self, first: Model) -> Normalization:
        """Return where points get their normalization statistics from; the same for all models of an architecture."""
        if self._kept_policy is None:
            self._kept_policy = Normalization.of(
                self.module, first.weights.buffers, self._normalization, self._calibration, self.evaluator.prepare
            )
        return self._kept_policy


#: a model on a line: which end the others are at (0 is A), the tensors that move, and the place of β
_Place = tuple[int, frozenset[str], int]


@dataclass(frozen=True, eq=False)
class _LayerLines:
    """Lines that are measured.

    Attributes:
        beta: the points of each, 0 and 1 among them.
        tied: parameters that move together.
        reuse: whether what models share is computed once.
    """

    pair: tuple[Model, Model]
    beta: np.ndarray
    selections: Sequence[Selection]
    evaluator: Evaluator
    policy: Normalization
    tied: Mapping[str, frozenset[str]]
    module: nn.Module
    reuse: bool = True

    @cached_property
    def differing(self) -> frozenset[str]:
        """The tensors that are not the same in both models."""
        a, b = (model.weights.arrays() for model in self.pair)
        return frozenset(name for name in a if not np.array_equal(a[name], b[name]))

    @cached_property
    def moving(self) -> list[frozenset[str]]:
        """Of each selection the tensors that move."""
        chosen = [one.names.union(*(self.tied.get(name, ()) for name in one.names)) for one in self.selections]
        return [names & self.differing for names in chosen]

    @cached_property
    def at(self) -> tuple[int, int]:
        """The places at which β is 1 and 0: those of A and B."""
        first, second = (int(np.flatnonzero(self.beta == end)[0]) for end in (1.0, 0.0))
        return first, second

    @cached_property
    def places(self) -> list[_Place]:
        """All models, each once: A, B, and the points of the lines, coarse to fine."""
        lines = [(end, names) for names in self.moving for end in (0, 1)]
        points = [self.place(*one, point) for point in coarse_to_fine([len(self.beta)]) for one in lines]
        return list(dict.fromkeys([(0, frozenset(), 0), (1, frozenset(), 0), *points]))

    def place(self, end: int, names: frozenset[str], point: int) -> _Place:
        """Return the one name of a model that lies on several lines."""
        whole = names == self.differing
        if whole and point in self.at:
            return self.at.index(point), frozenset(), 0
        if not names or point == self.at[end]:
            return end, frozenset(), 0
        if end and point == self.at[0] and not whole:  # of two layers each is the rest of the other
            return 0, self.differing - names, self.at[1]
        return 0 if whole else end, names, point

    @cached_property
    def order(self) -> list[int]:
        """Of all models."""
        return list(range(len(self.places)))

    @cached_property
    def losses(self) -> SampleLosses:
        """By sample."""
        return SampleLosses(self.evaluator, len(self.places))

    def alike(self) -> AlikeModels | None:
        """Take models together that begin alike: cumulative lines at one β, and single layers behind the same ones."""
        compute = self.evaluator.compute
        if compute.is_gpu or compute.cluster is not None:
            return None
        names = sorted(self.differing)
        column = {name: i for i, name in enumerate(names)}
        states = np.zeros((len(self.places), len(names)))
        for row, (end, moving, point) in zip(states, self.places, strict=True):
            row[:] = 1.0 - end
            row[[column[name] for name in moving]] = self.beta[point]
        pair = (self.pair[0].weights, self.pair[1].weights)
        return AlikeModels(self.evaluator, self.module, pair, states, names, losses=self.losses, reuse=self.reuse)

    def form(self, i: int, replica: Replica) -> None:
        """Load a model into a replica."""
        end, names, point = self.places[i]
        ends = [model.weights for model in self.pair]
        coefficients = float(self.beta[point]), 1.0 - float(self.beta[point])
        points = Points(ends, lambda _: coefficients, self.policy)
        if not names:
            points.load(ends[end], replica)
        elif names == self.differing:
            points.interpolate_into(0, replica)
        else:
            kept = self.policy.statistics if self.policy.policy == "keep" else ()
            replica.combine_part(ends[end], names, ends, coefficients, kept=kept)
            points.re_estimate(replica)

    def visits(self, module: nn.Module, progress: Progress | None, partial: Path | None) -> ResumableEvaluation:
        """All that is to be measured, with what is kept of it."""
        identity = fingerprint(
            "line-layers",
            module,
            self.evaluator,
            [model.weights for model in self.pair],
            beta=self.beta.tolist(),
            moving=[sorted(names) for names in self.moving],
            **statistics_identity(self.policy),
        )
        return ResumableEvaluation(
            self.evaluator, self.form, len(self.places), progress=progress, partial=partial, fingerprint=identity
        )

    def result(
        self,
        visits: ResumableEvaluation,
        module: nn.Module,
        samples: Samples,
        provenance: Mapping[str, Any] | None,
        layers: str,
    ) -> LayerLine:
        """Return the curves of measured visits, with their barriers."""
        index = {place: i for i, place in enumerate(self.places)}
        where = np.array(
            [
                [[index[self.place(end, names, point)] for point in range(len(self.beta))] for names in self.moving]
                for end in (0, 1)
            ]
        )
        loss, error = visits.loss[0, where], visits.error[0, where]
        barriers = np.array(
            [[barrier_of(self.beta, curve, self.evaluator.layout.dtype) for curve in curves] for curves in loss]
        )
        (precise,) = precision_errors(module, self.evaluator, self.form, visits.loss[:, :2])
        return LayerLine(
            ends=(self.pair[0].label, self.pair[1].label),
            layers=tuple(one.label for one in self.selections),
            parameters=np.array([one.size for one in self.selections]),
            beta=self.beta,
            loss=loss,
            error=error,
            barrier=barriers[..., 0],
            barrier_beta=barriers[..., 1],
            attrs={
                **provenance_of(self.evaluator, samples, self.pair, provenance),
                "layers": layers,
                "normalization_policy": self.policy.policy,
                **self.policy.provenance("the model at beta = 1"),
                **self._cut_variances(),
                **precise,
            },
            barrier_stderr=self.errors(where, barriers),
        )

    def _cut_variances(self) -> dict[str, int]:
        """Count each model once, which may lie on several lines."""
        pair, count = [model.weights for model in self.pair], 0
        for _, names, point in self.places:
            beta = float(self.beta[point])
            count += self.policy.cut_variances(pair, [(beta, 1.0 - beta)], names).get("cut_variances", 0)
        return {"cut_variances": count} if count else {}

    def errors(self, where: np.ndarray, barriers: np.ndarray) -> np.ndarray:
        """Compute the standard errors of barriers over samples, [others, layer]; NaN where there is no barrier.

        A barrier is the mean over samples of l_j(β) − β l_j(1) − (1−β) l_j(0), all of the same samples.

        Args:
            where: the models, [others, layer, beta].
            barriers: height and β, [others, layer, 2].
        """
        at_1, at_0 = self.at
        there = [
            (line, tuple(int(i) for i in where[line][[int(np.searchsorted(self.beta, beta)), at_1, at_0]]), beta)
            for line, (height, beta) in ((line, barriers[line]) for line in np.ndindex(barriers.shape[:2]))
            if height > 0
        ]
        by_sample = self.losses.of([i for _, models, _ in there for i in models], self.form)
        errors = np.full(barriers.shape[:2], np.nan)
        for line, models, beta in there:
            top, one, zero = (by_sample[i] for i in models)
            errors[line] = stderr_of_mean(top - (beta * one + (1 - beta) * zero), self.losses.weights)
        return errors
