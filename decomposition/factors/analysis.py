"""Analysis: the factors of the global model's loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack, cast

from ...analysis.analysis import PreparedAnalysis, analysis, fit_file_name, single_result, slug_rounds
from ...analysis.rounds import Rounds, client_rounds
from ...analysis.runs import RunLike
from ...analysis.settings import EvaluationConfig, EvaluationSettings, refuse_unknown_choice
from ...checkpoints import FedscopeError
from ...checkpoints.models.layer_selections import layers_file_word
from ...training.inputs.statistics import refuse_unknown_statistics, statistics_word
from .. import Decomposition, LayerDecomposition
from ..draws.sources import REPLAYS
from .run import MODELS, DecompositionRequest, file_words, lacking_averages, runs_of

#: settings that are no part of the name of a result
USUAL = (REPLAYS, "global", "squared", "probabilities", "all")


@analysis
def decompose(
    runs: RunLike | Sequence[RunLike],
    *,
    rounds: Rounds = None,
    draws: str | None = None,
    of: str | Sequence[str] = "global",
    loss: str = "squared",
    outputs: str = "probabilities",
    on: str = "all",
    layers: str | None = None,
    normalization: str = "averaged",
    **measured: Unpack[EvaluationSettings],
) -> PreparedAnalysis[Decomposition | LayerDecomposition]:
    """Decompose the global model's loss: bias, variance, covariance and locality, adding up to what is measured.

    See :func:`~fedscope.decomposition.decompose_round` for the formulas of the squared loss, and
    :func:`~fedscope.decomposition.decompose_loss` for those of the others.

    Args:
        runs: one, or several side by side; ``RUN@60`` is a run with ``rounds=60``.
        rounds: which, or ``all`` with their clients; the first and last of these by default, with ``rounds:R`` the
            last, because R rounds come before it.
        draws: where the R draws of the cohort come from: ``local:R``, replays of the local training; ``rounds:R``, the
            last R rounds of one cohort; ``runs``, the runs themselves, which differ in their seed; ``none``, no draws
            but the recorded models alone, which have no variance and no covariance. By default ``local:4``, and of a
            run that another program trained ``none``.
        of: which average: ``global``, of the round's clients; ``averaged``, of all clients in the window of an average
            over rounds; ``both``, or a sequence of the two. Rounds without such an average are left out, which is said.
        loss: ``squared``, ``cross-entropy`` or ``zero-one``; only the squared one has all factors.
        outputs: ``probabilities`` or ``logits``, the outputs f(x) of a client that the squared loss averages.
        on: D, the training data of ``all`` clients, or of the ``cohort``, those that are averaged.
        layers: the locality of layers, when only these are averaged and the others stay the client's: ``each`` layer
            alone, or a pattern for several together, ``conv1,blocks.0.*`` or ``/^blocks/``; ``fedscope layers`` lists
            their names. The last row is of all layers together. The answer is a :class:`~fedscope.LayerDecomposition`;
            :func:`~fedscope.decomposition.round_layer_factors` has the formulas.
        normalization: where averages have BatchNorm statistics from: ``averaged`` as the weights are, or
            ``re-estimate``, measured on 2,000 training samples, or ``limit``.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``train``, which takes all
            clients' training data (the paper's D).

    Raises:
        FedscopeError: rounds or draws that cannot be had; a round by its number that has not the average; settings
            that would change nothing; runs with other data; layers that there are not, or of another than the squared
            loss.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> split = fedscope.decompose(run, rounds=2)
    >>> [row.factor for row in split.runs[0].rounds[0].rows][:2]
    ['train_bias', 'heter_bias']
    >>> folder.cleanup()

    Source: Zhou et al., "Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data",
    Theorem 1.
    """
    source = EvaluationConfig.of("train", measured)
    which = of if isinstance(of, str) else "both" if set(of) == set(MODELS["both"]) else ", ".join(of)
    refuse_unknown_choice("of", which, tuple(MODELS))
    refuse_unknown_choice("loss", loss, ("squared", "cross-entropy", "zero-one"))
    refuse_unknown_choice("outputs", outputs, ("probabilities", "logits"))
    refuse_unknown_choice("on", on, ("all", "cohort"))
    if loss != "squared" and outputs != "probabilities":
        raise FedscopeError(f"--outputs {outputs} is for the squared loss; leave it out with --loss {loss}")
    if layers is not None and loss != "squared":
        raise FedscopeError(f"--layers is for the locality, which --loss {loss} has not; leave one of them out")
    refuse_unknown_statistics(normalization)
    if layers is not None and normalization != "averaged":
        raise FedscopeError(
            f"--normalization {normalization} measures whole averages, and those by --layers are of "
            "parts; leave one of them out"
        )
    if on == "cohort" and source.split != "train":
        raise FedscopeError("--on cohort chooses among training data, and --split test has none; leave one of them out")
    found = runs_of(runs, rounds, draws, measured)
    opened, asked_rounds, drawn, source = found.runs, found.rounds, found.draws, found.source
    last = drawn.kind == "rounds"
    numbers = [client_rounds(run, own, last=last) for run, own in zip(opened, asked_rounds, strict=True)]
    if drawn.kind == "runs" and len({tuple(own) for own in numbers}) > 1:
        raise FedscopeError(
            f"--rounds {asked_rounds[0] or '(none given)'} means other rounds in other runs, but --draws runs needs "
            "the same; write numbers"
        )

    how = (which, cast(Any, loss), cast(Any, outputs), on)
    asked = DecompositionRequest(
        opened, numbers, drawn, found.groups, source, *how, layers=layers, normalization=normalization
    )
    for run in opened:
        asked.selections(run)  # what is wrong with them is said first
    notes = [found.note]
    if which != "global":
        of_runs = dict(zip((run.name for run in opened), zip(asked_rounds, numbers, strict=True), strict=True))
        notes += [lacking_averages(group[0], *of_runs[group[0].name], which) for group in found.groups]
    words = (str(drawn), "-".join(MODELS[which]), loss, outputs, on)
    special = [word.replace(":", "") for word in words if word not in USUAL] + statistics_word(normalization)
    names = file_words(opened[1:])
    what = "-".join([source.split, *special, *names, slug_rounds(asked_rounds[0] or ("last" if last else "1,last"))])
    name = f"decompose-{what}"
    if layers is not None:
        name = fit_file_name(f"{name}-layers-{layers_file_word(layers)}")
    kind: type[Decomposition | LayerDecomposition] = Decomposition if layers is None else LayerDecomposition
    note = "; ".join(filter(None, notes))
    return single_result(
        kind, opened[0].path / "figures", name, asked.ready, note=note, bring_up=cast(Any, asked.with_errors)
    )
