"""Sharpness: every measure of every model, kept one by one so that an interrupted analysis goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ...checkpoints import FedscopeError, Layout, Model
from ...checkpoints.models.layer_selections import ALL_LAYERS, Selection
from ...evaluation.device import CPU, Compute
from ...evaluation.evaluator import Evaluator
from ...evaluation.resumable import Progress, fingerprint, provenance_of
from ...evaluation.samples import Samples
from ...evaluation.tied_parameters import tied_names
from ...evaluation.trainable_parameters import frozen_count, trained_parameters, trains_nothing
from ...evaluation.validation import fits_module
from ...results.resume import LATER, ResumeStore
from .derivatives import Derivatives, TriedOut
from .hessian import require_curvlinops
from .one_model import CurvatureContext, CurvaturePart, SharpnessSettings, measure_part, parts_of, read_measures
from .result import Curvature, Sharpness, Spectrum


def sharpness(
    module: nn.Module,
    samples: Samples,
    models: Sequence[Model],
    settings: SharpnessSettings,
    *,
    frozen: bool = False,
    compute: Compute = CPU,
    progress: Progress | None = None,
    partial: Path | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Sharpness:
    """Measure how sharp the loss L(w), the mean cross-entropy of ``samples``, is at each of ``models``.

    Rises of the loss within ‖ε‖ ≤ ρ: ``sam``, ``worst_case``, ``ball_mean``; within ‖T⁻¹ε‖ ≤ ρ_rel, in lengths of the
    model's filters: ``filter_mean``, ``filter_worst_case`` (:mod:`~fedscope.landscape.curvature.flatness`). Of the
    Hessian: its largest eigenvalues, the smallest one, trace, spectral density
    (:mod:`~fedscope.landscape.curvature.hessian`). All in float32.

    All are over the parameters that the module trains, those with ``requires_grad``: the Hessian is the block of them,
    as PyHessian's (Yao et al., "PyHessian: Neural Networks Through the Lens of the Hessian", 2020), ε moves them alone,
    and the gradient has no other entries. A module that marks none as trained says nothing, and all of them count.
    Weights that a module holds under several names count once.

    A model whose loss is NaN or infinite has NaN for the rest.

    Args:
        models: of the module's layout.
        settings: ρ, ρ_rel, how much is drawn, and how much of the Hessian is asked for.
        frozen: whether frozen parameters count, too.
        progress: told the forward passes done and in all, as far as they can be known.
        partial: where finished parts are kept; with other radii or draws, models or samples they are not used.
        provenance: goes into ``attrs``.

    Raises:
        FedscopeError: no model, more eigenvalues than parameters, a model that does not fit the module, two models of
            one name, ``density`` without curvlinops.
    """
    return sharpness_at(
        module,
        [MeasuredPlace("", samples, models)],
        settings,
        frozen=frozen,
        compute=compute,
        progress=progress,
        partial=partial,
        provenance=provenance,
    )


@dataclass(frozen=True)
class MeasuredPlace:
    """Samples, and the models that are measured on them.

    Attributes:
        name: of the place, ``all``, ``client-3``; "" for the only one.
        layers: that alone move; None: all that are trained.
    """

    name: str
    samples: Samples
    models: Sequence[Model]
    layers: Selection | None = None


def by_layer(samples: Samples, models: Sequence[Model], selections: Sequence[Selection]) -> list[MeasuredPlace]:
    """Return what is measured of each selection of layers, all of them first: the others take the loss from there."""
    *parts, whole = selections
    return [MeasuredPlace("", samples, models, one) for one in (whole, *parts)]


def sharpness_at(
    module: nn.Module,
    places: Sequence[MeasuredPlace],
    settings: SharpnessSettings,
    *,
    frozen: bool = False,
    compute: Compute = CPU,
    progress: Progress | None = None,
    partial: Path | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Sharpness:
    """Measure the same on several sets of samples, one after the other: see :func:`sharpness`.

    All draw the same directions, probes and starts. Where only some layers move, derivatives and directions are those
    of their parameters, the Hessian is their block, and as many of its eigenvalues are asked for as it has; the loss
    is measured once.

    Raises:
        FedscopeError: as :func:`sharpness`; layers of which nothing is trained.
    """
    if not any(place.models for place in places):
        raise FedscopeError("there is no model to measure; give at least one")
    if settings.hessian and settings.density:
        require_curvlinops()
    trained = None if frozen else trained_parameters(module)
    tied = tied_names(module)
    parts = parts_of(settings)
    meter = _Meter(progress, sum(part.passes for part in parts) * sum(len(place.models) for place in places))
    several = any(place.name or place.layers is not None for place in places)
    # the question of each place is in the names of its parts
    store = ResumeStore(partial, {"kind": "sharpness of places", **asdict(settings)}) if several else None
    curvatures: list[Curvature] = []
    attrs: dict[str, Any] = {}
    losses: dict[str, Any] = {}
    evaluator: Evaluator | None = None
    tried = TriedOut()
    for place in places:
        if evaluator is None or evaluator.samples is not place.samples:
            evaluator, tried = Evaluator(module, place.samples, compute=compute), TriedOut()
        moving = _moving(place, trained, tied, evaluator.layout)
        derivatives = Derivatives(module, place.samples, compute=compute, trained=moving, tried=tried)
        fits_module(evaluator.layout, place.models)
        moved = None if moving is None else _places_of(moving, evaluator.layout)
        size = evaluator.layout.size if moved is None else int(moved.sum())
        asked_here = settings
        if place.layers is not None and place.layers.label != ALL_LAYERS:
            asked_here = replace(settings, top=min(settings.top, size))
        elif settings.hessian and not settings.top <= size:
            raise FedscopeError(
                f"--top {settings.top} eigenvalues of a model of {size} parameters do not exist; give 1 to {size}"
            )
        attrs = attrs or {
            **asdict(settings),
            "parameters": size,
            **frozen_settings(module, frozen),
            **provenance_of(evaluator, place.samples, place.models, provenance),
        }
        if not curvatures:  # refuses names that are not unique, before anything is computed
            Sharpness(tuple(_curvature(model, {}, one) for one in places for model in one.models), attrs)
        weights = [model.weights for model in place.models]
        question = fingerprint("sharpness", module, evaluator, weights, **asdict(asked_here))
        if moving is not None:
            question["trained"] = sorted(moving)
        # by model, so that asking for more of them goes on with those that are done
        digests = question.pop("models")
        with store or ResumeStore(partial, question) as kept:
            asked = _asked(question, kept) if several else ""
            for model, digest in zip(place.models, digests, strict=True):
                label = f"{model.address} on {place.name}" if place.name else model.address
                about = CurvatureContext(model.weights, asked_here, evaluator, derivatives, moved, meter.tick, label)
                about.layers = asked_here is not settings
                key = f"{asked}:{digest}" if several else digest
                own = parts_of(asked_here)
                known = {} if place.layers is None else {name: losses[digest] for name in ("loss",) if digest in losses}
                values = _measure_parts(own, about, key, kept, meter, known)
                losses[digest] = values["loss"]
                curvatures.append(_curvature(model, values, place, size))
    return Sharpness(tuple(curvatures), attrs)


def _asked(question: Mapping[str, Any], store: ResumeStore) -> str:
    """Digest a place's question, as it was asked by an earlier version where the store has parts of that.

    >>> store = ResumeStore(None, {})
    >>> before, now = _asked({"batch": 8}, store), _asked({"batch": 8, "answers": "3af1"}, store)
    >>> before == now
    False
    >>> store.add(f"{before}:0d4c:loss", [])
    >>> before == _asked({"batch": 8, "answers": "3af1"}, store)
    True
    """
    before = {key: value for key, value in question.items() if key not in LATER}
    then, now = (
        hashlib.sha256(json.dumps(one, sort_keys=True).encode()).hexdigest()[:16] for one in (before, question)
    )
    return then if any(key.startswith(f"{then}:") for key in store.done) else now


def _moving(
    place: MeasuredPlace, trained: Collection[str] | None, tied: Mapping[str, frozenset[str]], layout: Layout
) -> frozenset[str] | None:
    """Return the names of the parameters that derivatives are taken in; None for all.

    Of tied weights that is the last name, whose numbers a module has
    (:class:`~fedscope.evaluation.model_replica.FlatModule`). Nothing depends on those of the others: a ball or a mean
    over them would have dimensions without effect.

    Raises:
        FedscopeError: layers of which nothing is trained.
    """
    every = frozenset(layout.slices) if trained is None else frozenset(trained)
    last = {max(names & layout.slices.keys(), key=layout.names.index) for names in tied.values()}
    if place.layers is None or place.layers.label == ALL_LAYERS:
        return None if trained is None and not tied else every - tied.keys() | last & every
    chosen = place.layers.parameters.union(*(tied.get(name, ()) for name in place.layers.parameters))
    moving = (chosen - tied.keys() | last & chosen) & every
    if not moving:
        raise FedscopeError(
            f"layers {place.layers.label!r} are frozen in the module, so nothing of them moves; choose others, or "
            "count frozen ones (--frozen)"
        )
    return moving


def _measure_parts(
    parts: Sequence[CurvaturePart],
    about: CurvatureContext,
    digest: str,
    store: ResumeStore,
    meter: _Meter,
    given: Mapping[str, dict[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Measure all parts of a model, or take from the store what it has of them; those of ``given`` are known."""
    values = {}
    for part in parts:
        key = f"{digest}:{part.name}"
        meter.begin(part.passes)
        if part.name in given:
            values[part.name] = given[part.name]
            about.known |= {measure.name: measure for measure in read_measures(given[part.name])}
            meter.finish()
            continue
        known = store.take(key, read_measures)
        if known is None:
            store.add(key, measure_part(part, about))
            known = read_measures(store.done[key])
        values[part.name] = store.done[key]
        about.known |= {measure.name: measure for measure in known}
        meter.finish()
    return values


