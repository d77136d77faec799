"""Measuring the losses on a plane: the grid, the models themselves, one pass for all data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np
from torch import nn

from ....checkpoints import Model
from ....evaluation.compute import CPU, Compute
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
from ..basis.plane_bases import Span, through_models
from ..result import Plane, PlaneModel
from .grids import (
    FEWEST_POINTS,
    FEWEST_SAMPLES,
    PART,
    UPPER,
    Fewer,
    Range,
    all_points,
    expected,
    finest,
    grid_of,
    surfaces_of,
)

#: asked for a picture of what there is, it makes one: None before there is anything to see
SoFar = Callable[[], Plane | None]


class Options(TypedDict, total=False):
    """How a plane is measured.

    Attributes:
        grid: points a side, or (points along a, points along b); default 51.
        margin: room round all the models, as a share of their greater extent; the default range is a square.
        ranges: ((a from, a to), (b from, b to)) instead.
        adaptive: measure at most so great a share of the points, and interpolate the others; see :func:`refine`. From
            2,000 samples and 30 x 30 points on a tenth of the samples comes first, and what all samples change is
            interpolated, see :func:`fedscope.landscape.planes.surface.grids.surfaces_of`.
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


def survey(
    module: nn.Module,
    samples: Sequence[Samples],
    span: Span,
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
    than they hold (``keep``, ``re-estimate``), they are measured with their own, too.

    Args:
        module: the architecture.
        samples: the data sets.
        span: the plane: :func:`through_models`, :func:`near_clients`, :func:`along_trajectory`,
            :func:`random_directions`.
        shown: further models to project onto the plane.
        provenance: becomes part of each result's ``attrs``.
        options: see :class:`Options`.

    Raises:
        FedscopeError: different layouts, models that do not fit the module, a grid of less than 2 x 2, an empty range,
            a negative margin.
    """
    exact = [*span.members, *((model, "shown") for model in shown)]
    models = [model for model, _ in exact]
    same_layout(models)
    evaluator = Evaluator(module, samples, compute=options.get("compute", CPU))
    fits_module(evaluator.layout, models)
    places = span.places(models)
    a, b = grid_of(places, span.reach, options)
    normalization = _normalization(module, evaluator, span, options)
    kept_from = str(span.about.get("origin", span.members[0][0].label)) if span.kind != "clients" else "their mean"
    statistics = normalization.provenance(kept_from)
    points = Points(span.bases, lambda i: span.coefficients(float(a[i % len(a)]), float(b[i // len(a)])), normalization)

    layer = replaceable_layer(evaluator, module, span.bases)
    # the models under the policy, then with their own statistics where those are others, then the grid's points
    first = len(exact) * (1 if normalization.leaves_own else 2)

    def form(i: int, replica: Replica) -> None:
        if i < len(exact):
            points.load(models[i].weights, replica)
        elif i < first:
            own = models[i - len(exact)].weights
            replica.load(own.parameters, own.buffers)
        else:
            points.interpolate_into((i - first) % size, replica)

    def told(visits: ResumableEvaluation, s: int) -> tuple[PlaneModel, ...]:
        alike, own = slice(len(exact)), slice(first - len(exact), first)
        measured = np.stack([values[s, at] for at in (alike, own) for values in (visits.loss, visits.error)]).T.tolist()
        return tuple(
            PlaneModel(
                *(model.label, *place, loss, error, _or_nan(model.loss), _or_nan(model.error)),
                role=role,
                own_loss=own_loss,
                own_error=own_error,
            )
            for (model, role), place, (loss, error, own_loss, own_error) in zip(exact, places, measured, strict=True)
        )

    def so_far(visits: ResumableEvaluation) -> Plane | None:
        loss, error, done = (part[..., first : first + size].reshape(-1, len(b), len(a)) for part in visits.arrays)
        step = finest(done[0])
        if step is None:
            return None
        attrs = {
            **provenance_of(evaluator, evaluator.samples, [], None),
            "kind": span.kind,
            **span.about,
            **statistics,
            "grid": f"{len(a)} x {len(b)}",
        }
        grid = (slice(None, None, step),) * 2
        surface = (a[::step], b[::step], loss[0][grid], error[0][grid])
        return Plane(*surface, told(visits, 0), span.cos_uv, normalization.policy, attrs)

    def watch(visits: ResumableEvaluation) -> None:
        options["preview"](lambda: so_far(visits))  # type: ignore[misc]

    share, size = options.get("adaptive"), len(a) * len(b)
    count, block = first + size, options.get("block")
    rough = _fewer(module, evaluator, share, (len(b), len(a)))
    if rough is not None:
        count += size  # the same points on a part of the samples
    visits = ResumableEvaluation(
        evaluator,
        form,
        count,
        progress=options.get("progress"),
        partial=options.get("partial"),
        fingerprint=fingerprint(
            "plane",
            module,
            evaluator,
            [model.weights for model in models],
            span=[span.kind, span.about],
            a=a.tolist(),
            b=b.tolist(),
            **statistics_identity(normalization),
            combined=layer.layer if layer is not None else None,
            **({} if normalization.leaves_own else {"models_first": first}),
        ),
        expected=len(range(block[0], count, block[1]))
        if block is not None
        else first + expected((len(b), len(a)), share, len(evaluator.parts), fewer=rough is not None),
        costs=np.repeat([1.0, 1 / PART], [first + size, count - first - size]),
        watch=watch if options.get("preview") is not None else None,
    )

    @cache
    def spanning(of: Evaluator) -> Spanning | None:
        if layer is None:
            return None
        return Spanning(
            of,
            module,
            layer,
            span.bases,
            lambda i: points.coefficients((i - first) % size),
            lambda i: i >= first,
        )

    if block is not None:
        visits.measure(all_points(first, (len(b), len(a)))[block[0] :: block[1]], partial(spanning, evaluator))
        return []
    visits.take(options.get("elsewhere", ()))
    fewer = None if rough is None else Fewer(rough, first + size, partial(spanning, rough))
    surfaces = surfaces_of(visits, first, a, b, share, partial(spanning, evaluator), fewer)
    precise = precision_errors(module, evaluator, form, visits.loss[:, : len(exact)])
    given = provenance or [{} for _ in samples]
    planes = []
    for s, (part, surface) in enumerate(zip(evaluator.parts, surfaces, strict=True)):
        measured = told(visits, s)
        effects = [model.loss - model.own_loss for model in measured[_on_plane(span)]]
        attrs = {
            **provenance_of(evaluator, part, [model for model, role in exact if role != "mean"], given[s]),
            "kind": span.kind,
            **span.about,
            **precise[s],
            **({} if normalization.leaves_own else {"normalization_effect": effects}),
            **surface.about,
            **statistics,
        }
        values = surface.loss, surface.error, measured, span.cos_uv, normalization.policy, attrs, surface.computed
        planes.append(Plane(a, b, *values))
    return planes


def _fewer(module: nn.Module, evaluator: Evaluator, share: float | None, shape: tuple[int, int]) -> Evaluator | None:
    """Of a part of the samples, where two levels are measured."""
    from .adaptive import budget

    if share is None or not FEWEST_POINTS <= budget(shape, UPPER * share) < shape[0] * shape[1]:
        return None
    sizes = [len(part) // PART for part in evaluator.parts]
    if min(sizes) < FEWEST_SAMPLES:
        return None
    parts = [part.limit(size) for part, size in zip(evaluator.parts, sizes, strict=True)]
    return Evaluator(module, parts, compute=evaluator.compute)


def _normalization(module: nn.Module, evaluator: Evaluator, span: Span, options: Options) -> Normalization:
    policy, calibration = options.get("normalization", "interpolate"), options.get("calibration")
    normalization = Normalization.of(module, span.bases[0].buffers, policy, calibration, evaluator.prepare)
    # directions have no statistics that could be combined
    if normalization.policy == "interpolate" and span.kind != "models":
        return Normalization("keep")
    return normalization


def _on_plane(span: Span) -> slice:
    """Which of a span's members lie on the plane: three models and their mean; else only the last, its origin."""
    last = len(span.members) - 1
    return slice(0 if span.kind == "models" else last, last + 1)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)
