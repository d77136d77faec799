"""Analysis: the sharpness of the loss at models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from ...analysis.analysis import (
    PreparedAnalysis,
    SettingsAndCompute,
    analysis,
    fit_file_name,
    place_of,
    single_result,
    slug,
)
from ...analysis.execution import Execution
from ...analysis.rounds import Rounds, parse_rounds, rounds_text
from ...analysis.runs import open_run
from ...analysis.settings import EvaluationConfig, EvaluationSettings, refuse_idle
from ...checkpoints import FedscopeError
from ...checkpoints.models.files import is_model_folder
from ...checkpoints.models.layer_selections import ALL_LAYERS, Selection, layers_file_word, selections_of
from ...training.inputs.data_of import SampleSet, describe_sets, read_sets, sets_by_model, training_split
from ...training.inputs.models import ModelLike, as_list, expand, names_of, resolve_models
from .. import Sharpness
from .result import Curvature

if TYPE_CHECKING:
    from torch import nn

#: defaults: how many eigenvalues, and random vectors for the trace
TOP, PROBES = 5, 10


@analysis
def sharpness(
    models: ModelLike | Sequence[ModelLike],
    *,
    rounds: Rounds = None,
    data_of: str | int | Sequence[int] | None = None,
    layers: str | None = None,
    rho: float = 0.05,
    relative: float = 0.1,
    draws: int = 10,
    top: int = TOP,
    probes: int = PROBES,
    density: int = 0,
    hessian: bool = True,
    frozen: bool = False,
    **measured: Unpack[EvaluationSettings],
) -> PreparedAnalysis[Sharpness]:
    """Measure how sharp the loss is at models: the Hessian's eigenvalues and trace, and how far the loss rises nearby.

    See :func:`~fedscope.landscape.curvature` for the measures.

    Args:
        models: addresses (``runs/ima@40``, ``runs/ima@last/global``), files, ``nn.Module`` s or state dicts; a run
            stands for those of its ``rounds``.
        rounds: which of every run, or ``all``; the last by default.
        data_of: whose training data: ``own``, of clients' models their clients'; ``all`` clients'; ``client-7`` or
            numbers; ``clients``, those among the models; or ``every`` client of the round and all, with the flatness
            distance between them.
        layers: the same where only these layers move: ``each`` alone, or a pattern for several together,
            ``conv1,blocks.0.*`` or ``/^blocks/``; ``fedscope layers`` lists their names. The Hessian is then their
            block. The last row of a model is of all layers.
        rho: radius of the ball, an L2 distance.
        relative: radius in lengths of the model's filters.
        draws: directions of the means over the balls, drawn with ``seed``.
        top: how many of the largest eigenvalues.
        probes: random vectors for the trace.
        density: the spectral density too, in so many steps, as in 64; needs ``pip install 'fedscope[hessian]'``.
        hessian: False measures rises of the loss only: no eigenvalues, trace and density.
        frozen: True counts parameters that the module does not train (``requires_grad`` False), too.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``train``, the loss of which
            methods like FedSAM say that it becomes flatter (of a pair of arrays it is the only one); ``precision`` is
            ``float32``.

    Raises:
        FedscopeError: rounds that a run does not have; a model that is named twice; radii or counts that make no sense.

    >>> import fedscope, torch
    >>> net = torch.nn.Linear(2, 2)
    >>> x = torch.randn(40, 2)
    >>> sharp = fedscope.sharpness(net, data=(x, (x[:, 0] > 0).long()), draws=2, top=1, probes=2)
    >>> [measure.name for _, measure in sharp.measures()][:3]
    ['loss', 'error', 'gradient_norm']
    """
    source = EvaluationConfig.of("train", measured)
    if source.precision != "float32":
        raise FedscopeError(
            f"--precision {source.precision} cannot tell losses so near to each other apart; leave it out (float32)"
        )
    if not hessian:
        of_hessian = {"density": (density, 0), "top": (top, TOP), "probes": (probes, PROBES)}
        refuse_idle(of_hessian, "is of the Hessian, which --no-hessian leaves out; leave one out")
    given, whose = _by_round(as_list(models), rounds_text(rounds)), rounds_text(data_of)
    training_split(whose, source)
    sets = None if whose is None else sets_by_model(given, whose)
    if layers is not None and sets is not None:
        raise FedscopeError(
            f"--layers {layers} is of one set of samples, and --data-of {whose} of several; leave one out"
        )
    asked: dict[str, Any] = {
        **{"rho": rho, "relative": relative, "draws": draws, "seed": source.seed, "hessian": hessian},
        **{"top": top, "probes": probes, "density": density if hessian else 0},
    }

    def prepare() -> SettingsAndCompute[Sharpness]:
        from .many_models import frozen_settings

        resolved = resolve_models(given, source, any_split="split" not in measured, together=False)
        read = read_sets(resolved, source, [one for some in sets or () for one in some])
        said = {} if whose is None else {"data_of": whose, **describe_sets(read)}
        selections = None
        if layers is not None:
            selections = selections_of(resolved.models[0].weights.layout, layers, "sharpness")
            said = {"layers": layers}

        def compute(attrs: dict[str, Any], work: Execution) -> Sharpness:
            from .many_models import MeasuredPlace, by_layer, sharpness_at
            from .one_model import SharpnessSettings

            places = [MeasuredPlace("", resolved.samples, resolved.models)]
            if selections is not None:
                places = by_layer(resolved.samples, resolved.models, _trained(selections, resolved.module, frozen))
            if sets is not None:
                pairs = list(zip(resolved.models, sets, strict=True))
                places = [
                    MeasuredPlace(name, samples, [model for model, some in pairs if _has(some, name)])
                    for name, (samples, _) in read.items()
                ]
            with work.progress("sharpness") as report:
                made = sharpness_at(
                    resolved.module,
                    places,
                    SharpnessSettings(**asked),
                    frozen=frozen,
                    compute=source.compute,
                    progress=report,
                    partial=work.keep,
                    provenance=attrs,
                )
            if selections is not None:
                return replace(made, models=_whole_last(made.models))
            return made if sets is None else replace(made, models=_by_model(made.models))

        return {**resolved.settings, **said, **asked, **frozen_settings(resolved.module, frozen)}, compute

    folder, name = place_of("sharpness", names_of(given))
    if layers is not None:
        name = fit_file_name(f"{name}.layers-{layers_file_word(layers)}")
    return single_result(Sharpness, folder, name if whose is None else f"{name}.data-of-{slug(whose)}", prepare)


def _trained(selections: Sequence[Selection], module: nn.Module, frozen: bool) -> list[Selection]:
    """Leave out single layers of which nothing is trained; of a pattern it is said when it is measured."""
    from ...evaluation.trainable_parameters import trained_parameters

    trained = None if frozen else trained_parameters(module)
    if trained is None or len(selections) < 3:
        return list(selections)
    return [one for one in selections if one.parameters & set(trained) or one.label == ALL_LAYERS]


def _whole_last(models: Sequence[Curvature]) -> tuple[Curvature, ...]:
    """Put each model's layers together, all of them last."""
    groups: dict[str, list[Curvature]] = {}
    for model in models:
        groups.setdefault(model.named, []).append(model)
    return tuple(model for whole, *parts in groups.values() for model in (*parts, whole))


