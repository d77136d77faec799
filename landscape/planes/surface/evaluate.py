"""Measuring the losses on a plane: the grid, the models themselves, one pass for all data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from torch import nn

from ....analysis.settings import is_same_setting
from ....checkpoints import Model
from ....checkpoints.io.torch_state import ordinary_tensors
from ....checkpoints.io.warn_user import warn_user
from ....evaluation.device import CPU, Compute, precision_of
from ....evaluation.evaluator import Evaluator
from ....evaluation.first_layer_groups import Spanning, replaceable_layer
from ....evaluation.model_replica import Replica
from ....evaluation.normalization import Normalization, Points
from ....evaluation.resumable import (
    OtherStore,
    Progress,
    ResumableEvaluation,
    fingerprint,
    precision_errors,
    provenance_of,
    statistics_identity,
)
from ....evaluation.samples import Samples
from ....evaluation.validation import fits_module, same_layout
from ..basis.plane_bases import PlaneBasis, through_models
from ..point_counts import SurfaceBudget, budget
from ..result import Plane, PlaneModel
from .grids import Range, all_points, finest, grid_of
from .surfaces import (
    FEWEST_POINTS,
    FEWEST_SAMPLES,
    PART,
    UPPER,
    EarlierSurface,
    Fewer,
    Surface,
    adaptive_surfaces,
    expected_visits,
    measured_surfaces,
)

#: asked for a picture of what there is, it makes one: None before there is anything to see
SoFar = Callable[[], Plane | None]


class Options(TypedDict, total=False):
    """Settings of the measurement of a plane.

    Attributes:
        grid: points a side, or (points along a, points along b); default 51.
        margin: room round all the models, as a share of their greater extent; the default range is a square.
        ranges: ((a from, a to), (b from, b to)) instead.
        adaptive: measure until the aim holds, at most so great a share of the points, and interpolate the others; see
            :func:`~.adaptive.refine`. From 2,000 samples and 30 x 30 points on a tenth of the samples comes first, and
            what all samples change is interpolated, see
            :func:`fedscope.landscape.planes.surface.surfaces.adaptive_surfaces`.
        earlier: with ``adaptive``, of each data set the plane of the same question that a smaller share ended at: its
            measured points are taken over.
        normalization: ``interpolate``, ``re-estimate`` or ``keep``; see :class:`Normalization`.
        calibration: the samples on which statistics are re-estimated.
        compute: device, precision and workers.
        progress: called with (points done, points in all).
        preview: called after every point with a function that returns what there is so far, on the finest grid of
            which every point has been measured (of the first data set).
        partial: where finished points are kept; the same call goes on from there. The caller removes the file once
            the result is saved.
        block: (i, n): measure every n-th point only, from the i-th on, keep them in ``partial``, and return no planes.
            Not with ``adaptive``, where each point is chosen by those before it.
        elsewhere: stores of blocks that others have measured: their points are taken over.
    """

    grid: int | tuple[int, int]
    margin: float
    ranges: tuple[Range, Range] | None
    adaptive: float | None
    earlier: Sequence[Plane]
    normalization: str
    calibration: Samples | None
    compute: Compute
    progress: Progress | None
    preview: Callable[[SoFar], None] | None
    partial: Path | None
    block: tuple[int, int] | None
    elsewhere: Sequence[OtherStore]


def plane(
    module: nn.Module,
    samples: Samples,
    anchors: Sequence[Model],
    *,
    shown: Sequence[Model] = (),
    provenance: Mapping[str, Any] | None = None,
    **options: Unpack[Options],
) -> Plane:
    """Measure the losses on the plane through three models, and of these, their mean and further models exactly.

    Args:
        module: the architecture.
        samples: what the loss is measured on.
        anchors: the three models, the first one at the origin and the second on the a axis.
        shown: models to project onto the plane.
        provenance: becomes part of ``Plane.attrs``.
        options: ``grid``, ``margin``, ``compute`` and so on: see :class:`Options`.

    Raises:
        FedscopeError: not three anchors, different layouts, anchors with NaN, identical or collinear ones, a grid of
            less than 2 x 2, an empty range.
    """
    return survey(module, [samples], through_models(anchors), shown=shown, provenance=[provenance or {}], **options)[0]


@ordinary_tensors()
def survey(
    module: nn.Module,
    samples: Sequence[Samples],
    span: PlaneBasis,
    *,
    shown: Sequence[Model] = (),
    provenance: Sequence[Mapping[str, Any]] | None = None,
    **options: Unpack[Options],
) -> list[Plane]:
    """Measure one plane on one or several data sets in one pass, a result each.

    Each point's model is formed once, and each result holds the numbers that measuring its data set alone would give;
    with ``adaptive`` two levels are measured where all of the sets are large enough for that.
    The span's models and the shown ones are measured exactly besides the grid, with normalization statistics of the
    surface's policy, so that a model that lies on the plane has the surface's loss; where that policy gives them others
    than they hold (``keep``, ``re-estimate``), they are measured with their own, too. Other floating buffers that
    differ are combined like the parameters on a plane through three models; along directions, which have none, they
    are the origin's.

    Args:
        module: the architecture.
        samples: the data sets.
        span: the plane: :func:`through_models`, or another of
            :mod:`fedscope.landscape.planes.basis.plane_bases`: ``near_clients``, ``along_trajectory``,
            ``random_directions``.
        shown: further models to project onto the plane.
        provenance: becomes part of each result's ``attrs``.
        options: see :class:`Options`.

    Raises:
        FedscopeError: different layouts, models that do not fit the module, masks or whole numbers among their buffers
            that differ, a grid of less than 2 x 2, an empty range, a negative margin.
    """
    evaluation = PlaneEvaluation(module, samples, span, shown, options)
    return evaluation.measure(provenance or [{} for _ in samples])


class PlaneEvaluation:
    """A plane that is measured on one or several data sets, from its models to a result for each set.

    Its visits, each one model on all sets, are in this order: the models under the surface's policy, again with their
    own statistics where those are others, the grid's points, and these on a part of the samples where two levels are
    measured.

    Attributes:
        exact: the models besides the grid, with their roles.
        first: the visit of the grid's first point.
        size: how many points the grid has; shape: along b and a.
        rough: measures the part of the samples; None where there is one level.

    Raises:
        FedscopeError: as :func:`survey`.
    """

    def __init__(
        self, module: nn.Module, samples: Sequence[Samples], span: PlaneBasis, shown: Sequence[Model], options: Options
    ) -> None:
        self.module, self.span, self.options = module, span, options
        self.exact = [*span.members, *((model, "shown") for model in shown)]
        self.models = [model for model, _ in self.exact]
        same_layout(self.models)
        self.evaluator = Evaluator(module, samples, compute=options.get("compute", CPU))
        fits_module(self.evaluator.layout, self.models)
        self.places = span.places(self.models)
        self.a, self.b = grid_of(self.places, span.reaches, options)
        given = [model for model, role in self.exact if role != "mean"]  # a mean of masks would be none
        self.normalization = _normalization(module, self.evaluator, span, options, given)
        # nothing that this holds refers to it, so that its models go with it and wait for no collection of cycles
        self.points = Points(span.bases, partial(_coefficients, span, self.a, self.b), self.normalization)
        self.layer = replaceable_layer(self.evaluator, module, span.bases)
        self.first = len(self.exact) * (1 if self.normalization.leaves_own else 2)
        self.shape = len(self.b), len(self.a)
        self.size = len(self.a) * len(self.b)
        share = options.get("adaptive")
        self.plan = None if share is None else SurfaceBudget(self.shape, share)
        self.earlier = [] if share is None else self._earlier(options.get("earlier", ()), share)
        self.rough = None if self.plan is None or self.earlier else _fewer(module, self.evaluator, self.plan)
        self._spannings: dict[Evaluator, Spanning | None] = {}

    def measure(self, provenance: Sequence[Mapping[str, Any]]) -> list[Plane]:
        """Measure, and return a result for each data set; none of a block."""
        visits, block = self._visits(), self.options.get("block")
        if block is not None:
            every = all_points(self.first, self.shape)
            visits.measure(every[block[0] :: block[1]], partial(self._spanning, self.evaluator))
            return []
        visits.take(self.options.get("elsewhere", ()))
        return self._results(visits, self._surfaces(visits), provenance)

    def form(self, i: int, replica: Replica) -> None:
        """Load the model of a visit into a replica."""
        if i < len(self.exact):
            self.points.load(self.models[i].weights, replica)
        elif i < self.first:
            own = self.models[i - len(self.exact)].weights
            replica.load(own.parameters, own.buffers)
        else:
            self.points.interpolate_into((i - self.first) % self.size, replica)

    def _visits(self) -> ResumableEvaluation:
        options, block = self.options, self.options.get("block")
        count = self.first + self.size * (1 if self.rough is None else 2)
        if block is not None:
            awaited: float = len(range(block[0], count, block[1]))
        else:
            sets, fewer = len(self.evaluator.parts), self.rough is not None
            points = self.size if self.plan is None else expected_visits(self.plan, sets, self.earlier, fewer=fewer)
            awaited = self.first + points
        return ResumableEvaluation(
            self.evaluator,
            self.form,
            count,
            progress=options.get("progress"),
            partial=options.get("partial"),
            fingerprint=self._fingerprint(),
            expected=awaited,
            costs=np.repeat([1.0, 1 / PART], [self.first + self.size, count - self.first - self.size]),
            watch=self._watch if options.get("preview") is not None else None,
        )

    def _fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of all that finished points depend on."""
        return fingerprint(
            "plane",
            self.module,
            self.evaluator,
            [model.weights for model in self.models],
            span=[self.span.kind, self.span.about],
            a=self.a.tolist(),
            b=self.b.tolist(),
            **statistics_identity(self.normalization),
            combined=self.layer.layer if self.layer is not None else None,
            **({} if self.normalization.leaves_own else {"models_first": self.first}),
        )

    def _spanning(self, of: Evaluator) -> Spanning | None:
        """Return the combination of first layers by an evaluator; None where there can be none."""
        if self.layer is None:
            return None
        if of not in self._spannings:
            points, first, size = self.points, self.first, self.size
            self._spannings[of] = Spanning(
                of,
                self.module,
                self.layer,
                self.span.bases,
                lambda i: points.coefficients((i - first) % size),
                lambda i: i >= first,
            )
        return self._spannings[of]

    def _surfaces(self, visits: ResumableEvaluation) -> list[Surface]:
        """Measure the models and the grid; a surface for each data set."""
        fewer = None
        if self.rough is not None:
            fewer = Fewer(self.rough, self.first + self.size, partial(self._spanning, self.rough))
        combined = partial(self._spanning, self.evaluator)
        if self.plan is None:
            return measured_surfaces(visits, self.first, self.shape, combined)
        return adaptive_surfaces(visits, self.first, self.plan, combined, fewer, self.earlier)

    def _earlier(self, planes: Sequence[Plane], share: float) -> list[EarlierSurface]:
        """Return the surfaces that a smaller share ended at; none where they are of another device, precision or
        grid, whose numbers these would be mixed with."""
        compute = self.evaluator.compute
        precision = precision_of(self.module, compute.precision)
        for plane in planes:
            there = str(plane.attrs.get("device")), plane.attrs.get("precision")
            same = is_same_setting("precision", there[1], precision)
            if there[0].partition(":")[0] != compute.kind or not same:
                said = f"{there[0]} in {there[1]}, and here it is {compute.name} in {precision}"
            elif not all(map(_is_same_axis, (plane.a, plane.b), (self.a, self.b))):
                said = "another range"
            else:
                continue
            warn_user(
                f"the surface that a smaller budget ended at was measured on {said}: all points are measured anew"
            )
            return []
        return [
            EarlierSurface(p.loss, p.error, p.computed, p.attrs, p.is_enough({"adaptive": share}))
            for p in planes
            if p.computed is not None
        ]

    def _results(
        self, visits: ResumableEvaluation, surfaces: Sequence[Surface], provenance: Sequence[Mapping[str, Any]]
    ) -> list[Plane]:
        precise = precision_errors(self.module, self.evaluator, self.form, visits.loss[:, : len(self.exact)])
        made_from = [model for model, role in self.exact if role != "mean"]
        planes = []
        for s, (part, surface) in enumerate(zip(self.evaluator.parts, surfaces, strict=True)):
            measured = self._measured(visits, s)
            effects = [model.loss - model.own_loss for model in measured[_on_plane(self.span)]]
            attrs = {
                **provenance_of(self.evaluator, part, made_from, provenance[s]),
                "kind": self.span.kind,
                **self.span.about,
                **precise[s],
                **({} if self.normalization.leaves_own else {"normalization_effect": effects}),
                **surface.about,
                **self._statistics(),
            }
            about = measured, self.span.cos_uv, self.normalization.policy, attrs, surface.computed
            planes.append(Plane(self.a, self.b, surface.loss, surface.error, *about))
        return planes

    def _measured(self, visits: ResumableEvaluation, s: int) -> tuple[PlaneModel, ...]:
        """Return the models on the s-th data set."""
        alike, own = slice(len(self.exact)), slice(self.first - len(self.exact), self.first)
        measured = np.stack([values[s, at] for at in (alike, own) for values in (visits.loss, visits.error)]).T.tolist()
        return tuple(
            PlaneModel(
                *(model.label, *place, loss, error, _or_nan(model.loss), _or_nan(model.error)),
                role=role,
                own_loss=own_loss,
                own_error=own_error,
            )
            for (model, role), place, (loss, error, own_loss, own_error) in zip(
                self.exact, self.places, measured, strict=True
            )
        )

    def _statistics(self) -> dict[str, Any]:
        """Describe the source of the normalization statistics."""
        of_clients = self.span.kind == "clients"
        kept_from = "their mean" if of_clients else str(self.span.about.get("origin", self.span.members[0][0].label))
        return self.normalization.provenance(kept_from, directions=self.span.kind != "models")

    def _watch(self, visits: ResumableEvaluation) -> None:
        self.options["preview"](lambda: self._so_far(visits))  # type: ignore[misc]

    def _so_far(self, visits: ResumableEvaluation) -> Plane | None:
        """Return the finest grid that is whole on the first data set; None before there is one."""
        grid_points = slice(self.first, self.first + self.size)
        loss, error, done = (part[..., grid_points].reshape(-1, *self.shape) for part in visits.arrays)
        step = finest(done[0])
        if step is None:
            return None
        attrs = {
            **provenance_of(self.evaluator, self.evaluator.samples, [], None),
            "kind": self.span.kind,
            **self.span.about,
            **self._statistics(),
            "grid": f"{len(self.a)} x {len(self.b)}",
        }
        grid = (slice(None, None, step),) * 2
        surface = (self.a[::step], self.b[::step], loss[0][grid], error[0][grid])
        return Plane(*surface, self._measured(visits, 0), self.span.cos_uv, self.normalization.policy, attrs)


