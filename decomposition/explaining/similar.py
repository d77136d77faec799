"""What is said of the clients' similarity, measured apart from the decomposition."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import RoundFactors
from .cohorts import change
from .intervals import quantile
from .phases import Phase
from .records import Reading, Statement, Verdict
from .wording import capital, in_rounds, shown

#: (round, mean similarity of the clients' pairs, its standard error or None, over how many minibatches)
Similarity = tuple[int, float, float | None, int]


def more_alike(run: str, similarity: Sequence[Similarity], phases: Sequence[Phase], of: str = "") -> Statement:
    """The clients' mean similarity (CKA) in the first against the last round: 95 % by t on B - 1 degrees of freedom of
    the jackknife over B minibatches. Where these rounds have different clients, the first third of the run against the
    last (:func:`.cohorts.change`). `of` names the run that was measured, where `run` are several."""
    values = []
    for number, mean, error, batches in sorted(similarity):
        half = None if error is None else quantile(batches - 1) * error
        values.append(
            Reading("similarity", number, mean, *((None, None) if half is None else (mean - half, mean + half)))
        )
    verdict: Verdict = "undecided"
    decide = ""
    compared: tuple[Reading, ...] = ()
    if len(values) < 2:
        sentence = f"It is {shown(values[0])} in round {values[0].round}." if values else "It has a value in no round."
        decide = _another([one for phase in phases for one in phase.rounds])
    else:
        first, last = values[0], values[-1]
        moved = change(values, phases)
        verdict = "supported" if moved.sign > 0 else "contradicted" if moved.sign < 0 else "undecided"
        sentence = f"Their mean CKA is {shown(first)} in round {first.round} and {shown(last)} in round {last.round}."
        if any(value.half is not None for value in values):
            sentence += " Here ± is over minibatches of samples, of the recorded clients alone."
        sentence += f" {moved.sentence}" if moved.sentence else ""
        if verdict == "undecided":
            decide = moved.decide or "More samples would make the intervals narrower."
        compared = moved.readings
    if of:
        sentence = f"Of the run {of} alone. {sentence}"
    return Statement(
        "more-alike",
        run,
        "The clients' outputs become more alike over training",
        "Figure 4 follows the clients' similarity, which the covariance grows with.",
        verdict,
        sentence,
        decide,
        (*values, *compared),
    )


def _another(rounds: Sequence[RoundFactors]) -> str:
    """What would decide a change, where fewer than two of the decomposed rounds have a value."""
    alone = [one.round for one in rounds if len(one.clients) == 1]
    if alone and len(rounds) - len(alone) < 2:
        return f"{capital(in_rounds(alone))} had one client; two rounds with two clients or more would decide it."
    if len(rounds) > 1:
        return "Two rounds would decide it whose outputs are finite and not the same for all samples."
    return "A second round would decide it."
