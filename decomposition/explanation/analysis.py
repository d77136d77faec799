"""Analysis: a decomposition in sentences with verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Unpack

from ...analysis.analysis import PreparedAnalysis, PreparedStep, Step, analysis, slug_rounds
from ...analysis.execution import ROUNDS, Execution, Report, WorkUnit
from ...analysis.rounds import Rounds, parse_rounds
from ...analysis.runs import RunLike, cannot_replay
from ...analysis.settings import EvaluationConfig, EvaluationSettings, at_least
from ...checkpoints import FedscopeError, Run, recorded_clients, rounds_with_clients
from ...training.inputs.samples import common_samples, dataset_of, module_for
from ...training.inputs.statistics import measured_statistics, refuse_unknown_statistics, statistics_word
from .. import Decomposition
from ..draws.sources import REPLAYS, Draws
from ..factors.run import DecompositionRequest, file_words, runs_of
from .phases import last_early, spread_rounds
from .result import Explanation

if TYPE_CHECKING:
    from ...training import Dataset
    from .context_measures import RoundMeasures


@analysis
def explain(
    runs: RunLike | Sequence[RunLike],
    *,
    rounds: Rounds = None,
    early: int | None = None,
    draws: str | None = None,
    normalization: str = "averaged",
    **measured: Unpack[EvaluationSettings],
) -> PreparedAnalysis[Explanation]:
    """Explain what makes up the loss of the averaged model in each phase, on one page, and what the data do not decide.

    The answer holds the decomposition, too, which is that of :func:`fedscope.decompose`. See
    :func:`fedscope.decomposition.explanation.explain.explain` for the verdicts, and
    :func:`fedscope.decomposition.explanation.intervals.mean_of_clients` for intervals over clients.

    Args:
        runs: one, or several that are compared; ``RUN@60`` is a run with ``rounds=60``.
        rounds: which, or ``all``; about ten of those whose clients were recorded by default, more of the early ones.
        early: the last round of early training; by default a tenth of the rounds that the run is to have, at least 5
            and at most a third.
        draws: where the R draws of the cohort come from, as for :func:`fedscope.decompose`; a verdict needs R = 3 or
            more, independent, or ``none``, with intervals over samples alone. By default ``local:4``, and of a run
            that another program trained ``none``.
        normalization: where averages have BatchNorm statistics from: ``averaged`` as the weights are, or
            ``re-estimate``, measured on 2,000 training samples, or ``limit``.
        measured: see :class:`~fedscope.analysis.settings.EvaluationSettings`; ``split`` is ``train``, which takes all
            clients' training data.

    Raises:
        FedscopeError: rounds or draws that cannot be had; runs with other data.

    >>> import tempfile, fedscope
    >>> folder = tempfile.TemporaryDirectory()
    >>> run = fedscope.train(clients=4, participation=1, rounds=2, out=f"{folder.name}/run")
    >>> [one.claim for one in fedscope.explain(run).statements][:3]
    ['greatest-part/early', 'greatest-part/late', 'own-data']
    >>> folder.cleanup()

    Source: Zhou et al., "Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data",
    Section 5.3, says what is called "Paper:", of its own runs; the verdicts are ours.
    """
    if early is not None:
        at_least("early", early, 1)
    refuse_unknown_statistics(normalization)
    found = runs_of(runs, rounds, draws, measured, "explain")
    opened, asked_rounds, groups = found.runs, found.rounds, found.groups
    drawn, source = found.draws, found.source
    numbers = [rounds_of(run, own, early, drawn) for run, own in zip(opened, asked_rounds, strict=True)]
    if drawn.kind == "runs":
        numbers = same_rounds(numbers)
    by_run = dict(zip((run.name for run in opened), numbers, strict=True))
    firsts = {"+".join(run.name for run in group): group[0] for group in groups}
    lengths = {name: length_of(run) for name, run in firsts.items()}
    lasts = {name: last_early(length, early) for name, length in lengths.items()}
    # What decompose can be asked otherwise stands here too, so that its results are not taken for this one.
    request = DecompositionRequest(opened, numbers, drawn, groups, source, normalization=normalization)
    ready = cache(request.ready)

    def decomposed(attrs: list[dict[str, Any]], work: Execution) -> list[Decomposition]:
        from ...evaluation.tasks import require_classes

        require_classes(dataset_of(opened, source).samples("test"), "explain")
        if len(opened) > 1:
            common_samples(opened, dataset_of(opened, source), source)  # refuses those with other data
        made = ready()[1](attrs[0], work)
        assert isinstance(made, Decomposition)
        return [made]

    def judged(attrs: list[dict[str, Any]], work: Execution) -> list[Explanation]:
        from .explain import explain

        dataset, (settings, _) = dataset_of(opened, source), ready()
        with work.store(settings, *ROUNDS) as store:
            found = {
                name: work.each(
                    "models", measures(run, by_run[run.name], dataset, source, settings, normalization), store
                )
                for name, run in firsts.items()
            }
        page = explain(
            work.before[0],
            lengths=lengths,
            recorded={name: run.rounds[-1] for name, run in firsts.items()},
            kept={"+".join(run.name for run in group): decomposable(group, drawn) for group in groups},
            early=early,
            similarity={name: [one.similarity for one in own if one.similarity] for name, own in found.items()},
            compared={name: [other for one in own for other in one.comparisons] for name, own in found.items()},
            stand_ins={name: run.name for name, run in firsts.items() if name != run.name},
            unknown_owners={name for name, run in firsts.items() if run.partition is None},
            undrawn={"+".join(run.name for run in group): undrawn(group, drawn) for group in groups},
            unreplayed={name for name, run in firsts.items() if cannot_replay([run])},
        )
        return [page]

    parts: tuple[Step[Any], ...] = (
        Step(Decomposition, lambda: PreparedStep([ready()[0]], decomposed), bring_up=request.with_errors),
        Step(
            Explanation,
            lambda: PreparedStep([ready()[0]], judged),
            read_back=lambda base, before, again: Explanation.beside(base, before[0], lasts, again=again),
        ),
    )
    special = ([] if str(drawn) == REPLAYS else [str(drawn).replace(":", "")]) + statistics_word(normalization)
    names = file_words(opened[1:])
    what = "-".join([source.split, *special, *names, *([slug_rounds(asked_rounds[0])] if asked_rounds[0] else [])])
    folder = opened[0].path / "figures"
    return PreparedAnalysis(
        folder, f"explain-{what}", parts, lambda results: results[-1], paged=tuple(Explanation.paged), note=found.note
    )


def measures(
    run: Run,
    rounds: Sequence[int],
    dataset: Dataset,
    source: EvaluationConfig,
    settings: Mapping[str, Any],
    normalization: str = "averaged",
) -> Iterator[WorkUnit[RoundMeasures]]:
    """Measures of a run's rounds besides their factors: on the factors' samples, and on test data."""
    from .context_measures import RoundMeasures, measure_round

    samples, module = common_samples([run], dataset, source), module_for(run, source, dataset)
    tested = common_samples([run], dataset, replace(source, split="test"))
    # of the minibatches; what is not in the settings must not change the page
    how: dict[str, Any] = {"seed": settings["seed"] or 0, "compute": source.compute}
    how["measured"] = measured_statistics(module, dataset, source, normalization)

    def task(number: int) -> WorkUnit[RoundMeasures]:
        def measure(report: Report) -> RoundMeasures:
            return measure_round(module, samples, tested, run.round(number), progress=report, **how)

        return WorkUnit(f"{run.path}@{number}", RoundMeasures, measure, len(tested))

    return map(task, rounds)


def rounds_of(run: Run, rounds: str | None, early: int | None, draws: Draws) -> list[int]:
    """Return the rounds asked for; by default some of those whose clients were recorded.

    Raises:
        FedscopeError: rounds that the run does not have, no round that could be decomposed, or none after ``early``.
    """
    if run.rounds:
        last_early(run.rounds[-1], early)  # refuses what leaves no round after it
    if rounds is not None:
        return parse_rounds(rounds, run.rounds, str(run.path))
    if not rounds_with_clients(run):
        recorded_clients(run, parse_rounds("last", run.rounds, str(run.path))[0])
    have = decomposable([run], draws)
    if not have:
        raise FedscopeError(
            f"--draws {draws}: {run.path} has fewer than {draws.count} rounds with their clients; take fewer draws"
        )
    return spread_rounds(have, length_of(run), early)


def decomposable(runs: Sequence[Run], draws: Draws) -> list[int]:
    """List the rounds that can be decomposed: those whose clients are there in each of the runs, which are draws of
    each other; of draws from rounds R - 1 of these come before."""
    return _with_clients(runs)[draws.count - 1 :] if draws.kind == "rounds" else _with_clients(runs)


def undrawn(runs: Sequence[Run], draws: Draws) -> list[int]:
    """List the rounds whose clients are there, and that cannot be decomposed: of draws from rounds the first R - 1."""
    return _with_clients(runs)[: draws.count - 1] if draws.kind == "rounds" else []


def _with_clients(runs: Sequence[Run]) -> list[int]:
    return sorted(set.intersection(*(set(rounds_with_clients(run)) for run in runs)))


def length_of(run: Run) -> int:
    """Return the rounds that a run is to have, which its phases are parts of: what is late does not depend on how far
    it is. Of one that does not say it, or has gone on since, those that it has."""
    return max(run.planned or 0, run.rounds[-1])


def same_rounds(numbers: Sequence[Sequence[int]]) -> list[list[int]]:
    """Select, for runs that are draws of each other, the rounds that all have.

    Raises:
        FedscopeError: there is none.
    """
    common = sorted(set(numbers[0]).intersection(*numbers[1:]))
    if not common:
        raise FedscopeError("--draws runs: the runs have no round in common; name with --rounds some that all have")
    return [common for _ in numbers]
