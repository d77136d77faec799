"""What becomes of a claim: five outcomes, as functions of numbers with intervals."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from verdicts import Number

REPRODUCED, CONTRADICTED, MIXED = "reproduced", "contradicted", "mixed"
UNDECIDED, UNTESTED = "undecided", "not tested at this size"
#: outcomes that numbers have decided
DECIDED = (REPRODUCED, CONTRADICTED, MIXED)
#: chance with which a test must find an effect of the measured size, and the most seeds that are worth a number
POWER, MOST = 0.8, 1000
#: why an outcome is mixed that a bound turns
TURNED = "it depends on a bound of ours"
#: of a normal number, half its 95 % interval in deviations; and how often a number without an effect lies apart
NORMAL, LEVEL = 1.96, 0.05
#: deviations of a mean with which any test finds an effect, also of two seeds (in all but 1e-6 of cases)
SURE = 70.0


@dataclass(frozen=True)
class Cost:
    """What one more seed costs.

    Attributes:
        seeds: that the plan has; rounds: of each; hours: of each, measured where a seed is finished, else estimated.
    """

    seeds: int
    rounds: int
    hours: float

    @property
    def said(self) -> str:
        """In a sentence."""
        return f"{self.rounds:,} rounds and about {self.hours:.2g} hours each"


@dataclass(frozen=True)
class Outcome:
    """What became of a claim.

    Attributes:
        claim: what the paper says, in our words, narrowed to what was run; rule: by which it is judged.
        kind: one of the five; why: which way and how often, or what would decide; numbers: measured.
        percent: how numbers are shown; ours: the claim is ours, not the paper's.
        bound: of ours, what it is, with ``…`` for its value; curve: its values and the outcome at each.
        changed: what of the rule was changed after results were seen; key: the same claim of runs of another length
            has the same one.
        effects: how many of the numbers, the first, are pooled over the others.
        learnt: what says which models have learnt, where that hangs on little; ran: runs of that cost are there.
    """

    claim: str
    rule: str
    kind: str
    why: str
    numbers: tuple[Number, ...]
    percent: bool = False
    ours: bool = False
    bound: str = ""
    curve: tuple[tuple[str, str], ...] = ()
    changed: str = ""
    key: str = ""
    effects: int = 0
    learnt: str = ""
    ran: bool = True

    @property
    def depends(self) -> bool:
        """Whether a bound of ours turns it."""
        return len({kind for _, kind in self.curve} & set(DECIDED)) > 1


def over_seeds(where: str, values: Mapping[Any, float]) -> Number:
    """The mean over seeds with Student's 95 % interval; without one where there is a single seed.

    >>> over_seeds("x", {0: 1.0, 1: 2.0, 2: 3.0})
    Number(where='x', value=2.0, low=-0.48..., high=4.48...)
    """
    import numpy as np
    from scipy.stats import t

    own = np.array([values[seed] for seed in values], float)
    mean, reach = float(own.mean()), math.nan
    if len(own) > 1:
        reach = float(t.ppf(0.975, len(own) - 1) * own.std(ddof=1) / math.sqrt(len(own)))
    return Number(where, mean, mean - reach, mean + reach, tuple(map(float, own)))


def pooled(where: str, cases: Mapping[Any, Mapping[Any, float]]) -> Number:
    """The effect in general: by seed the mean over cases, as methods or rounds, and over seeds its interval.

    Raises:
        ValueError: a case lacks a seed that another has.
    """
    seeds = list(next(iter(cases.values())))
    if any(set(own) != set(seeds) for own in cases.values()):
        raise ValueError(f"{where}: not every case has the seeds {seeds}")
    return over_seeds(where, {seed: math.fsum(own[seed] for own in cases.values()) / len(cases) for seed in seeds})


def side(number: Number, low: float, high: float) -> int:
    """1 where the whole interval lies between two bounds, -1 where all of it lies outside on one side, else 0.

    >>> [side(Number("x", 2, *ends), 0, math.inf) for ends in ((1, 3), (-1, 3), (-3, -1), (math.nan, math.nan), (0, 3))]
    [1, 0, -1, 0, 0]
    """
    if number.low > low and number.high < high:
        return 1
    return -1 if number.high < low or number.low > high else 0


def sides_of(numbers: Sequence[Number], low: float, high: float) -> list[int]:
    """Of each number its `side`, corrected for how many are looked at (Holm): 0 where chance alone would do it.

    Of many numbers without an effect some lie apart by their own intervals; with the correction one does at most in 5 %
    of all cases. Of numbers over seeds the test is Student's, of shares of a count the exact binomial one; else the
    interval is taken as normal on each side.

    >>> one = [Number(str(k), 2.0, 0.2, 3.8) for k in range(3)]
    >>> sides_of(one[:1], 0, math.inf), sides_of(one, 0, math.inf)
    ([1], [0, 0, 0])
    """
    own, found = [side(one, low, high) for one in numbers], [0] * len(numbers)
    for i, _, _ in _apart(numbers, low, high):
        found[i] = own[i]
    return found


def _apart(numbers: Sequence[Number], low: float, high: float) -> list[tuple[int, float, float]]:
    """Of the numbers that lie apart after Holm's correction: the place, the chance, and the most that it may be."""
    left = sum(not math.isnan(one.low) for one in numbers)  # numbers without an interval are not tested
    chances = {i: chance(one, low, high) for i, one in enumerate(numbers) if side(one, low, high)}
    found = []
    for i in sorted(chances, key=lambda i: chances[i]):
        if left > 1 and chances[i] > LEVEL / left:
            break
        found.append((i, chances[i], LEVEL / left))
        left -= 1
    return found