def _has(sets: Sequence[SampleSet], name: str) -> bool:
    return any(one.name == name for one in sets)


def _by_model(models: Sequence[Curvature]) -> tuple[Curvature, ...]:
    """Put each model's places together; models, and the places of each, keep their order."""
    groups: dict[str, list[Curvature]] = {}
    for model in models:
        groups.setdefault(model.named, []).append(model)
    return tuple(model for group in groups.values() for model in group)


def _by_round(models: Sequence[ModelLike], rounds: str | None) -> list[ModelLike]:
    """A model each: those given, and for every whole run an address a round.

    Raises:
        FedscopeError: no model; rounds that a run does not have; rounds where no run is given.
    """
    if not models:
        raise FedscopeError("there is no model to measure; give at least one")
    whole = [
        isinstance(model, str) and "@" not in Path(model).name and Path(model).is_dir() and not is_model_folder(model)
        for model in models
    ]
    if rounds is not None and not any(whole):
        raise FedscopeError(
            f"--rounds {rounds} is for whole runs, but {names_of(models)[0]} names a model; give its run instead"
        )
    given: list[ModelLike] = []
    for model, is_run in zip(models, whole, strict=True):
        if is_run:
            numbers = parse_rounds(rounds or "last", open_run(model).rounds, model)
            given += [f"{model}@{number}" for number in numbers]
        else:
            given += expand(model) if isinstance(model, str) else [model]
    return given
