"""What is said of the clients' similarity, measured apart from the decomposition."""

from __future__ import annotations

from collections.abc import Sequence

from ..factors.records import RoundFactors
from .intervals import above, quantile
from .records import Reading, Statement, Verdict
from .wording import capital, ends, in_rounds, listed, shown

#: (round, mean similarity of the clients' pairs, its standard error or None, over how many minibatches)
Similarity = tuple[int, float, float | None, int]

# What is called small, of a measure from 0 to 1: ours.
HALF = 0.5


def outputs_differ(
    run: str, similarity: Sequence[Similarity], rounds: Sequence[RoundFactors], of: str = ""
) -> Statement:
    """The clients' mean similarity (CKA) below one half in every round, contradicted where it is above in every one: 95
    % by t on B - 1 degrees of freedom of the jackknife over B minibatches. `of` names the run that was measured, where
    `run` are several."""
    values = []
    for number, mean, error, batches in sorted(similarity):
        half = None if error is None else quantile(batches - 1) * error
        values.append(
            Reading("similarity", number, mean, *((None, None) if half is None else (mean - half, mean + half)))
        )
    middle = Reading("one half", None, HALF, HALF, HALF)
    low = [value for value in values if above(middle, value)]
    high = [value for value in values if above(value, middle)]
    verdict: Verdict = "undecided"
    if values and len(low) == len(values):
        verdict = "supported"
    elif values and len(high) == len(values):
        verdict = "contradicted"
    if values:
        said = listed([f"{shown(value)} in round {value.round}" for value in ends(values)])
        sentence = f"Their mean CKA is {said}."
        for found, words in ((low, "below"), (high, "above")):
            numbers = [value.round for value in found if value.round is not None]
            sentence += f" It is {words} one half in {in_rounds(numbers)}." if numbers else ""
        if any(value.half is not None for value in values):
            sentence += " Here ± is over minibatches of samples, of the recorded clients alone."
    else:
        sentence = "It has a value in no round."
    decide = ""
    if verdict == "undecided":
        decide = (
            _another(rounds)
            if not values
            else "Rounds between these would say where it changes."
            if low and high
            else "More samples would make the intervals narrower."
        )
    return Statement(
        "outputs-differ",
        run,
        "The clients' outputs have little in common (mean CKA below one half, our threshold)",
        "CKA of outputs is the measure of the covariance: it is small under heterogeneity, most of all without a "
        "decaying learning rate (5.3.4).",
        verdict,
        f"Of the run {of} alone. {sentence}" if of else sentence,
        decide,
        tuple(values),
    )


def _another(rounds: Sequence[RoundFactors]) -> str:
    """What would decide it, where no decomposed round has a value."""
    alone = [one.round for one in rounds if len(one.clients) == 1]
    if len(alone) == len(rounds):
        return f"{capital(in_rounds(alone))} had one client; rounds with two clients or more would decide it."
    return "Rounds would decide it whose outputs are finite and not the same for all samples."