def thinnest(numbers: Sequence[Number], low: float, high: float) -> str:
    """Of the shares of a count that lie outside after the correction, the one that is nearest to not doing so.

    >>> thinnest([], 0, math.inf)
    ''
    """
    outside = [
        (p / most, p, most, numbers[i]) for i, p, most in _apart(numbers, low, high) if side(numbers[i], low, high) < 0
    ]
    near = [(p, most, one.counted) for _, p, most, one in sorted(outside, key=lambda item: -item[0]) if one.counted]
    if not near:
        return ""
    p, most, (hits, count, _) = near[0]
    return f"{hits} of {count} has p = {p:.4f} against {most:.4f}"


def chance(number: Number, low: float, high: float) -> float:
    """How often a number as far from the bounds would be seen without an effect: the greater p-value of both bounds
    where it lies between them, else that of the bound that it exceeds."""
    from scipy.stats import norm, t

    inside_ = low < number.value < high
    ends = [low, high] if inside_ else [low if number.value <= low else high]
    found = []
    for bound in filter(math.isfinite, ends):
        if number.counted is not None:
            hits, count, less = number.counted
            found.append(_binomial(hits, count, bound + less))
            continue
        far = abs(number.value - bound)
        if len(number.seeds) > 1:
            half, tail, edge = (number.high - number.low) / 2, t, float(t.ppf(1 - LEVEL / 2, len(number.seeds) - 1))
            how = {"df": len(number.seeds) - 1}
        else:
            half = number.value - number.low if bound < number.value else number.high - number.value
            tail, edge, how = norm, float(norm.ppf(1 - LEVEL / 2)), {}
        found.append(2 * float(tail.sf(edge * far / half, **how)) if half else 0.0)
    return max(found, default=0.0)


def _binomial(hits: int, count: int, share: float) -> float:
    """The two-sided p-value of as many hits, twice the smaller tail, as the interval by Clopper and Pearson has it.

    >>> round(_binomial(12, 40, 0.5), 5)
    0.01659
    """
    from scipy.stats import binom

    if not 0 <= share <= 1:
        return 0.0
    return min(1.0, 2 * float(min(binom.cdf(hits, count, share), binom.sf(hits - 1, count, share))))


def above(
    claim: str,
    rule: str,
    numbers: Sequence[Number],
    cost: Cost | None = None,
    *,
    bound: float = 0.0,
    percent: bool = False,
    ours: bool = False,
) -> Outcome:
    """A claim that each number lies above a bound."""
    return inside(claim, rule, numbers, bound, math.inf, cost, percent=percent, ours=ours)


