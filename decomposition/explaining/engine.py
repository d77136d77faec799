"""From a decomposition to an explanation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...checkpoints import FedscopeError
from ..results import Decomposition, RunFactors
from .between import differs_most
from .biases import heterogeneous_bias_falls, own_data
from .greatest import greatest_part
from .localities import weights_beat_outputs
from .models import averaging_over_rounds, better_than_clients, server_lowers
from .notes import notes_on
from .phases import phases
from .records import Statement
from .result import Explanation
from .scatter import scatter_is_small
from .similar import Similarity, more_alike
from .wording import label


def explain(
    result: Decomposition,
    *,
    lengths: Mapping[str, int] | None = None,
    similarity: Mapping[str, Sequence[Similarity]] | None = None,
    stand_ins: Mapping[str, str] | None = None,
) -> Explanation:
    """What a decomposition says of each run, and between runs, with a verdict on every claim.

    A verdict needs intervals that are apart: `supported` and `contradicted` are never said where those of the numbers
    compared overlap or do not exist; then it is `undecided`, with what would decide it. Which statements there are is
    in the functions that make them, one each.

    Args:
        result: of the squared error.
        lengths: rounds of each run, which its phases are thirds of; by default up to the last one decomposed.
        similarity: for runs of which it was measured, (round, mean over pairs of clients, standard error or
            None, number of minibatches).
        stand_ins: for runs that are draws of each other, `fma+s1+s2`, the one that similarity is of.

    Raises:
        FedscopeError: another loss; a run without rounds.

    >>> from fedscope.decomposition import FactorRow, RoundFactors
    >>> def round_of(number, bias):
    ...     rows = (FactorRow("heter_bias", "unbiased", bias, stderr_draws=0.01),)
    ...     return RoundFactors(number, "local:4", 4, True, "probabilities", 100, 10, True, True, rows, ())
    >>> run = RunFactors("ima", "global", (round_of(1, 0.8), round_of(60, 0.2)))
    >>> falls = explain(Decomposition((run,), "train", "local:4")).of("heterogeneous-bias-falls")
    >>> falls.verdict, falls.sentence
    ('supported', 'It is 0.80 ± 0.03 in round 1 and 0.20 ± 0.03 in round 60.')

    Source: Zhou et al., Section 5.3.5, which says it of the paper's runs; the verdicts are ours.
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
    statements = [
        statement
        for run in result.runs
        for statement in _of_run(
            run, ends[run.run], result.split, (similarity or {}).get(run.run), (stand_ins or {}).get(run.run, "")
        )
    ]
    statements += [differs_most(result.runs[0], other) for other in result.runs[1:]]
    return Explanation(
        runs=tuple(label(run) for run in result.runs),
        statements=tuple(statements),
        notes=notes_on(result, ends, stand_ins or {}),
        attrs=result.attrs,
    )


def _of_run(
    run: RunFactors, length: int, split: str, similarity: Sequence[Similarity] | None, stand_in: str
) -> Iterator[Statement]:
    name = label(run)
    thirds = phases(run.rounds, length)
    after = [phase for phase in thirds if phase.name != "early"]
    yield from (greatest_part(name, phase, split) for phase in thirds)
    yield own_data(name, after, split)
    yield heterogeneous_bias_falls(name, thirds, split)
    yield scatter_is_small(name, run.rounds)
    yield weights_beat_outputs(name, thirds)
    for made in (better_than_clients, server_lowers, averaging_over_rounds):
        statement = made(name, run.rounds)
        if statement is not None:
            yield statement
    if similarity is not None:
        yield more_alike(name, similarity, thirds, stand_in)
