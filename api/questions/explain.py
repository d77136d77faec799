"""What a decomposition says, in sentences with verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Unpack

from ..asking.checks import at_least
from ..asking.decomposing import Asked
from ..asking.draws import Draws, groups_of, parse_draws
from ..asking.names import slug
from ..asking.question import Part, Question, Ready, question
from ..asking.runs import Rounds, RunLike, asked_of, parse_rounds, refuse_other_data, refuse_replays
from ..asking.samples import common_samples, dataset_of, module_for, refuse_nameless
from ..asking.source import Measured, Source
from ..asking.work import ROUNDS, Report, Task, Work
from ..checkpoints import FedscopeError, Run, recorded_clients, rounds_with_clients
from ..decomposition import Decomposition
from ..decomposition.explaining import Explanation, last_early, spread_rounds

if TYPE_CHECKING:
    from ..decomposition.explaining import RoundSimilarity, RoundTests
    from ..training import Dataset


@question
def explain(
    runs: RunLike | Sequence[RunLike],
    *,
    rounds: Rounds = None,
    early: int | None = None,
    draws: str = "local:4",
    **measured: Unpack[Measured],
) -> Question[Explanation]:
    """What the loss of the averaged model is made of in each phase, on one page, and what the data do not decide.

    The answer holds the decomposition, too, which is that of :func:`fedscope.decompose`. See
    :func:`fedscope.decomposition.explaining.explain` for the verdicts.

    Args:
        runs: one, or several that are compared; ``RUN@60`` is a run with ``rounds=60``.
        rounds: which, or ``all``; about ten of those whose clients were recorded by default, more of the early ones.
        early: the last round of early training; by default a tenth of the rounds, at least 5 and at most a third.
        draws: where the R draws of the cohort come from, as for :func:`fedscope.decompose`; a verdict needs R = 3 or
            more, independent.
        measured: see :class:`~fedscope.asking.source.Measured`; ``split`` is ``train``, which takes all clients'
            training data.

    Raises:
        FedscopeError: rounds or draws that cannot be had; runs with other data.

    Source: Zhou et al., "Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data",
    Section 5.3, says what is called "Paper:", of its own runs; the verdicts are ours.
    """
    source, drawn = Source.of("train", measured), parse_draws(draws)
    if early is not None:
        at_least("early", early, 1)
    opened, asked_rounds = asked_of(runs, rounds)
    refuse_nameless(opened, source)
    if drawn.kind == "local":
        refuse_replays(opened, "--draws rounds:4, the last rounds of one cohort")
    refuse_other_data(opened)
    groups = groups_of(opened, drawn)
    numbers = [rounds_of(run, own, early, drawn) for run, own in zip(opened, asked_rounds, strict=True)]
    if drawn.kind == "runs":
        numbers = same_rounds(numbers)
    asked = Asked(opened, numbers, drawn, groups, source)
    firsts = {"+".join(run.name for run in group): group[0] for group in groups}
    lasts = {name: last_early(run.rounds[-1], early) for name, run in firsts.items()}
    # What decompose can be asked otherwise stands here too, so that its results are not taken for this one.
    settings = cache(asked.settings)

    def decomposed(attrs: list[dict[str, Any]], work: Work) -> list[Decomposition]:
        if len(opened) > 1:
            common_samples(opened, dataset_of(opened, source), source)  # refuses those with other data
        return [asked.answer(settings(), attrs[0], work)]

    def judged(_: list[dict[str, Any]], work: Work) -> list[Explanation]:
        from ..decomposition.explaining import explain

        rounds_by_run = dict(zip([run.name for run in opened], numbers, strict=True))
        dataset = dataset_of(opened, source)
        similarity: dict[str, Any] = {}
        compared: dict[str, Any] = {}
        with work.store(settings(), *ROUNDS) as store:
            for name, run in firsts.items():
                what = (run, rounds_by_run[run.name], dataset, source, settings())
                alike = work.each("similarity", similarities(*what), store)
                similarity[name] = [told for one in alike if (told := one.told) is not None]
                tests = work.each("test data", comparisons(*what), store)
                compared[name] = [comparison for one in tests for comparison in one.comparisons]
        page = explain(
            work.before[0],
            lengths={name: run.rounds[-1] for name, run in firsts.items()},
            early=early,
            similarity=similarity,
            compared=compared,
            stand_ins={name: run.name for name, run in firsts.items() if name != run.name},
        )
        return [page]

    parts: tuple[Part[Any], ...] = (
        Part(Decomposition, lambda: Ready([settings()], decomposed)),
        Part(
            Explanation,
            lambda: Ready([settings()], judged),
            beside=lambda base, before, again: Explanation.beside(base, before[0], lasts, again=again),
        ),
    )
    special = [] if str(drawn) == "local:4" else [str(drawn).replace(":", "")]
    names = [run.name for run in opened[1:]]
    what = "-".join([source.split, *special, *names, *([slug(asked_rounds[0])] if asked_rounds[0] else [])])
    folder = opened[0].path / "figures"
    return Question(folder, f"explain-{what}", parts, lambda results: results[-1], paged=Explanation.paged)


def similarities(
    run: Run, rounds: Sequence[int], dataset: Dataset, source: Source, settings: Mapping[str, Any]
) -> Iterator[Task[RoundSimilarity]]:
    """How similar the clients' outputs are on the samples of the factors, of rounds with two clients or more."""
    from ..decomposition.explaining import RoundSimilarity, outputs_similarity
    from ..decomposition.similarity import LEAST, minibatches, usual_batch

    samples, module = common_samples([run], dataset, source), module_for(run, source, dataset)
    if len(samples) < LEAST["unbiased"]:
        return
    seed = settings["seed"] or 0  # of the minibatches; what is not in the settings must not change the page
    how = {"seed": seed, "device": settings["device"], "precision": source.precision}
    batches = len(minibatches(len(samples), usual_batch(len(samples)), seed))

    def task(number: int, size: int) -> Task[RoundSimilarity]:
        def measure(report: Report) -> RoundSimilarity:
            def scaled(done: int, of: int) -> None:
                report(size * done // of, size)

            return outputs_similarity(module, samples, run.round(number), progress=scaled, **how)

        return Task(f"{run.path}@{number}", RoundSimilarity, measure, size)

    for number in rounds:
        if (clients := len(run.round(number).client_ids)) > 1:
            yield task(number, clients * batches)


def comparisons(
    run: Run, rounds: Sequence[int], dataset: Dataset, source: Source, settings: Mapping[str, Any]
) -> Iterator[Task[RoundTests]]:
    """The models of every round on test data."""
    from ..decomposition.explaining import RoundTests, round_tests

    samples, module = common_samples([run], dataset, replace(source, split="test")), module_for(run, source, dataset)
    how = {"device": settings["device"], "precision": source.precision}

    def task(number: int) -> Task[RoundTests]:
        def measure(report: Report) -> RoundTests:
            return round_tests(module, samples, run.round(number), progress=report, **how)

        return Task(f"{run.path}@{number} tested", RoundTests, measure, len(samples))

    return map(task, rounds)


def rounds_of(run: Run, rounds: str | None, early: int | None, draws: Draws) -> list[int]:
    """The rounds asked for; by default some of those whose clients were recorded.

    Raises:
        FedscopeError: rounds that the run does not have, no round that could be decomposed, or none after ``early``.
    """
    first = last_early(run.rounds[-1], early) if run.rounds else 0
    if rounds is not None:
        return parse_rounds(rounds, run.rounds, str(run.path))
    have = rounds_with_clients(run)
    if not have:
        recorded_clients(run, parse_rounds("last", run.rounds, str(run.path))[0])
    if draws.kind == "rounds":  # R - 1 rounds come before each
        have = have[draws.count - 1 :]
        if not have:
            raise FedscopeError(
                f"--draws {draws}: {run.path} has fewer than {draws.count} rounds with their clients; take fewer draws"
            )
    return spread_rounds(have, run.rounds[-1], first)


def same_rounds(numbers: Sequence[Sequence[int]]) -> list[list[int]]:
    """For runs that are draws of each other, the rounds that all have.

    Raises:
        FedscopeError: there is none.
    """
    common = sorted(set(numbers[0]).intersection(*numbers[1:]))
    if not common:
        raise FedscopeError("--draws runs: the runs have no round in common; name with --rounds some that all have")
    return [common for _ in numbers]