def inside(
    claim: str,
    rule: str,
    numbers: Sequence[Number],
    low: float,
    high: float,
    cost: Cost | None = None,
    *,
    percent: bool = False,
    ours: bool = False,
) -> Outcome:
    """A claim that each number lies between two bounds.

    Reproduced where every interval does: that all of them do needs no correction. Contradicted where one lies outside
    and none inside, since the claim is of all of them. Mixed where some lie inside and some outside; both corrected for
    their number, see `sides_of`. Else undecided.
    """
    if not numbers:
        return untested(claim, rule, "nothing was measured for it", cost, ours=ours)
    every = [side(one, low, high) for one in numbers]
    sides = sides_of(numbers, low, high)
    yes, no = sides.count(1), sides.count(-1)
    said = _counted(numbers, sides, low, high)
    if every.count(1) == len(every):
        kind, why = REPRODUCED, ""
    elif no:
        kind, why = MIXED if yes else CONTRADICTED, said
    else:
        open_ = [one for one, own in zip(numbers, every, strict=True) if own < 1]
        kind, why = UNDECIDED, _joined(said, would_decide(open_, low, high, cost))
    return Outcome(claim, rule, kind, why, tuple(numbers), percent, ours)


def in_general(
    claim: str,
    rule: str,
    effect: Number,
    parts: Sequence[Number],
    cost: Cost | None = None,
    *,
    low: float = 0.0,
    high: float = math.inf,
    percent: bool = False,
    ours: bool = False,
) -> Outcome:
    """A claim of methods or rounds in general: the pooled effect decides, unless a part lies apart on the other side.

    Args:
        effect: over all of them; parts: of each.
    """
    return in_each(claim, rule, [effect], parts, cost, low=low, high=high, percent=percent, ours=ours)


def in_each(
    claim: str,
    rule: str,
    effects: Sequence[Number],
    parts: Sequence[Number],
    cost: Cost | None = None,
    *,
    low: float = 0.0,
    high: float = math.inf,
    percent: bool = False,
    ours: bool = False,
) -> Outcome:
    """A claim of several pooled effects, as of both runs: all of them must lie between the bounds.

    Mixed where effects lie apart on both sides, or where a part lies apart on the other side than the effects do. What
    lies outside is corrected for how many are looked at, see `sides_of`.

    Args:
        effects: each over its parts; parts: of all effects.
    """
    every, corrected = [side(one, low, high) for one in effects], sides_of(effects, low, high)
    sides = sides_of(parts, low, high)
    yes, no = sides.count(1), sides.count(-1)
    said = _counted(parts, sides, low, high)
    if every.count(1) == len(every):
        kind, why = (MIXED, said) if no else (REPRODUCED, "")
    elif -1 in corrected:
        mixed = bool(yes or corrected.count(1))
        told = counted(corrected.count(1), corrected.count(-1), len(effects)) if len(effects) > 1 else ""
        kind, why = (MIXED, told or said) if mixed else (CONTRADICTED, told)
    elif no and (yes or 1 in corrected):
        kind, why = MIXED, said
    else:
        open_ = [one for one, own in zip(effects, every, strict=True) if own < 1]
        kind, why = UNDECIDED, _joined(said, would_decide(open_, low, high, cost))
    return Outcome(claim, rule, kind, why, (*effects, *parts), percent, ours, effects=len(effects))


def at_least(
    claim: str, rule: str, numbers: Sequence[Number], margin: float, cost: Cost | None = None, *, percent: bool = False
) -> Outcome:
    """A claim of at least as good: no interval reaches below minus a margin."""
    return inside(claim, rule, numbers, -margin, math.inf, cost, percent=percent)


def untested(
    claim: str, rule: str, why: str, cost: Cost | None = None, *, ours: bool = False, longer: bool = False
) -> Outcome:
    """A claim that nothing here bears on; says what would.

    Args:
        longer: runs of that cost are there, so only longer ones would.
    """
    need = f"{cost.seeds} seeds of {'more than ' if longer else ''}{cost.said} would be a first test" if cost else ""
    return Outcome(claim, rule, UNTESTED, _joined(why, need), (), ours=ours, ran=longer)


