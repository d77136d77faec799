"""Analysis: the sharpness of the loss at models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, one, place_of
from ...analysis.execution import Execution
from ...analysis.runs import Rounds, open_run, parse_rounds, rounds_text
from ...analysis.settings import EvaluationConfig, EvaluationSettings
from ...checkpoints import FedscopeError
from ...checkpoints.models.files import is_model_folder
from ...training.inputs.models import ModelLike, as_list, expand, names_of, resolve_models
from .. import Sharpness


@analysis
def sharpness(
    models: ModelLike | Sequence[ModelLike],
    *,
    rounds: Rounds = None,
    rho: float = 0.05,
    relative: float = 0.1,
    draws: int = 10,
    top: int = 5,
    probes: int = 10,
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
    given = _by_round(as_list(models), rounds_text(rounds))
    asked: dict[str, Any] = {
        **{"rho": rho, "relative": relative, "draws": draws, "seed": source.seed, "hessian": hessian},
        **{"top": top, "probes": probes, "density": density if hessian else 0},
    }

    def prepare() -> SettingsAndCompute[Sharpness]:
        from .many_models import frozen_settings

        posed = resolve_models(given, source, any_split="split" not in measured, together=False)

        def compute(attrs: dict[str, Any], work: Execution) -> Sharpness:
            from .many_models import sharpness
            from .one_model import SharpnessSettings

            with work.progress("sharpness") as report:
                return sharpness(
                    posed.module,
                    posed.samples,
                    posed.models,
                    SharpnessSettings(**asked),
                    frozen=frozen,
                    compute=source.compute,
                    progress=report,
                    partial=work.keep,
                    provenance=attrs,
                )

        return {**posed.settings, **asked, **frozen_settings(posed.module, frozen)}, compute

    return one(Sharpness, *place_of("sharpness", names_of(given)), prepare)


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
