"""Which factor differs between runs."""

from __future__ import annotations

from dataclasses import replace

from ..factors.records import RoundFactors
from ..factors.result import RunFactors
from .cohorts import clients_differ
from .greatest import parts_of
from .intervals import above, difference, finite, magnitude, read, size, zero
from .records import Reading, Statement, Verdict
from .wording import NAMES, capital, label, narrower, shown

SEEDS = " One run each says nothing about other seeds."


def differs_most(a: RunFactors, b: RunFactors) -> Statement:
    """In the last round that both have: supported where the greatest difference of a factor is apart from every other
    one's and from 0, and the round has the same clients in both; else the clients alone may make the difference.

    Intervals of differences are sums of both: replays of runs with one seed meet the same batch orders, so that the
    runs are not independent, and quadrature would not hold.
    """
    names_of = label(a), label(b)
    common = sorted({one.round for one in a.rounds} & {one.round for one in b.rounds})
    verdict: Verdict = "undecided"
    readings: list[Reading] = []
    where = ""
    if not common:
        sentence, decide = "They have no decomposed round in common.", "The same --rounds for both would decide it."
    else:
        where = f" in round {common[-1]}"
        one, two = (next(o for o in run.rounds if o.round == common[-1]) for run in (a, b))
        names = [name for name in parts_of(one) if name in parts_of(two)]
        gaps = [difference(read(one, name), read(two, name)) for name in names]
        readings = [replace(gap, name=f"{gap.name}: {names_of[0]} - {names_of[1]}") for gap in gaps]
        readings += [_named(one, names_of[0]), _named(two, names_of[1])]
        verdict, sentence = _greatest_gap(gaps)
        seeds = "" if one.draws == "runs" else SEEDS
        losses = " and ".join(
            f"{shown(read(o, 'fma_loss'))} ({name})" for o, name in zip((one, two), names_of, strict=True)
        )
        sentence = (
            f"The averaged model's loss is {losses}; differences are {' minus '.join(names_of)}. {sentence}{seeds}"
        )
        of_both = [read(each, name) for each in (one, two) for name in names]
        decide = narrower([one, two], of_both) if verdict == "undecided" else ""
        if all(gap.value == 0 for gap in gaps):
            decide = "A later round may differ: the runs have the same history up to here."
        elif clients_differ([one, two]):
            verdict = "undecided"
            sentence += " The round has different clients in them."
            decide = "Runs with the same clients in this round would decide it."
    return Statement(
        "differs-most",
        ", ".join(names_of),
        f"Between {names_of[0]} and {names_of[1]}, one factor differs more than every other{where}",
        "Figures 2 to 4 compare a learning rate that decays by 0.01 a round with one that does not decay.",
        verdict,
        sentence,
        decide,
        tuple(readings),
    )


def _named(one: RoundFactors, run: str) -> Reading:
    return replace(read(one, "fma_loss"), name=f"fma_loss: {run}")


def _greatest_gap(gaps: list[Reading]) -> tuple[Verdict, str]:
    if not all(finite(gap) for gap in gaps):
        return "undecided", "Some factor has no finite value in one of them."
    if all(gap.value == 0 for gap in gaps):
        return "undecided", "All factors are the same, to the last digit."
    first, *others = sorted(gaps, key=size, reverse=True)
    said = " and ".join(f"{NAMES[gap.name]} {shown(gap)}" for gap in [first, *others[:1]])
    clear = [gap for gap in gaps if above(magnitude(gap), zero(gap))]
    if first in clear and all(above(magnitude(first), magnitude(other)) for other in others):
        return "supported", f"{capital(NAMES[first.name])} differs most; the greatest differences are {said}."
    count = len(clear)
    beyond = "none is" if not count else f"{count} of {len(gaps)} {'is' if count == 1 else 'are'}"
    return (
        "undecided",
        f"The greatest differences are {said}; {beyond} apart from 0, and the first not from the others.",
    )