def over_bound(words: str, nominal: float, bounds: Sequence[float], judge: Callable[[float], Outcome]) -> Outcome:
    """The outcome at our bound, with the curve over it; mixed, and said so, where the bound turns it.

    Args:
        words: what the bound is, with ``…`` for its value; nominal: the bound that was chosen, one of the others.
    """
    found = {bound: judge(bound) for bound in bounds}
    curve = tuple((f"{bound:g}", own.kind) for bound, own in found.items())
    own = replace(found[nominal], bound=words, curve=curve)
    if own.depends:
        return replace(own, kind=MIXED, why=_joined(TURNED, own.why))
    return own


def counted(yes: int, no: int, count: int) -> str:
    """How often which way.

    >>> counted(3, 1, 6), counted(0, 1, 1)
    ('as claimed in 3 of 6, the other way in 1 and not apart in 2', 'as claimed in 0 of 1, the other way in 1')
    """
    parts = [f"as claimed in {yes} of {count}", *([f"the other way in {no}"] if no else [])]
    parts += [f"not apart in {count - yes - no}"] if count - yes - no else []
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 2 else ", ".join(parts)


def _counted(numbers: Sequence[Number], sides: Sequence[int], low: float, high: float) -> str:
    """How often which way; of numbers without an interval, by their values."""
    apart = [own for own, one in zip(sides, numbers, strict=True) if not math.isnan(one.low)]
    bare = [one for one in numbers if math.isnan(one.low)]
    right = sum(low < one.value < high for one in bare)
    return _joined(
        counted(apart.count(1), apart.count(-1), len(apart)) if len(apart) > 1 or (apart and bare) else "",
        f"of {len(bare)} without an interval {right} as claimed" if bare else "",
    )


def would_decide(numbers: Sequence[Number], low: float, high: float, cost: Cost | None) -> str:
    """How many seeds would set these apart from the bounds.

    Where an interval is not over seeds, seeds are taken to spread as the interval says.
    """
    each = f", of {cost.said}" if cost else ""
    if any(math.isnan(one.low) for one in numbers):
        planned = f"; {cost.seeds} would give one{each}" if cost and cost.seeds > 1 else ""
        return f"a single seed has no interval over seeds{planned}"
    needed = [seeds_needed(one, nearest(one, low, high)) for one in numbers]
    if any(one is None for one in needed):
        return f"more than {MOST:,} seeds would be needed{each}: the effect, if any, is too small beside its spread"
    most = max(one for one in needed if one)
    spread = "and spread" if all(one.seeds for one in numbers) else "if they spread as the interval does"
    return f"{most} seeds would decide at this effect {spread}{each}"


def nearest(number: Number, low: float, high: float) -> float:
    """The bound that a number must be set apart from."""
    ends = [bound for bound in (low, high) if math.isfinite(bound)]
    return min(ends, key=lambda bound: abs(number.value - bound))


def seeds_needed(number: Number, bound: float) -> int | None:
    """The least seeds with which a two-sided test at 5 % finds this effect with this spread four times in five; more
    than those that are there, which have not decided.

    >>> seeds_needed(over_seeds("x", {0: 0.0, 1: 1.0, 2: 2.0}), 0.0)
    10
    >>> seeds_needed(over_seeds("x", {0: 5 / 7, 1: 6 / 7}), 0.0)
    3
    """
    import numpy as np

    effect = abs(number.value - bound)
    spread = float(np.std(number.seeds, ddof=1)) if len(number.seeds) > 1 else (number.high - number.low) / 2 / NORMAL
    if not effect:
        return None
    counts = range(max(2, len(number.seeds) + 1), MOST + 1)
    if not spread:
        return counts[0]
    first = bisect_left(counts, POWER, key=lambda n: power(n, effect / spread))  # more seeds never find less
    return counts[first] if first < len(counts) else None


@cache
def power(n: int, size: float) -> float:
    """How often a two-sided t-test at 5 % with ``n`` seeds finds an effect of ``size`` standard deviations.

    >>> round(power(2, 100.0), 3), round(power(1000, 100.0), 3)
    (1.0, 1.0)
    """
    from scipy.stats import nct, t

    edge, shift = t.ppf(0.975, n - 1), abs(size) * math.sqrt(n)
    if shift > SURE:
        return 1.0
    near, far = float(nct.sf(edge, n - 1, shift)), float(nct.cdf(-edge, n - 1, shift))
    return near + (0.0 if math.isnan(far) else far)  # scipy has no number for a tail that is next to nothing


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
