"""What is said of the clients' similarity, measured apart from the decomposition."""

from __future__ import annotations

from collections.abc import Sequence

from .intervals import above
from .records import Reading, Statement, Verdict
from .wording import shown

#: (round, mean similarity of the clients' pairs, its standard error or None, over how many minibatches)
Similarity = tuple[int, float, float | None, int]


def more_alike(run: str, similarity: Sequence[Similarity]) -> Statement:
    """The clients' mean similarity (CKA) in the first against the last round: 95 % by t on B - 1 degrees of freedom of
    the jackknife over B minibatches."""
    from scipy.stats import t

    values = []
    for number, mean, error, batches in sorted(similarity):
        half = None if error is None else float(t.ppf(0.975, batches - 1)) * error
        values.append(
            Reading("similarity", number, mean, *((None, None) if half is None else (mean - half, mean + half)))
        )
    verdict: Verdict = "undecided"
    decide = ""
    if len(values) < 2:
        sentence = f"It is {shown(values[0])} in round {values[0].round}." if values else "It was measured in no round."
        decide = "A second round would decide it."
    else:
        first, last = values[0], values[-1]
        verdict = "supported" if above(last, first) else "contradicted" if above(first, last) else "undecided"
        sentence = f"Their mean CKA is {shown(first)} in round {first.round} and {shown(last)} in round {last.round}."
        if verdict == "undecided":
            decide = "More samples would make the intervals narrower."
    return Statement(
        "more-alike",
        run,
        "The clients' outputs become more alike over training",
        "Figure 4 follows the clients' similarity, which the covariance grows with.",
        verdict,
        sentence,
        decide,
        tuple(values),
    )
