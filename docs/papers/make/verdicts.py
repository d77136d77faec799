"""A claim of a paper, the rule by which it is judged, and the verdict. Rules were fixed before any result was seen."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

REPRODUCED, NOT, SMALL = "reproduced", "not reproduced", "too small to say"


@dataclass(frozen=True)
class Number:
    """A number with its 95 % interval.

    Attributes:
        where: what it is of, as ``round 75``; low, high: NaN where no interval exists.
        seeds: the values of which it is the mean, where the interval is over seeds.
    """

    where: str
    value: float
    low: float = math.nan
    high: float = math.nan
    seeds: tuple[float, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        claim: what the paper says, in our words; rule: when it counts as reproduced; numbers: measured; percent: how
            they are shown.
    """

    claim: str
    rule: str
    verdict: str
    numbers: tuple[Number, ...]
    percent: bool = False


def said(value: float, *, percent: bool = False) -> str:
    """A number on a page.

    >>> said(-0.0001, percent=True), said(0.01234)
    ('0.0 %', '0.0123')
    """
    return f"{100 * value:.1f} %".replace("-0.0 %", "0.0 %") if percent else f"{value:.3g}"


def points(number: Number) -> str:
    """A difference of accuracies with its interval.

    >>> points(Number("x", 0.0123, -0.001, 0.02))
    '+1.2 points (-0.1 to +2.0)'
    >>> points(Number("x", 0.0, -0.0001, 0.02))
    '0.0 points (0.0 to +2.0)'
    """
    value, low, high = (
        re.sub(r"^[+-](0\.0)$", r"\1", f"{100 * one:+.1f}") for one in (number.value, number.low, number.high)
    )
    return f"{value} points ({low} to {high})"


def borne(condition: bool, words: str) -> None:
    """Stop where the numbers do not bear what a sentence says of them.

    Raises:
        SystemExit: names the sentence.
    """
    if not condition:
        raise SystemExit(f"make papers: the numbers no longer say that {words}; write that finding anew")


def above_zero(claim: str, rule: str, numbers: Sequence[Number], *, percent: bool = False) -> Verdict:
    """Reproduced where every interval lies above 0, not where one lies below it, else too small to say.

    >>> above_zero("c", "r", [Number("a", 2, 1, 3), Number("b", 1, -1, 3)]).verdict
    'too small to say'
    """
    if all(one.low > 0 for one in numbers):
        verdict = REPRODUCED
    elif any(one.high < 0 for one in numbers):
        verdict = NOT
    else:
        verdict = SMALL
    return Verdict(claim, rule, verdict, tuple(numbers), percent)


def within(
    claim: str, rule: str, numbers: Sequence[Number], low: float, high: float, *, percent: bool = False
) -> Verdict:
    """Reproduced where every interval lies between two bounds, not where one lies outside, else too small to say.

    >>> within("c", "r", [Number("a", 0.8, 0.7, 0.9)], 0.75, 0.85).verdict
    'too small to say'
    """
    if all(one.low >= low and one.high <= high for one in numbers):
        verdict = REPRODUCED
    elif any(one.high < low or one.low > high for one in numbers):
        verdict = NOT
    else:
        verdict = SMALL
    return Verdict(claim, rule, verdict, tuple(numbers), percent)


def everywhere(claim: str, rule: str, numbers: Sequence[Number], least: float) -> Verdict:
    """Of shares without an interval: reproduced where all exceed a bound, else not.

    >>> everywhere("c", "r", [Number("a", 0.2), Number("b", 0.0)], 0.01).verdict
    'not reproduced'
    """
    verdict = REPRODUCED if all(one.value > least for one in numbers) else NOT
    return Verdict(claim, rule, verdict, tuple(numbers), percent=True)


def share_difference(where: str, a: float, b: float, samples: int) -> Number:
    """a − b of two error rates on the same samples; the interval takes them as independent, which is wider than true.

    >>> share_difference("x", 0.8, 0.6, 10_000)
    Number(where='x', value=0.2..., low=0.18..., high=0.21...)
    """
    width = 1.96 * math.sqrt((a * (1 - a) + b * (1 - b)) / samples)
    return Number(where, a - b, a - b - width, a - b + width)


def difference(where: str, values: Mapping[Any, float], others: Mapping[Any, float]) -> Number:
    """values − others, paired over the seeds by which they stand.

    >>> difference("x", {"0": 2.0, "1": 2.0}, {"0": 1.0, "1": 1.0})
    Number(where='x', value=1.0, low=1.0, high=1.0)
    """
    from fedscope.training.tables.statistics import paired

    found = paired(values, others)
    assert found is not None, where
    return Number(where, found.mean, found.low, found.high)
