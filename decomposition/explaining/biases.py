"""What is said of training bias and of heterogeneous bias."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import fsum, isfinite

from ..records import RoundFactors
from .cohorts import change, clients_of
from .intervals import above, broken, finite, mean_of_clients, read
from .phases import Phase
from .records import Reading, Statement, Verdict
from .wording import CANNOT, ends, in_rounds, listed, narrower, not_finite, shown, splitting

# What the paper calls almost zero is called small here, below this share of what it is compared with: ours.
SMALL = 0.1


def own_data(run: str, after: Sequence[Phase], split: str = "") -> Statement:
    """Small on own data after early training, judged client by client, because the factor carries p_k^2.

    Supported where in every later round the 95 % interval (Clopper and Pearson's, of a share) of the clients whose own
    error is below a tenth of theirs on others' data lies above one half; contradicted where it lies below in some
    round, unless some client's error there is not finite, which counts as not below. From six clients on it can.
    ``split`` is what was measured on.
    """
    rounds = [one for phase in after for one in phase.rounds]
    shares = [share_below(one) for one in rounds]
    most = [share.low is not None and share.low > 0.5 for share in shares]
    unknown = {one.round: ids for one in rounds if (ids := _diverged(one))}
    few = [share.high is not None and share.high < 0.5 and share.round not in unknown for share in shares]
    verdict: Verdict = "contradicted" if any(few) else "supported" if rounds and all(most) else "undecided"
    known = [one for one, share in zip(rounds, shares, strict=True) if finite(share)]
    decide = ""
    if not rounds:
        sentence, decide = "No round after early training is decomposed.", "--rounds with one would decide it."
    elif not known and any(one.split for one in rounds):
        sentence = "It has no value: no client has samples of its own beside others' samples."
        decide = "More clients, each with data of its own, would decide it."
    elif not known:
        sentence = "It has no value: nothing tells the clients' own samples from others'."
        decide = splitting(split, "tells them apart")
    else:
        means = "; ".join(
            f"in round {one.round} {shown(of_clients(one, 'train_bias'))} on own data and "
            f"{shown(of_clients(one, 'heter_bias'))} on others'"
            for one in ends(known)
        )
        sentence = (
            f"So it is for {_counted(known)}. The clients' mean errors, with intervals over clients: {means}. "
            f"{_arithmetic(known[-1])}"
        )
        by_clients: dict[tuple[str, ...], list[int]] = {}
        for number, ids in unknown.items():
            by_clients.setdefault(ids, []).append(number)
        for ids, numbers in by_clients.items():
            clients, have, count = ("clients", "have", "count") if len(ids) > 1 else ("client", "has", "counts")
            sentence += (
                f" In {in_rounds(numbers)} {clients} {listed(ids)} {have} no finite error and {count} as not below."
            )
        if verdict == "undecided":
            decide = CANNOT if unknown else "More clients a round would decide it; six at least."
    readings = (of_clients(one, field) for one in rounds for field in ("train_bias", "heter_bias"))
    return Statement(
        "own-data",
        run,
        "After early training most clients' error on their own data is below a tenth of that on others'",
        "After early training, training bias is almost zero.",
        verdict,
        sentence,
        decide,
        (*shares, *readings, *(read(one, "train_bias") for one in rounds)),
    )


def share_below(one: RoundFactors) -> Reading:
    """The share of clients whose error on their own samples is below a tenth of that on others', with Clopper and
    Pearson's interval."""
    pairs = _pairs(one)
    if not pairs:
        return Reading("clients_below_a_tenth", one.round, None)
    from scipy.stats import binomtest

    count = sum(own < SMALL * other for own, other in pairs)
    interval = binomtest(count, len(pairs)).proportion_ci()
    return Reading("clients_below_a_tenth", one.round, count / len(pairs), float(interval.low), float(interval.high))


def of_clients(one: RoundFactors, field: str) -> Reading:
    """The p-weighted mean over clients of ||y - mean_r f_k^r||^2 on their own samples, or on the others'."""
    values = [(row, row.train_bias if field == "train_bias" else row.heter_bias) for row in one.clients]
    return mean_of_clients(f"client_{field}", one, [(row, value) for row, value in values if value is not None])


def heterogeneous_bias_falls(run: str, phases: Sequence[Phase], split: str = "") -> Statement:
    """The first against the last decomposed round, intervals apart; where they have different clients, the first third
    of the run against the last (:func:`.cohorts.change`). ``split`` is what was measured on."""
    rounds = [one for phase in phases for one in phase.rounds]
    values = [read(one, "heter_bias") for one in rounds]
    compared: tuple[Reading, ...] = ()
    known = [value for value in values if finite(value)]
    verdict: Verdict = "undecided"
    decide = ""
    if len(known) < 2 and any(broken(value) for value in values):
        sentence = "It has a finite value in no round."
        if known:
            sentence = f"It is {shown(known[0])} in round {known[0].round}, the only one with a finite value."
        decide = not_finite(values)
    elif not known and any(one.split for one in rounds):
        sentence = "Heterogeneous bias has no value here: no sample is another client's."
        decide = "More clients, each with data of its own, would decide it."
    elif not known:
        sentence = "Heterogeneous bias has no value here: nothing splits the bias."
        decide = splitting(split, "splits it")
    elif len(known) < 2:
        sentence = f"It is {shown(known[0])} in round {known[0].round}, the only one with a value."
        decide = f"{'A second' if len(rounds) == 1 else 'Another'} round with a value would decide it."
    else:
        first, last = known[0], known[-1]
        moved = change(known, phases)
        verdict = "supported" if moved.sign < 0 else "contradicted" if moved.sign > 0 else "undecided"
        sentence = f"It is {shown(first)} in round {first.round} and {shown(last)} in round {last.round}."
        sentence += f" {moved.sentence}" if moved.sentence else ""
        # A rise between different clients is not one over training.
        cohorts = {one.round: clients_of(one) for one in rounds}
        pairs = [(a, b) for a, b in pairwise(known) if a.round and b.round and cohorts[a.round] == cohorts[b.round]]
        rises = [f"{a.round} to {b.round}" for a, b in pairs if above(b, a)]
        if rises and verdict == "supported":
            sentence += f" Not steadily: it rises from round {', and from '.join(rises)}."
        if verdict == "undecided":
            decide = moved.decide or narrower(rounds)
        compared = moved.readings
    return Statement(
        "heterogeneous-bias-falls",
        run,
        "Heterogeneous bias falls over training",
        "Heterogeneous bias falls as training goes on.",
        verdict,
        sentence,
        decide,
        (*values, *compared),
    )


def _pairs(one: RoundFactors) -> list[tuple[float, float]]:
    """(own, others') of the clients that have both."""
    both = ((row.train_bias, row.heter_bias) for row in one.clients)
    return [(own, other) for own, other in both if own is not None and other is not None]


def _diverged(one: RoundFactors) -> tuple[str, ...]:
    """The ids of the clients of :func:`_pairs` with a value that is not finite."""
    both = ((row.client, row.train_bias, row.heter_bias) for row in one.clients)
    return tuple(str(k) for k, a, b in both if a is not None and b is not None and not (isfinite(a) and isfinite(b)))


def _counted(rounds: Sequence[RoundFactors]) -> str:
    """`10 of 10 clients in rounds 30 and 60, 9 of 10 in round 45`."""
    found: dict[tuple[int, int], list[int]] = {}
    for one in rounds:
        pairs = _pairs(one)
        key = sum(own < SMALL * other for own, other in pairs), len(pairs)
        found.setdefault(key, []).append(one.round)
    return ", ".join(f"{count} of {of} clients in {in_rounds(numbers)}" for (count, of), numbers in found.items())


def _arithmetic(one: RoundFactors) -> str:
    factor = read(one, "train_bias")
    if one.population and one.outputs == "probabilities":
        p2 = fsum(row.weight**2 * row.samples for row in one.clients) / one.samples
        example = f"these clients would give {p2 * (1 - 1 / one.classes):.1g} with uniform outputs"
    else:
        example = "ten clients with a tenth of D each give 0.009 with uniform outputs"
    return (
        f"The factor itself ({shown(factor)} in round {one.round}) is no evidence: where data are disjoint it carries "
        f"p_k², and {example}."
    )
