"""Losses along segments in weight space."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, Unpack

import numpy as np

from ...analysis.analysis import PreparedAnalysis, SettingsAndCompute, analysis, fit_file_name, one, place_of
from ...analysis.execution import Execution
from ...analysis.settings import NORMALIZATIONS, EvaluationConfig, EvaluationSettings, at_least, refuse_unknown_choice
from ...checkpoints import FedscopeError
from ...checkpoints.models.layer_selections import layers_file_word
from ...training.inputs.models import (
    ModelLike,
    as_list,
    calibration_of,
    calibration_settings,
    clients_of,
    names_of,
    resolve_models,
)
from .. import Connectivity, LayerLine, Line
from ..alignment.step import align_posed, refuse_unknown_align
from ..run_alone import choose_line, run_alone


@analysis
def line(
    models: ModelLike | Sequence[ModelLike],
    *,
    clients: bool = False,
    layers: str | None = None,
    points: int | None = None,
    range: Sequence[float] | None = None,
    normalization: str = "interpolate",
    align: str = "none",
    **measured: Unpack[EvaluationSettings],
) -> PreparedAnalysis[Line | LayerLine]:
    """Losses along the segment between two models, L(β w_A + (1−β) w_B): β = 0 is B and β = 1 is A.

    Args:
        models: ``[A, B]``, more of them for several curves, ``[A, B, C, D]`` or ``[(A, B), (C, D)]``: addresses
            (``runs/ima@40``, ``runs/ima@last/global``, ``runs/ima@40/client-17``), files, ``nn.Module`` s or state
            dicts. ``RUN@ROUND`` with ``clients``. A run alone is the line from the start of its last recorded round to
            the server's model after it.
        clients: linear mode connectivity: the loss barriers between all pairs of a round's clients, as a heat map.
        layers: only these layers move between A and B, and the others stay at A and, in second lines, at B: ``each``
            layer alone, ``cumulative`` for the first one, the first two and so on, or a pattern for several together,
            ``conv1,blocks.0.*`` or ``/^blocks/``. ``fedscope layers`` lists their names. The answer is a
            :class:`~fedscope.LayerLine`.
        points: on a line; 81, and 11 with ``clients`` or ``layers``.
        range: the ends of the lines, as β; −0.5 and 1.5, and 0 and 1 with ``clients`` or ``layers``.
        normalization: where BatchNorm statistics come from: ``interpolate``, ``re-estimate`` or ``keep``.
        align: bring the units of all models into the order of the first one's before, by their ``weights`` or their
            ``activations``; see :func:`fedscope.align`.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``test``, and ``data`` and
            ``model`` are needed where no model is of a run.

    Raises:
        FedscopeError: models that are no pairs, or the same; models of different architectures; an empty range; layers
            that there are not, or that are the same in both models.

    >>> import fedscope, torch
    >>> nets = [torch.nn.Linear(2, 2) for _ in range(2)]
    >>> x = torch.randn(40, 2)
    >>> line = fedscope.line(nets, data=(x, (x[:, 0] > 0).long()), points=5, range=(0, 1))
    >>> line.beta, bool(line.barrier[0] >= 0)
    (array([0.  , 0.25, 0.5 , 0.75, 1.  ]), True)

    Source: Zhou et al., "Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data",
    Figures 5b, 5c, 7c; Frankle et al., "Linear Mode Connectivity and the Lottery Ticket Hypothesis", ICML 2020.
    """
    source = EvaluationConfig.of("test", measured)
    refuse_unknown_choice("normalization", normalization, NORMALIZATIONS)
    refuse_unknown_align(align)
    given, note = as_list(models), ""
    if layers is not None and clients:
        raise FedscopeError("--layers and --clients are two cuts of a line; give one of them")
    if not clients and len(given) % 2 and (path := run_alone(given)):
        chosen = choose_line(path)
        given, note = list(chosen.models), chosen.said
    asked = clients_of(given) if clients else given
    many = clients or layers is not None
    count = points if points is not None else 11 if many else 81
    at_least("points", count, 3)
    low, high = range if range is not None else (0.0, 1.0) if many else (-0.5, 1.5)
    if not clients and (len(given) % 2 or not given):
        raise FedscopeError(
            f"a line needs pairs of models, but got {len(given)}; give A B [A B ...], a run alone, or RUN@ROUND and "
            "--clients"
        )
    if layers is not None and len(given) != 2:
        raise FedscopeError(f"--layers takes one pair of models, A B, but got {len(given)} models; ask for each alone")
    if not low < high:
        raise FedscopeError(f"--range {low:g} {high:g} is upside down; give the smaller end first")

    def prepare() -> SettingsAndCompute[Line | LayerLine]:
        posed = resolve_models(asked, source)
        settings = {
            **posed.settings,
            "points": count,
            "range": [low, high],
            "normalization": normalization,
            **calibration_settings(posed, source, normalization),
            **({"layers": layers} if layers is not None else {}),
            **({"align": align} if align != "none" else {}),
        }

        def compute(attrs: dict[str, Any], work: Execution) -> Line | LayerLine:
            from ... import landscape

            models = align_posed(posed, source, align)
            pairs = zip(models[::2], models[1::2], strict=False)
            betas = landscape.betas_on((low, high), count)
            with work.progress("line") as report:
                measured: dict[str, Any] = {
                    "betas": np.union1d(betas, [0.5]) if clients else betas,
                    "normalization": normalization,
                    "calibration": calibration_of(posed, source, normalization),
                    "compute": source.compute,
                    "progress": report,
                    "partial": work.keep,
                    "provenance": attrs,
                }
                if layers is not None:
                    pair = (models[0], models[1])
                    return landscape.layer_lines(posed.module, posed.samples, pair, layers=layers, **measured)
                lines = landscape.line(
                    posed.module,
                    posed.samples,
                    list(combinations(models, 2) if clients else pairs),
                    **measured,
                )
            return Connectivity(**vars(lines)) if clients else lines

        return settings, compute

    kind: type[Line | LayerLine] = LayerLine if layers is not None else Connectivity if clients else Line
    folder, name = place_of("line-clients" if clients else "line", names_of(given))
    if layers is not None:
        name = fit_file_name(f"{name}-{layers_file_word(layers)}")
    if align != "none":
        name = fit_file_name(f"{name}-aligned-{align}")
    return one(kind, folder, name, prepare, note=note)
