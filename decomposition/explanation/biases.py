"""What is said of training bias."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, isfinite

from ..factors.round_factors import RoundFactors
from .readings import Reading, finite, mean_of_clients, read
from .statements import Evidence, Judgement, Verdict
from .wording import CANNOT, ends, in_rounds, listed, shown, splitting

# What the paper calls almost zero is called small here, below this share of what it is compared with: ours.
SMALL = 0.1


def own_data(evidence: Evidence) -> Judgement:
    """Small on own data in every round, judged client by client, because the factor carries p_k^2.

    Supported where in every round the 95 % interval (Clopper and Pearson's, of a share) of the clients whose own
    error is below a tenth of theirs on others' data lies above one half; contradicted where it lies below in some
    round, unless some client's error there is not finite, which counts as not below. From six clients on it can.
    """
    rounds = evidence.rounds
    shares = [share_below(one) for one in rounds]
    most = [share.low is not None and share.low > 0.5 for share in shares]
    unknown = {one.round: ids for one in rounds if (ids := _diverged(one))}
    few = [share.high is not None and share.high < 0.5 and share.round not in unknown for share in shares]
    verdict: Verdict = "contradicted" if any(few) else "supported" if all(most) else "undecided"
    known = [one for one, share in zip(rounds, shares, strict=True) if finite(share)]
    if not known and any(one.split for one in rounds):
        sentence = "It has no value: no client has samples of its own beside others' samples."
        decide = "More clients, each with data of its own, would decide it."
    elif not known:
        sentence = "It has no value: nothing tells the clients' own samples from others'."
        decide = splitting(evidence.split, "tells them apart")
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
        few_clients = "" if all(len(_pairs(one)) > 5 for one in known) else "; six at least"
        decide = CANNOT if unknown else f"More clients a round would decide it{few_clients}."
    readings = (of_clients(one, field) for one in rounds for field in ("train_bias", "heter_bias"))
    return Judgement(verdict, sentence, decide, (*shares, *readings, *(read(one, "train_bias") for one in rounds)))


def share_below(one: RoundFactors) -> Reading:
    """The share of clients whose error on their own samples is below a tenth of that on others', with Clopper and
    Pearson's interval."""
    pairs = _pairs(one)
    if not pairs:
        return Reading("clients_below_a_tenth", one.round, None)
    from scipy.stats import binomtest

    count = _below(pairs)
    interval = binomtest(count, len(pairs)).proportion_ci()
    return Reading("clients_below_a_tenth", one.round, count / len(pairs), float(interval.low), float(interval.high))


def of_clients(one: RoundFactors, field: str) -> Reading:
    """The p-weighted mean over clients of ||y - mean_r f_k^r||^2 on their own samples, or on the others'."""
    known = [row for row in one.clients if getattr(row, field) is not None]
    return mean_of_clients(f"client_{field}", one, [(row, getattr(row, field)) for row in known])


def _pairs(one: RoundFactors) -> list[tuple[float, float]]:
    """(own, others') of the clients that have both."""
    both = ((row.train_bias, row.heter_bias) for row in one.clients)
    return [(own, other) for own, other in both if own is not None and other is not None]


def _diverged(one: RoundFactors) -> tuple[str, ...]:
    """The ids of the clients of :func:`_pairs` with a value that is not finite."""
    both = ((row.client, row.train_bias, row.heter_bias) for row in one.clients)
    return tuple(str(k) for k, a, b in both if a is not None and b is not None and not (isfinite(a) and isfinite(b)))


def _below(pairs: Sequence[tuple[float, float]]) -> int:
    return sum(own < SMALL * other for own, other in pairs)


def _counted(rounds: Sequence[RoundFactors]) -> str:
    """`10 of 10 clients in rounds 30 and 60, 9 of 10 in round 45`."""
    by_count: dict[tuple[int, int], list[int]] = {}
    for one in rounds:
        pairs = _pairs(one)
        by_count.setdefault((_below(pairs), len(pairs)), []).append(one.round)
    return ", ".join(f"{count} of {of} clients in {in_rounds(numbers)}" for (count, of), numbers in by_count.items())


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
