"""Numbers with intervals, and how they are said."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Number:
    """A number with its 95 % interval.

    Attributes:
        where: what it is of, as ``round 75``; low, high: NaN where no interval exists.
        seeds: the values of which it is the mean, where the interval is over seeds.
        counted: where it is a share of counted things minus a number: the hits, of how many, and that number.
    """

    where: str
    value: float
    low: float = math.nan
    high: float = math.nan
    seeds: tuple[float, ...] = field(default=(), repr=False)
    counted: tuple[int, int, float] | None = field(default=None, repr=False)


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
    from fedscope.training.tables.statistics import paired_difference

    found = paired_difference(values, others)
    assert found is not None, where
    own = tuple(float(values[seed]) - float(others[seed]) for seed in values if seed in others)
    return Number(where, found.mean, found.low, found.high, own)
