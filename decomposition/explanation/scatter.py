"""What is said of variance and covariance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from ..factors.records import RoundFactors
from ..subsets.choosing import choose
from .biases import SMALL
from .intervals import above, all_alike, finite, magnitude, mean_of_clients, read, size
from .records import Reading, Statement, Verdict
from .wording import NAMES, in_rounds, is_local, narrower, share, shown

# Subsets of a number of clients, and the numbers besides one and all.
SUBSETS, BETWEEN = 200, (2, 5, 10, 20, 50)


def variance_and_clients(run: str, rounds: Sequence[RoundFactors]) -> Statement:
    """Sum_k p_k^2 V_k of all clients of a round against the mean V_k of one of them: supported where it is lower in
    every round, intervals apart, contradicted where it is higher in every one. That of a single client has an interval
    over clients."""
    single = [variance_of(one, 1) for one in rounds]
    every = [read(one, "variance") for one in rounds]
    signs = [int(above(b, a)) - int(above(a, b)) for a, b in zip(every, single, strict=True)]
    verdict: Verdict = "undecided"
    if signs and len(set(signs)) == 1 and signs[0]:
        verdict = "supported" if signs[0] > 0 else "contradicted"
    last = rounds[-1]
    count = len(last.clients)
    between = [variance_of(last, m) for m in BETWEEN if m < count]
    sizes = [m for m in BETWEEN if m < count]
    said = "".join(f", {shown(value)} for {m}" for m, value in zip(sizes, between, strict=True))
    sentence = (
        f"In round {last.round} Σ p²V is {shown(single[-1])} for one client (the mean over all, ± over clients){said} "
        f"and {shown(every[-1])} for all {count}."
    )
    if count < 2:
        sentence = f"Round {last.round} has one client, whose variance is {shown(every[-1])}."
    if higher := [one.round for one, sign in zip(rounds, signs, strict=True) if sign < 0]:
        sentence += f" It is higher for all in {in_rounds(higher)}."
    sentence += (
        " With equal weights it is 1/m of the mean by arithmetic: what is measured is how far unequal weights and "
        "variances are from that."
    )
    alone = all(len(one.clients) < 2 for one in rounds)
    decide = "Rounds with two clients or more would decide it." if alone else narrower(rounds, [*single, *every])
    return Statement(
        "variance-and-clients",
        run,
        "The weighted sum of the clients' variances is lower for all of them than for one",
        "The weighted sum of variances can be lowered to some extent by averaging many clients (5.3.3, 5.3.5).",
        verdict,
        sentence,
        decide if verdict == "undecided" else "",
        (*single, *every, *between),
    )


def variance_of(one: RoundFactors, m: int) -> Reading:
    """The mean of sum_{k in S} p_k^2 V_k over subsets S of m clients, their p normalised; V_k unbiased where draws are
    independent, as in the factor. Of one client the interval over clients, of more none."""
    name = "variance_of_1_client" if m == 1 else f"variance_of_{m}_clients"
    scale = one.count / (one.count - 1) if one.independent else 1.0
    if m == 1:
        equal = [(replace(row, weight=1.0), scale * row.variance) for row in one.clients]
        return mean_of_clients(name, one, equal)
    p = np.array([row.weight for row in one.clients])
    variances = scale * np.array([row.variance for row in one.clients])
    chosen = (list(members) for members in choose(len(p), m, SUBSETS, np.random.default_rng(m)))
    sums = [float(np.square(p[own] / p[own].sum()) @ variances[own]) for own in chosen]
    return Reading(name, one.round, fmean(sums))


def covariance_is_small(run: str, rounds: Sequence[RoundFactors]) -> Statement:
    """Below a tenth of heterogeneous bias in every round, of the whole bias where nothing splits it; contradicted where
    it is above in one. Of replays it is 0 by construction and cannot be seen."""
    beside = "heter_bias" if all(one.split for one in rounds) else "bias"
    title = f"Covariance is small beside {NAMES[beside]} (below a tenth)"
    paper = "The covariance is too small to matter (5.3.3, 5.3.5)."
    if is_local(rounds):
        return Statement(
            "covariance-is-small",
            run,
            title,
            paper,
            "undecided",
            "It cannot be seen: the draws are replays, independent across clients, so their covariance is 0 by "
            "construction.",
            "--draws runs, with runs that differ in their seed, measures it.",
            (),
        )
    both = [(read(one, "covariance"), read(one, beside)) for one in rounds]
    known = [(part, bias) for part, bias in both if finite(part) and finite(bias)]
    large = [part for part, bias in known if above(magnitude(part), magnitude(bias), SMALL)]
    small = [part for part, bias in known if above(magnitude(bias), magnitude(part), 1 / SMALL)]
    verdict: Verdict = "contradicted" if large else "supported" if known and len(small) == len(both) else "undecided"
    said = ["It has no finite value beside a finite bias."]
    if known:
        part, bias = max(known, key=lambda pair: size(pair[0]) / size(pair[1]) if size(pair[1]) else float("inf"))
        most = f"{share(size(part), size(bias))} of it" if bias.value else "more than it"
        said = [f"It is at most {most}: {shown(part)} beside {shown(bias)} in round {part.round}."]
    if len(known) < len(both):
        said.append(f"There is a value in {len(known)} of {len(both)} rounds.")
    if large:
        said.append(f"It is more than a tenth in {in_rounds([one.round for one in large if one.round is not None])}.")
    if known and all(all_alike(one) for one in rounds):
        said.append("The draws of a client are all the same model.")
    readings = tuple(number for pair in both for number in pair)
    return Statement(
        "covariance-is-small",
        run,
        title,
        paper,
        verdict,
        " ".join(said),
        narrower(rounds, readings) if verdict == "undecided" else "",
        readings,
    )
