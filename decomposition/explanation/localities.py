"""What is said of locality: the loss of averaged weights minus that of averaged outputs."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from .intervals import above, finite, read, size, zero
from .phases import FEWEST, Phase
from .records import Reading, Statement, Verdict
from .wording import ends, in_rounds, narrower, shown

OURS = "The sign is ours: the theorem bounds this difference and leaves its sign open."


def locality_adds(run: str, phases: Sequence[Phase]) -> Statement:
    """Supported where locality is above 0 in every round after early training, as O(Δ²) is read, contradicted where it
    is below 0 in every one; with its relation to the distance of the clients."""
    rounds = [one for phase in phases for one in phase.rounds]
    later = {one.round for phase in phases if phase.name != "early" for one in phase.rounds}
    values = [read(one, "locality") for one in rounds]
    signs = {one.round: _sign(value) for one, value in zip(rounds, values, strict=True)}
    after = {signs[number] for number in later}
    verdict: Verdict = "supported" if after == {1} else "contradicted" if after == {-1} else "undecided"
    said = []
    known = [value for value in values if finite(value)]
    if known:
        said.append(f"Locality is {' and '.join(f'{shown(value)} in round {value.round}' for value in ends(known))}.")
    for sign, words in ((-1, "below 0"), (1, "above 0"), (0, "not apart from 0"), (None, "without a finite value")):
        numbers = [number for number, own in signs.items() if own == sign]
        said += [f"It is {words} in {in_rounds(numbers)}."] if numbers else []
    if -1 in after:
        said.append(
            "Below 0, averaging weights beats averaging outputs, which disagrees with the reading that O(Δ²) adds to "
            "the loss."
        )
    said.append(OURS)
    distances = [read(one, "delta_max") for one in rounds]
    relation = rank_relation(values, distances)
    said.append(_distance(distances, relation))
    decide = ""
    if verdict == "undecided":
        mixed = {-1, 1} <= after
        decide = (
            "Rounds between these would say where its sign changes."
            if mixed
            else narrower(rounds, [value for value in values if value.round in later])
            if later
            else "A round after early training would decide it."
        )
    return Statement(
        "locality-adds",
        run,
        "After early training locality adds to the loss",
        "Theorem 1 has a term O(Δ²), Δ the greatest distance of a client to the average. It is read as adding to the "
        "loss, which falls as Δ does (5.3.2). Nothing is said of a sign.",
        verdict,
        " ".join(said),
        decide,
        (*values, *distances, relation),
    )


def rank_relation(values: Sequence[Reading], distances: Sequence[Reading]) -> Reading:
    """Spearman's rank correlation of |locality| with Δ² over rounds; none below five rounds, and none where one of both
    is the same in all. Without an interval: the rounds of a run depend on each other."""
    pairs = [(size(a), size(b) ** 2) for a, b in zip(values, distances, strict=True) if finite(a) and finite(b)]
    if len(pairs) < FEWEST or any(len(set(column)) < 2 for column in zip(*pairs, strict=True)):
        return Reading("rank_correlation", None, None)
    from scipy.stats import spearmanr

    locality, squared = zip(*pairs, strict=True)
    value = float(spearmanr(locality, squared).statistic)
    return Reading("rank_correlation", None, value if isfinite(value) else None)


def _distance(distances: Sequence[Reading], relation: Reading) -> str:
    known = [one for one in distances if finite(one)]
    if not known:
        return "Δ has no finite value."
    said = f"Δ is {' and '.join(f'{shown(one)} in round {one.round}' for one in ends(known))}"
    if relation.value is None:
        return f"{said}; ranks are compared from {FEWEST} rounds with different values on."
    return (
        f"{said}; the rank correlation of |locality| with Δ² is {relation.value:.2f} over {len(known)} rounds, which "
        "depend on each other, so it has no interval and decides nothing."
    )


def _sign(value: Reading) -> int | None:
    """-1 or 1 where the interval is on one side of 0, else 0; None without a value."""
    if not finite(value):
        return None
    return -1 if above(zero(value), value) else int(above(value, zero(value)))