def _coefficients(span: PlaneBasis, a: np.ndarray, b: np.ndarray, i: int) -> Sequence[float]:
    """Return the coefficients of the span's bases at the i-th point of a grid."""
    return span.coefficients(float(a[i % len(a)]), float(b[i // len(a)]))


def _is_same_axis(one: np.ndarray, other: np.ndarray) -> bool:
    """Compare coordinates up to what rounding on another processor makes of them."""
    return one.shape == other.shape and bool(np.abs(one - other).max() <= 1e-6 * np.ptp(other))


def _fewer(module: nn.Module, evaluator: Evaluator, plan: SurfaceBudget) -> Evaluator | None:
    """Return the evaluator of a part of the samples, where two levels are measured."""
    if not FEWEST_POINTS <= budget(plan.shape, UPPER * plan.usual_share) < plan.size:
        return None
    sizes = [len(part) // PART for part in evaluator.parts]
    if min(sizes) < FEWEST_SAMPLES:
        return None
    parts = [part.limit(size) for part, size in zip(evaluator.parts, sizes, strict=True)]
    return Evaluator(module, parts, compute=evaluator.compute)


def _normalization(
    module: nn.Module, evaluator: Evaluator, span: PlaneBasis, options: Options, models: Sequence[Model]
) -> Normalization:
    policy, calibration = options.get("normalization", "interpolate"), options.get("calibration")
    normalization = Normalization.of(module, span.bases[0].buffers, policy, calibration, evaluator.prepare)
    normalization = normalization.among(models, evaluator.answers, "on the plane between them")
    # directions have no buffers that could be combined: points have the origin's, and models their own, too
    kept = normalization.policy == "interpolate" or (normalization.policy == "none" and normalization.others)
    return replace(normalization, policy="keep") if kept and span.kind != "models" else normalization


def _on_plane(span: PlaneBasis) -> slice:
    """Find the members that lie on the plane: three models and their mean; else only the last, its origin."""
    last = len(span.members) - 1
    return slice(0 if span.kind == "models" else last, last + 1)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)
