"""Statements on single factors: the bias on own data, variance, covariance, locality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum, isfinite
from statistics import fmean

import numpy as np

from ..factors.fixed import all_alike, is_replayed
from ..factors.rows import ClientRow, RoundFactors, is_recorded
from ..subsets.averages import choose
from .intervals import Reading, above, by_client, dominant, finite, magnitude, mean_of_clients, order, read, size
from .phases import FEWEST
from .statements import Evidence, Judgement, Verdict, throughout
from .wording import CANNOT, NAMES, ends, in_rounds, list_words, narrower, share, spell, split_hint

# What the paper calls almost zero is called small here, below this share of what it is compared with: ours.
SMALL = 0.1
# Subsets of a number of clients, and the numbers besides one and all.
SUBSETS, BETWEEN = 200, (2, 5, 10, 20, 50)
OURS = "The sign is ours: the theorem bounds this difference and leaves its sign open."


def own_data(evidence: Evidence) -> Judgement:
    """Small on own data in every round, judged client by client, because the factor carries p_k^2.

    Supported where in every round the 95 % interval (Clopper and Pearson's, of a share) of the clients whose own
    error is below a tenth of theirs on others' data lies above one half; contradicted where it lies below in some
    round, unless some client's error there is not finite, which counts as not below. From six clients on it can.
    """
    rounds = evidence.rounds
    shares = [share_below(one) for one in rounds]
    most = [share.low is not None and share.low > 0.5 for share in shares]
    diverged = {one.round: tuple(str(k) for k, *both in _pairs(one) if not all(map(isfinite, both))) for one in rounds}
    unknown = {number: ids for number, ids in diverged.items() if ids}
    few = [share.high is not None and share.high < 0.5 and share.round not in unknown for share in shares]
    verdict: Verdict = "contradicted" if any(few) else "supported" if all(most) else "undecided"
    known = [one for one, share in zip(rounds, shares, strict=True) if finite(share)]
    if not known and any(one.split for one in rounds):
        sentence = "It has no value: no client has samples of its own beside others' samples."
        decide = "More clients, each with data of its own, would decide it."
    elif not known:
        sentence = "It has no value: nothing tells the clients' own samples from others'."
        decide = split_hint(evidence.split, "tells them apart")
    else:
        means = "; ".join(
            f"in round {one.round} {spell(of_clients(one, 'train_bias'))} on own data and "
            f"{spell(of_clients(one, 'heter_bias'))} on others'"
            for one in ends(known)
        )
        sentence = (
            f"So it is for {_count_word(known)}. The clients' mean errors, with intervals over clients: {means}. "
            f"{_arithmetic(known[-1])}{_dominant_words(known)}"
        )
        by_clients: dict[tuple[str, ...], list[int]] = {}
        for number, ids in unknown.items():
            by_clients.setdefault(ids, []).append(number)
        for ids, numbers in by_clients.items():
            clients, have, count = ("clients", "have", "count") if len(ids) > 1 else ("client", "has", "counts")
            sentence += (
                f" In {in_rounds(numbers)} {clients} {list_words(ids)} {have} no finite error and {count} as not below."
            )
        few_clients = "" if all(len(_pairs(one)) > 5 for one in known) else "; six at least"
        decide = CANNOT if unknown else f"More clients a round would decide it{few_clients}."
    readings = (of_clients(one, field) for one in rounds for field in ("train_bias", "heter_bias"))
    return Judgement(verdict, sentence, decide, (*shares, *readings, *(read(one, "train_bias") for one in rounds)))


def _dominant_words(rounds: Sequence[RoundFactors]) -> str:
    """Say why a mean of clients has no interval over them; "" where it has."""
    by_client: dict[int, list[int]] = {}
    for one in rounds:
        if (client := dominant([row for row in one.clients if row.train_bias is not None])) is not None:
            by_client.setdefault(client, []).append(one.round)
    return "".join(
        f" In {in_rounds(numbers)} client {client} has more than nine tenths of the weight, so means have no interval "
        "over clients."
        for client, numbers in by_client.items()
    )


def share_below(one: RoundFactors) -> Reading:
    """Compute the share of clients whose error on their own samples is below a tenth of that on others', with Clopper
    and Pearson's interval."""
    pairs = _pairs(one)
    if not pairs:
        return Reading("clients_below_a_tenth", one.round, None)
    from scipy.stats import binomtest

    count = _below(pairs)
    interval = binomtest(count, len(pairs)).proportion_ci()
    return Reading("clients_below_a_tenth", one.round, count / len(pairs), float(interval.low), float(interval.high))


def of_clients(one: RoundFactors, field: str) -> Reading:
    """Compute the p-weighted mean over clients of ||y - mean_r f_k^r||^2 on their own samples, or on the others'."""
    known = [row for row in one.clients if getattr(row, field) is not None]
    return mean_of_clients(f"client_{field}", one, [(row, getattr(row, field)) for row in known])


def _pairs(one: RoundFactors) -> list[tuple[int, float, float]]:
    """(id, own, others') of the clients that have both, each once; one of weight 0 is no part of the average."""
    both = [(row, row.train_bias, row.heter_bias) for row in one.clients if row.weight]
    known = [(row, own, other) for row, own, other in both if own is not None and other is not None]
    others = by_client((row, other) for row, _, other in known)
    owns = by_client((row, own) for row, own, _ in known)
    return [(k, own, other) for (k, _, own), (_, _, other) in zip(owns, others, strict=True)]


def _below(pairs: Sequence[tuple[int, float, float]]) -> int:
    return sum(own < SMALL * other for _, own, other in pairs)


def _count_word(rounds: Sequence[RoundFactors]) -> str:
    """`10 of 10 clients in rounds 30 and 60, 9 of 10 in round 45`."""
    by_count: dict[tuple[int, int], list[int]] = {}
    for one in rounds:
        pairs = _pairs(one)
        by_count.setdefault((_below(pairs), len(pairs)), []).append(one.round)
    return ", ".join(f"{count} of {of} clients in {in_rounds(numbers)}" for (count, of), numbers in by_count.items())


def _arithmetic(one: RoundFactors) -> str:
    factor = read(one, "train_bias")
    held = [(row, float(row.samples)) for row in one.clients if row.samples is not None]
    if one.population and one.outputs == "probabilities" and len(held) == len(one.clients):
        p2 = fsum(weight**2 * samples for _, weight, samples in by_client(held)) / one.samples
        example = f"these clients would give {p2 * (1 - 1 / one.classes):.1g} with uniform outputs"
    else:
        example = "ten clients with a tenth of D each give 0.009 with uniform outputs"
    return (
        f"The factor itself ({spell(factor)} in round {one.round}) is no evidence: where data are disjoint it carries "
        f"p_k², and {example}."
    )


def variance_and_clients(evidence: Evidence) -> Judgement | None:
    """Sum_k p_k^2 V_k of all averaged clients of a round against the mean V_k of one of them: supported where it is
    lower in every round, intervals apart, contradicted where it is higher in every one. That of a single client has an
    interval over clients. None of the recorded models alone."""
    rounds = evidence.rounds
    if is_recorded(rounds):
        return None
    single = [variance_of(one, 1) for one in rounds]
    every = [read(one, "variance") for one in rounds]
    signs = [order(a, b) for a, b in zip(single, every, strict=True)]
    last = rounds[-1]
    averaged = _averaged(last)
    count, clients = len(averaged), len({row.client for row in averaged})
    between = {m: variance_of(last, m) for m in BETWEEN if m < count}
    of_some = "".join(f", {spell(value)} for {m}" for m, value in between.items())
    what = "one client" if clients == count else "one model of a client"
    of_all = f"all {count}" if clients == count else f"all {count} models of {clients} clients"
    sentence = (
        f"In round {last.round} Σ p²V is {spell(single[-1])} for {what} (the mean over all, ± over clients)"
        f"{of_some} and {spell(every[-1])} for {of_all}."
    )
    if count < 2:
        sentence = f"Round {last.round} has one client, whose variance is {spell(every[-1])}."
    if higher := [one.round for one, sign in zip(rounds, signs, strict=True) if sign < 0]:
        sentence += f" It is higher for all in {in_rounds(higher)}."
    sentence += (
        " With equal weights it is 1/m of the mean by arithmetic: what is measured is how far unequal weights and "
        "variances are from that."
    )
    alone = all(len({row.client for row in _averaged(one)}) < 2 for one in rounds)
    decide = (
        "Rounds with two clients or more would decide it."
        if alone
        else narrower(rounds, [*single, *every], replays=evidence.replays)
    )
    return Judgement(throughout(signs), sentence, decide, (*single, *every, *between.values()))


def _averaged(one: RoundFactors) -> list[ClientRow]:
    """The models that a round averages: one of weight 0 is not among them."""
    return [row for row in one.clients if row.weight > 0]


def variance_of(one: RoundFactors, m: int) -> Reading:
    """Compute the mean of sum_{k in S} p_k^2 V_k over subsets S of m of the clients with p_k > 0, their p normalised;
    V_k unbiased where draws are independent, as in the factor. Of one client the interval over clients, of more none.
    Of an average over rounds they are subsets of its models."""
    name = "variance_of_1_client" if m == 1 else f"variance_of_{m}_clients"
    scale = one.count / (one.count - 1) if one.independent else 1.0
    known = [(row, row.variance) for row in _averaged(one) if row.variance is not None]
    if m == 1:
        equal = [(replace(row, weight=1.0), scale * variance) for row, variance in known]
        return mean_of_clients(name, one, equal)
    p = np.array([row.weight for row, _ in known])
    variances = scale * np.array([variance for _, variance in known])
    chosen = (list(members) for members in choose(len(p), m, SUBSETS, np.random.default_rng(m)))
    sums = [float(np.square(p[own] / p[own].sum()) @ variances[own]) for own in chosen]
    return Reading(name, one.round, fmean(sums))


def covariance_is_small(evidence: Evidence) -> Judgement | None:
    """Below a tenth of heterogeneous bias in every round, of the whole bias where nothing splits it; contradicted where
    it is above in one. Of replays it is 0 by construction and cannot be seen. None of the recorded models alone."""
    rounds = evidence.rounds
    if is_recorded(rounds):
        return None
    beside = "heter_bias" if all(one.split for one in rounds) else "bias"
    words = {"bias": NAMES[beside]}
    if is_replayed(rounds):
        sentence = (
            "It cannot be seen: the draws are replays, independent across clients, so their covariance is 0 by "
            "construction."
        )
        decide = "--draws runs, with runs that differ in their seed, measures it."
        return Judgement("undecided", sentence, decide, (), words)
    both = [(read(one, "covariance"), read(one, beside)) for one in rounds]
    known = [(part, bias) for part, bias in both if finite(part) and finite(bias)]
    large = [part for part, bias in known if above(magnitude(part), magnitude(bias), SMALL)]
    small = [part for part, bias in known if above(magnitude(bias), magnitude(part), 1 / SMALL)]
    verdict: Verdict = "contradicted" if large else "supported" if known and len(small) == len(both) else "undecided"
    sentences = ["It has no finite value beside a finite bias."]
    if known:
        part, bias = max(known, key=lambda pair: size(pair[0]) / size(pair[1]) if size(pair[1]) else float("inf"))
        most = f"{share(size(part), size(bias))} of it" if bias.value else "more than it"
        sentences = [f"It is at most {most}: {spell(part)} beside {spell(bias)} in round {part.round}."]
    if len(known) < len(both):
        sentences.append(f"There is a value in {len(known)} of {len(both)} rounds.")
    if large:
        sentences.append(
            f"It is more than a tenth in {in_rounds([one.round for one in large if one.round is not None])}."
        )
    if known and all(all_alike(one) for one in rounds):
        sentences.append("The draws of a client are all the same model.")
    readings = [reading for pair in both for reading in pair]
    return Judgement(
        verdict, " ".join(sentences), narrower(rounds, readings, replays=evidence.replays), readings, words
    )


def locality_adds(evidence: Evidence) -> Judgement:
    """Supported where locality is above 0 in every round after early training, as O(Δ²) is read, contradicted where it
    is below 0 in every one; with its relation to the distance of the clients. A run of one round has nothing but it."""
    rounds = [one for phase in evidence.phases for one in phase.rounds]
    only = len(evidence.phases) == 1
    later = {one.round for phase in evidence.phases[0 if only else 1 :] for one in phase.rounds}
    values = [read(one, "locality") for one in rounds]
    signs = {one.round: order(value) if finite(value) else None for one, value in zip(rounds, values, strict=True)}
    after = {signs[number] for number in later}
    sentences = []
    if known := [value for value in values if finite(value)]:
        first_last = " and ".join(f"{spell(value)} in round {value.round}" for value in ends(known))
        sentences.append(f"Locality is {first_last}.")
    for sign, words in ((-1, "below 0"), (1, "above 0"), (0, "not apart from 0"), (None, "without a finite value")):
        if numbers := [number for number, its in signs.items() if its == sign]:
            sentences.append(f"It is {words} in {in_rounds(numbers)}.")
    if -1 in after:
        sentences.append(
            "Below 0, averaging weights beats averaging outputs, which disagrees with the reading that O(Δ²) adds to "
            "the loss."
        )
    distances = [read(one, "delta_max") for one in rounds]
    pairs = compared_rounds(values, distances)
    relation = rank_relation(pairs)
    sentences += [OURS, _distance(distances, relation, len(pairs))]
    if {-1, 1} <= after:
        decide = "Rounds between these, where there are any, would say where its sign changes."
    elif later:
        decide = narrower(rounds, [value for value in values if value.round in later], replays=evidence.replays)
    else:
        decide = "A round after early training would decide it."
    when = {"when": "In the only round" if only else "After early training"}
    return Judgement(throughout(list(after)), " ".join(sentences), decide, (*values, *distances, relation), when)


def compared_rounds(values: Sequence[Reading], distances: Sequence[Reading]) -> list[tuple[float, float]]:
    """Return |locality| and Δ² of the rounds in which both are finite."""
    return [(size(a), size(b) ** 2) for a, b in zip(values, distances, strict=True) if finite(a) and finite(b)]


def rank_relation(pairs: Sequence[tuple[float, float]]) -> Reading:
    """Spearman's rank correlation of |locality| with Δ² over rounds; none below five rounds, and none where one of both
    is the same in all. Without an interval: the rounds of a run depend on each other."""
    if len(pairs) < FEWEST or any(len(set(column)) < 2 for column in zip(*pairs, strict=True)):
        return Reading("rank_correlation", None, None)
    from scipy.stats import spearmanr

    locality, squared = zip(*pairs, strict=True)
    value = float(spearmanr(locality, squared).statistic)
    return Reading("rank_correlation", None, value if isfinite(value) else None)


def _distance(distances: Sequence[Reading], relation: Reading, compared: int) -> str:
    """Describe Δ, and its relation with |locality| over the rounds that were ``compared``."""
    known = [one for one in distances if finite(one)]
    if not known:
        return "Δ has no finite value."
    told = f"Δ is {' and '.join(f'{spell(one)} in round {one.round}' for one in ends(known))}"
    if relation.value is None:
        return f"{told}; ranks are compared from {FEWEST} rounds with different values on."
    return (
        f"{told}; the rank correlation of |locality| with Δ² is {relation.value:.2f} over {compared} rounds, which "
        "depend on each other, so it has no interval and decides nothing."
    )