def frozen_settings(module: nn.Module, frozen: bool) -> dict[str, Any]:
    """Describe frozen parameters for a result: how many there are, and whether they count; nothing without any."""
    if trains_nothing(module):
        return {"frozen": "none is trained"}
    count = frozen_count(module)
    return {"frozen_parameters": count, "frozen": "counted" if frozen else "left out"} if count else {}


def _places_of(trained: Collection[str], layout: Layout) -> np.ndarray:
    moved = np.zeros(layout.size, dtype=bool)
    for name, where in layout.slices.items():
        moved[where] = name in trained
    return moved


class _Meter:
    """Forward passes done: within a part as they come, at its end as many as it was expected to take."""

    def __init__(self, progress: Progress | None, of: int) -> None:
        self._progress, self._of = progress, of
        self._parts = self._part = self._here = 0

    def begin(self, passes: int) -> None:
        self._part, self._here = passes, 0

    def tick(self, passes: int) -> None:
        self._here += passes
        self._tell()

    def finish(self) -> None:
        self._parts, self._part, self._here = self._parts + self._part, 0, 0
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self._parts + min(self._here, self._part), self._of)


def _curvature(model: Model, values: Mapping[str, Any], place: MeasuredPlace, size: int | None = None) -> Curvature:
    spectrum = values.get("density", {}).get("spectrum")
    return Curvature(
        run=model.run.name if model.run is not None else "",
        round=model.round,
        model=model.which or model.label,
        measures=tuple(measure for value in values.values() for measure in read_measures(value)),
        spectrum=Spectrum(*(np.array(column) for column in spectrum)) if spectrum else None,
        place=place.name,
        samples=len(place.samples) if place.name else None,
        layer="" if place.layers is None else place.layers.label,
        parameters=None if place.layers is None else size,
    )
