"""Measuring the losses on a plane: the grid, the models themselves, one pass for all data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Unpack

import numpy as np
from torch import nn

from ...checkpoints import Model
from ..evaluation.compute import CPU
from ..evaluation.evaluator import Evaluator
from ..evaluation.geometry import fits_module, same_layout
from ..evaluation.normalization import Normalization
from ..evaluation.points import Points
from ..evaluation.provenance import precision_errors, provenance_of
from ..evaluation.replica import Replica
from ..evaluation.samples import Samples
from ..evaluation.visiting import Visits, calibration_identity, fingerprint
from ..first_layer.spanning import Spanning, replaceable_layer
from .filling import expected, surfaces_of
from .grids import finest, grid_of
from .options import Options
from .result import Plane, PlaneModel
from .spans import Place, Span, through_models


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

    Each point's model is formed once, and each result holds the numbers that measuring its data set alone would give.
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
    same_layout([model.weights for model in models], [model.label for model in models])
    evaluator = Evaluator(
        module,
        samples,
        compute=options.get("compute", CPU),
    )
    fits_module(evaluator.layout, models)
    places = span.places(models)
    a, b = grid_of(places, span.reach, options)
    normalization = _normalization(module, evaluator, span, options)
    kept_from = str(span.about.get("origin", span.members[0][0].label)) if span.kind != "clients" else "their mean"
    statistics = normalization.provenance(options.get("calibration"), kept_from)
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
            points.form(i - first, replica)

    def told(visits: Visits, s: int) -> tuple[PlaneModel, ...]:
        alike, own = slice(len(exact)), slice(first - len(exact), first)
        columns = [values[s, at] for at in (alike, own) for values in (visits.loss, visits.error)]
        return _told(exact, places, np.stack(columns, axis=1).tolist())

    def so_far(visits: Visits) -> Plane | None:
        loss, error, done = (part[..., first:].reshape(-1, len(b), len(a)) for part in visits.arrays)
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

    def watch(visits: Visits) -> None:
        options["preview"](lambda: so_far(visits))  # type: ignore[misc]

    share = options.get("adaptive")
    count = first + len(a) * len(b)
    visits = Visits(
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
            normalization=normalization.policy,
            calibration=calibration_identity(normalization.policy, options.get("calibration")),
            combined=layer.layer if layer is not None else None,
            **({} if normalization.leaves_own else {"models_first": first}),
        ),
        expected=first + expected((len(b), len(a)), share, len(evaluator.parts)),
        watch=watch if options.get("preview") is not None else None,
    )

    @cache
    def spanning() -> Spanning | None:
        if layer is None:
            return None
        return Spanning(
            evaluator,
            module,
            layer,
            span.bases,
            lambda i: points.coefficients(i - first),
            lambda i: i >= first,
        )

    surfaces = surfaces_of(visits, first, a, b, share, spanning)
    precise = precision_errors(module, evaluator, form, visits.loss[:, : len(exact)])
    given = provenance or [{} for _ in samples]
    planes = []
    for s, (part, surface) in enumerate(zip(evaluator.parts, surfaces, strict=True)):
        found = told(visits, s)
        effects = [found[i].loss - found[i].own_loss for i in _on_plane(span)]
        attrs = {
            **provenance_of(evaluator, part, [model for model, role in exact if role != "mean"], given[s]),
            "kind": span.kind,
            **span.about,
            **precise[s],
            **({} if normalization.leaves_own else {"normalization_effect": effects}),
            **surface.about,
            **statistics,
        }
        made = Plane(
            a, b, surface.loss, surface.error, found, span.cos_uv, normalization.policy, attrs, surface.computed
        )
        planes.append(made)
    return planes


def _normalization(module: nn.Module, evaluator: Evaluator, span: Span, options: Options) -> Normalization:
    calibration, policy = options.get("calibration"), options.get("normalization", "interpolate")
    x = None if calibration is None or policy != "re-estimate" else evaluator.prepare(calibration.x)
    made = Normalization.of(module, span.bases[0].buffers, policy, x)
    # directions have no statistics that could be combined
    return Normalization("keep") if made.policy == "interpolate" and span.kind != "models" else made


def _on_plane(span: Span) -> range:
    """Which of a span's members lie on the plane: three models and their mean; else only the last, its origin."""
    last = len(span.members) - 1
    return range(last + 1) if span.kind == "models" else range(last, last + 1)


def _told(
    exact: Sequence[tuple[Model, str]], places: Sequence[Place], measured: Sequence[Sequence[float]]
) -> tuple[PlaneModel, ...]:
    """The models with their places and what was measured of them: loss, error, and both with their own statistics."""
    return tuple(
        PlaneModel(
            *(model.label, *place, loss, error, _or_nan(model.loss), _or_nan(model.error)),
            role=role,
            own_loss=own_loss,
            own_error=own_error,
        )
        for (model, role), place, (loss, error, own_loss, own_error) in zip(exact, places, measured, strict=True)
    )


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)
