"""A change over training, where rounds may have different clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, variance

from ..records import RoundFactors
from .intervals import above, finite, quantile, zero
from .phases import Phase
from .records import Reading
from .wording import in_rounds, shown

DIFFERENT = "The rounds have different clients"


@dataclass(frozen=True)
class Change:
    """Of a number over training.

    Attributes:
        sign: 1 where it rises, -1 where it falls, 0 where that is undecided.
        sentence: what was compared beside the first and the last round; empty where nothing was.
        decide: what would decide it, as far as that is due to the clients; else empty.
        readings: the difference of the thirds' means, where they were compared.
    """

    sign: int
    sentence: str = ""
    decide: str = ""
    readings: tuple[Reading, ...] = ()


def clients_of(one: RoundFactors) -> frozenset[int]:
    """The ids of a round's clients."""
    return frozenset(row.client for row in one.clients)


def clients_differ(rounds: Sequence[RoundFactors]) -> bool:
    """Whether two of the rounds have different clients."""
    return len({clients_of(one) for one in rounds}) > 1


def change(values: Sequence[Reading], thirds: Sequence[Phase]) -> Change:
    """How two values or more, in order of their rounds, change over the run that `thirds` are of.

    Where the first and the last round have the same clients, those two are compared. Else their difference may be one
    between clients, which no interval over draws of the same clients holds. Then the number rises or falls where every
    round of the last third is apart from every one of the first, two rounds at least in both, and the means of both
    thirds are apart from each other by the scatter of their rounds (:func:`welch`). A trend within a third adds to
    that scatter, so it errs towards undecided. A round that is not decomposed counts as one with other clients.
    """
    cohorts: dict[int | None, frozenset[int]] = {one.round: clients_of(one) for phase in thirds for one in phase.rounds}
    first, last = values[0], values[-1]
    if all(value.round in cohorts for value in (first, last)) and cohorts[first.round] == cohorts[last.round]:
        return Change(_sign(first, last))
    named = {phase.name: phase for phase in thirds}
    if "early" not in named or any(named[name].first == named[name].last for name in ("early", "late")):
        return Change(0, "", f"{DIFFERENT}; a longer run would decide it, with two rounds in each third.")
    early, late = ([value for value in values if _within(value, named[name])] for name in ("early", "late"))
    if min(len(early), len(late)) < 2:
        spans = " and ".join(f"two from {named[name].first} to {named[name].last}" for name in ("early", "late"))
        return Change(0, "", f"{DIFFERENT}; more rounds would decide it, at least {spans}.")
    signs = {_sign(a, b) for a in early for b in late}
    gap = welch(early, late)
    if len(signs) > 1 or signs == {0}:
        known = all(value.half is not None for value in (*early, *late))
        decide = f"{DIFFERENT}, and thirds that overlap; full participation would decide it." if known else ""
        return Change(0, f"Of {_rounds(early)} and {_rounds(late)} not all are apart.", decide, (gap,))
    (sign,) = signs
    said = (
        f"{DIFFERENT}, so thirds are compared: each of {_rounds(late)} is {'above' if sign > 0 else 'below'} each of "
        f"{_rounds(early)}, and the difference of their means is {shown(gap)} by the scatter of the rounds."
    )
    if not finite(gap) or above(zero(gap), gap) == above(gap, zero(gap)):
        return Change(0, said, f"{DIFFERENT}; more rounds would decide it.", (gap,))
    return Change(sign, said, "", (gap,))


def welch(a: Sequence[Reading], b: Sequence[Reading]) -> Reading:
    """mean(b) - mean(a) over rounds, and its 95 % interval from their scatter alone, which may differ in both; two
    finite values at least in each.

    With v = s^2 / n of each, t on (v_a + v_b)^2 / (v_a^2 / (n_a - 1) + v_b^2 / (n_b - 1)) degrees of freedom times
    sqrt(v_a + v_b).

    Source: Welch, The generalization of Student's problem when several different population variances are involved
    (1947).

    >>> low, high = ([Reading("x", t, value) for t, value in enumerate(values)] for values in ((1, 2), (5, 6)))
    >>> welch(low, high).value, round(welch(low, high).half, 2)
    (4.0, 3.04)
    """
    groups = [[one.value for one in group if one.value is not None] for group in (a, b)]
    gap = fmean(groups[1]) - fmean(groups[0])
    of_a, of_b = (variance(group) / len(group) for group in groups)
    if of_a + of_b == 0:
        return Reading("late_minus_early", None, gap, gap, gap)
    # As shares of the sum, whose squares do not vanish.
    share_a, share_b = (part / (of_a + of_b) for part in (of_a, of_b))
    degrees = 1 / (share_a**2 / (len(groups[0]) - 1) + share_b**2 / (len(groups[1]) - 1))
    half = quantile(degrees) * sqrt(of_a + of_b)
    return Reading("late_minus_early", None, gap, gap - half, gap + half)


def _sign(first: Reading, last: Reading) -> int:
    return int(above(last, first)) - int(above(first, last))


def _within(value: Reading, phase: Phase) -> bool:
    return finite(value) and value.round is not None and phase.first <= value.round <= phase.last


def _rounds(values: Sequence[Reading]) -> str:
    return in_rounds([value.round for value in values if value.round is not None])
