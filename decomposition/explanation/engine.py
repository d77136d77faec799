"""From a decomposition to an explanation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...checkpoints import FedscopeError
from ..factors.result import Decomposition, RunFactors
from .between import differs_most
from .biases import own_data
from .comparing import Comparison
from .greatest import greatest_part
from .localities import locality_adds
from .models import averaging_over_rounds, better_than_clients, server_lowers
from .moving import bias_and_error_early, bias_and_error_later, distance_and_error, errors_of
from .notes import notes_on
from .phases import Phase, last_early, phases
from .records import Statement
from .result import Explanation
from .scatter import covariance_is_small, variance_and_clients
from .similar import Similarity, outputs_differ
from .wording import label


def explain(
    result: Decomposition,
    *,
    lengths: Mapping[str, int] | None = None,
    early: int | None = None,
    similarity: Mapping[str, Sequence[Similarity]] | None = None,
    compared: Mapping[str, Sequence[Comparison]] | None = None,
    stand_ins: Mapping[str, str] | None = None,
) -> Explanation:
    """What a decomposition says of each run, and between runs, with a verdict on every claim.

    A verdict needs intervals that are apart: `supported` and `contradicted` are never said where those of the numbers
    compared overlap or do not exist; then it is `undecided`, with what would decide it. Which statements there are is
    in the functions that make them, one each.

    Args:
        result: of the squared error.
        lengths: rounds of each run, which its phases are parts of; by default up to the last one decomposed.
        early: the last early round; by default a tenth of the run's rounds, at least 5 and at most a third.
        similarity: for runs of which it was measured, (round, mean over pairs of clients, standard error or
            None, number of minibatches).
        compared: for runs of which they were tested, the average of a round's clients against each of them, and the
            average over rounds against the global model (:func:`.comparing.compare_models`).
        stand_ins: for runs that are draws of each other, `fma+s1+s2`, the one that similarity and tests are of.

    Raises:
        FedscopeError: another loss; a run without rounds, or without one after the early ones.

    >>> from fedscope.decomposition import FactorRow, RoundFactors
    >>> def round_of(number, bias):
    ...     rows = (FactorRow("heter_bias", "unbiased", bias, stderr_draws=0.01),)
    ...     return RoundFactors(number, "local:4", 4, True, "probabilities", 100, 10, True, True, rows, ())
    >>> run = RunFactors("ima", "global", (round_of(1, 0.8), round_of(60, 0.2)))
    >>> covariance = explain(Decomposition((run,), "train", "local:4")).of("covariance-is-small")
    >>> covariance.verdict, covariance.decide
    ('undecided', '--draws runs, with runs that differ in their seed, measures it.')

    Source: Zhou et al., Section 5.3, of which 5.3.5 is the summary, says what is called "Paper:", of its own runs; the
    verdicts are ours.
    """
    if result.loss != "squared":
        raise FedscopeError(
            f"the decomposition is of the {result.loss} loss, but only factors of the squared error are explained; "
            "decompose that"
        )
    for run in result.runs:
        if not run.rounds:
            raise FedscopeError(f"{run.run} has no decomposed round, so there is nothing to explain; decompose some")
    ends = {run.run: max((lengths or {}).get(run.run, 0), *(one.round for one in run.rounds)) for run in result.runs}
    firsts = {run.run: last_early(ends[run.run], early) for run in result.runs}
    statements = [
        statement
        for run in result.runs
        for statement in _of_run(
            run,
            phases(run.rounds, ends[run.run], early),
            result.split,
            (similarity or {}).get(run.run),
            (compared or {}).get(run.run, ()),
            (stand_ins or {}).get(run.run, ""),
        )
    ]
    statements += [differs_most(result.runs[0], other) for other in result.runs[1:]]
    notes = notes_on(result, ends, early, compared or {}, stand_ins or {})
    return Explanation(result, tuple(statements), notes, firsts)


def _of_run(
    run: RunFactors,
    parts: Sequence[Phase],
    split: str,
    similarity: Sequence[Similarity] | None,
    compared: Sequence[Comparison],
    stand_in: str,
) -> Iterator[Statement]:
    name, errors = label(run), errors_of(run)
    early, later = parts[0], parts[1:]
    yield from (greatest_part(name, phase, split) for phase in parts)
    yield own_data(name, run.rounds, split)
    yield bias_and_error_early(name, early, errors, split)
    yield bias_and_error_later(name, later, errors, split)
    yield distance_and_error(name, later, errors, split)
    yield variance_and_clients(name, run.rounds)
    yield covariance_is_small(name, run.rounds)
    yield locality_adds(name, parts)
    for statement in (
        better_than_clients(name, compared, stand_in),
        server_lowers(name, run.rounds),
        averaging_over_rounds(name, compared, stand_in),
    ):
        if statement is not None:
            yield statement
    if similarity is not None:
        yield outputs_differ(name, similarity, run.rounds, stand_in)
