"""Losses along segments in weight space."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from ...analysis.analysis import (
    PreparedAnalysis,
    analysis,
    fit_file_name,
    place_of,
    single_result,
    slug_rounds,
)
from ...analysis.rounds import Rounds, rounds_text
from ...analysis.settings import (
    NORMALIZATIONS,
    EvaluationConfig,
    EvaluationSettings,
    at_least,
    read_range,
    refuse_unknown_choice,
)
from ...checkpoints import FedscopeError, Run
from ...checkpoints.models.layer_selections import layers_file_word, selections_of
from ...training.inputs.data_of import training_split
from ...training.inputs.models import (
    ModelLike,
    as_list,
    clients_of,
    names_of,
)
from .. import Connectivity, LayerLine, LayerRounds, Line
from ..alignment.step import refuse_unknown_align
from ..run_alone import ChosenRounds, choose_line, choose_lines, run_alone
from .requests import LayerRoundsRequest, LineSettings, PairsRequest
from .whose_data import asked_sets, named_after


@analysis
def line(
    models: ModelLike | Sequence[ModelLike],
    *,
    clients: bool = False,
    layers: str | None = None,
    rounds: Rounds = None,
    data_of: str | int | Sequence[int] | None = None,
    points: int | None = None,
    range: Sequence[float] | None = None,
    normalization: str = "interpolate",
    align: str = "none",
    **measured: Unpack[EvaluationSettings],
) -> PreparedAnalysis[Line | LayerLine | LayerRounds]:
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
        rounds: of a run: the line from each round's start to the server's model after it, or between its first two
            clients where no round has both; which, or ``all`` that have the two. With ``layers`` the answer is a
            :class:`~fedscope.LayerRounds`.
        data_of: measure on clients' own training data, a curve each: numbers, ``client-7``, or ``clients``, those among
            the models; ``own``, where one client is; ``all`` clients' data; or ``every`` client of the round and all.
            With ``clients`` or ``layers`` one set of samples.
        points: on a line; 81, and 11 with ``clients`` or ``layers``.
        range: the ends of the lines, as β; −0.5 and 1.5, and 0 and 1 with ``clients`` or ``layers``.
        normalization: where BatchNorm statistics come from: ``interpolate``, ``re-estimate`` or ``keep``.
        align: bring the units of all models into the order of the first one's before, by their ``weights`` or their
            ``activations``; see :func:`fedscope.align`.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``test``, and ``data`` and
            ``model`` are needed where no model is of a run.

    Raises:
        FedscopeError: models that are no pairs, or the same; models of different architectures; an empty range; layers
            that there are not, or that are the same in both models; rounds of no run, or that lack their two models.

    >>> import fedscope, torch
    >>> nets = [torch.nn.Linear(2, 2) for _ in range(2)]
    >>> x = torch.randn(40, 2)
    >>> line = fedscope.line(nets, data=(x, (x[:, 0] > 0).long()), points=5, range=(0, 1))
    >>> line.beta, bool(line.barrier[0] >= 0)
    (array([0.  , 0.25, 0.5 , 0.75, 1.  ]), True)

    Source: Zhou et al., "Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data",
    Figures 5b, 5c, 7c; Frankle et al., "Linear Mode Connectivity and the Lottery Ticket Hypothesis", ICML 2020.
    """
    whose = rounds_text(data_of)
    source = EvaluationConfig.of("test" if whose is None else "train", measured)
    training_split(whose, source)
    refuse_unknown_choice("normalization", normalization, NORMALIZATIONS)
    refuse_unknown_align(align)
    given, note = as_list(models), ""
    if layers is not None and clients:
        raise FedscopeError("--layers and --clients are two cuts of a line; give one of them")
    many = clients or layers is not None
    count = points if points is not None else 11 if many else 81
    at_least("points", count, 3)
    low, high = (0.0, 1.0) if many else (-0.5, 1.5)
    if range is not None:
        low, high = read_range(range, "from, to")
    if not low < high:
        raise FedscopeError(f"--range {low:g} {high:g} is upside down; give the smaller end first")
    asked_rounds = rounds_text(rounds)
    if asked_rounds is not None:
        path = None if clients else run_alone(given)
        if path is None:
            what = "--clients" if clients else " ".join(names_of(given))
            raise FedscopeError(
                f"--rounds {asked_rounds} draws a line in each round of one run, and does not go with {what}; give RUN "
                "alone"
            )
        over = choose_lines(path, asked_rounds)
        if layers is not None:
            ends = [model for pair in over.pairs.values() for model in pair]
            how = LineSettings(
                count, (low, high), normalization, align, layers, source, asked_sets(ends, source, whose, "--layers")
            )
            return _by_round(path, over, asked_rounds, how, whose)
        given, note = [model for pair in over.pairs.values() for model in pair], over.left_out
    elif not clients and len(given) % 2 and (path := run_alone(given)):
        chosen = choose_line(path)
        given, note = list(chosen.models), chosen.said
    asked = clients_of(given) if clients else given
    if not clients and (len(given) % 2 or not given):
        raise FedscopeError(
            f"a line needs pairs of models, but got {len(given)}; give A B [A B ...], a run alone, or RUN@ROUND and "
            "--clients"
        )
    if layers is not None and len(given) != 2:
        raise FedscopeError(f"--layers takes one pair of models, A B, but got {len(given)} models; ask for each alone")

    one_set = "--clients" if clients else "--layers" if layers is not None else ""
    how = LineSettings(
        count, (low, high), normalization, align, layers, source, asked_sets(asked, source, whose, one_set)
    )
    kind: type[Line | LayerLine | LayerRounds] = LayerLine if layers is not None else Connectivity if clients else Line
    folder, name = place_of("line-clients" if clients else "line", names_of(given))
    if asked_rounds is not None:
        name = fit_file_name(f"line-rounds-{slug_rounds(asked_rounds)}")
    if layers is not None:
        name = fit_file_name(f"{name}-{layers_file_word(layers)}")
    if align != "none":
        name = fit_file_name(f"{name}-aligned-{align}")
    return single_result(kind, folder, named_after(name, whose), PairsRequest(asked, how, clients).ready, note=note)


def _by_round(
    path: str, over: ChosenRounds, rounds: str, how: LineSettings, whose: str | None
) -> PreparedAnalysis[Line | LayerLine | LayerRounds]:
    """The barriers of layers in each of a run's rounds."""
    assert how.layers is not None
    selections_of(Run.open(path).layout, how.layers, "line", statistics=True, cumulative=True)
    kind: type[Line | LayerLine | LayerRounds] = LayerRounds
    name = fit_file_name(f"line-rounds-{slug_rounds(rounds)}-layers-{layers_file_word(how.layers)}")
    if how.align != "none":
        name = fit_file_name(f"{name}-aligned-{how.align}")
    return single_result(kind, Path(path) / "figures", named_after(name, whose), LayerRoundsRequest(over, how).ready)
