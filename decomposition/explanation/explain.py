"""A verdict on every claim, from a decomposition."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

from ...checkpoints import FedscopeError
from ..factors.result import Decomposition
from .claims import BETWEEN, CLAIMS
from .phases import last_early, phases
from .result import Explanation
from .statements import Evidence
from .text_page import notes_on
from .wording import label

if TYPE_CHECKING:
    from .context_measures import ModelComparison, Similarity


def explain(
    result: Decomposition,
    *,
    lengths: Mapping[str, int] | None = None,
    recorded: Mapping[str, int] | None = None,
    kept: Mapping[str, Sequence[int]] | None = None,
    early: int | None = None,
    similarity: Mapping[str, Sequence[Similarity]] | None = None,
    compared: Mapping[str, Sequence[ModelComparison]] | None = None,
    stand_ins: Mapping[str, str] | None = None,
    unknown_owners: Container[str] = (),
    undrawn: Mapping[str, Sequence[int]] | None = None,
    unreplayed: Container[str] = (),
) -> Explanation:
    """Judge every claim on each run of a decomposition, and between runs.

    A verdict needs intervals that are apart: `supported` and `contradicted` are never said where those of the numbers
    compared overlap or do not exist; then it is `undecided`, with what would decide it. Which claims there are is in
    `CLAIMS`, and when each is supported or contradicted in the function that judges it.

    Args:
        result: of the squared error.
        lengths: rounds that each run is to have, which its phases are parts of; by default up to the last one
            decomposed.
        recorded: the last round that each run has now; by default all.
        kept: the rounds of each run that can be decomposed; by default all. Remedies name no other.
        early: the last early round; by default a tenth of the run's rounds, at least 5 and at most a third.
        similarity: for runs of which it was measured, (round, mean over pairs of clients, standard error or
            None, number of minibatches).
        compared: for runs of which they were tested, the average of a round's clients against each of them, and the
            average over rounds against the global model (:func:`.context_measures.compare_models`).
        stand_ins: for runs that are draws of each other, `fma+s1+s2`, the one that `similarity` and `compared` are of.
        unknown_owners: runs that do not say which client holds which samples.
        undrawn: the rounds of each run whose clients are there, but not those of the rounds before them that draws
            from rounds take.
        unreplayed: runs whose local training cannot be done again.

    Raises:
        FedscopeError: another loss; a run without rounds, or without one after the early ones.

    >>> from fedscope.decomposition import FactorRow, RoundFactors, RunFactors
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
    known = [
        Evidence(
            run,
            phases(run.rounds, ends[run.run], early),
            "" if run.run in unknown_owners else result.split,
            (similarity or {}).get(run.run),
            (compared or {}).get(run.run, ()),
            (stand_ins or {}).get(run.run, ""),
            (recorded or {}).get(run.run, ends[run.run]),
            (kept or {}).get(run.run),
            (undrawn or {}).get(run.run, ()),
            run.run not in unreplayed,
        )
        for run in result.runs
    ]
    judged = [claim.judged(label(evidence.run), evidence) for evidence in known for claim in CLAIMS]
    first = known[0]
    judged += [BETWEEN.judged(f"{label(first.run)}, {label(other.run)}", first, other) for other in known[1:]]
    statements = tuple(statement for statement in judged if statement is not None)
    return Explanation(result, statements, tuple(notes_on(result, known, statements, early)), firsts)
