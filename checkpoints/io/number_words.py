"""Numbers in words that tell them apart: names of rows, files and settings, where two numbers must not be one."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

import numpy as np

#: the least number that float32 has in all its digits
_NORMAL = 2.0**-126


def exact(value: float) -> str:
    """Write a number in six digits where these say it, else in as many as do.

    >>> exact(0.1), exact(1.0), exact(0.10000004), exact(1234567.0)
    ('0.1', '1', '0.10000004', '1234567.0')
    """
    short = f"{value:g}"
    return short if float(short) == value or value != value else repr(float(value))


def joined(values: Iterable[float]) -> dict[float, float]:
    """Return of each number the one that stands for it: of those that float32 rounds to one, that with the fewest
    digits.

    Nobody means two settings by 0.3, by 0.1 * 3, whose last bit is another one, and by a 0.3 that was kept in float32
    on its way, which is off by up to 6e-8 of it. Whole numbers are exact in each of these, and stay as they are.

    >>> set(joined([0.3, 0.1 * 3, float(np.float32(0.3)), 0.30000004]).values()) == {0.3, 0.30000004}
    True
    >>> len(set(joined([1234567.0, 1234568.0, 2**40, 2**40 + 1, 1e-50, 1e-51]).values()))
    6
    """
    given = [value for value in values if value == value]
    shortest: dict[float, float] = {}
    for value in sorted(given, key=lambda one: (len(repr(one)), one)):
        shortest.setdefault(_rounded(value), value)
    return {value: shortest[_rounded(value)] for value in given}


def _rounded(value: float) -> float:
    if isinstance(value, int) or value.is_integer():
        return value
    with np.errstate(over="ignore", under="ignore"):
        near = float(np.float32(value))
    return near if isfinite(near) and abs(near) >= _NORMAL else value


def words_apart(values: Iterable[float]) -> dict[float, str]:
    """Write different numbers each in words of its own: in six digits where no other one is written so, else in as many
    as say it; whole numbers have all of theirs.

    >>> words_apart([0.1, 0.10000004, 0.3333333333])
    {0.1: '0.1', 0.10000004: '0.10000004', 0.3333333333: '0.333333'}
    >>> list(words_apart([1234567.0, 1234568.0, 10000000]).values())
    ['1234567', '1234568', '10000000']
    """
    different = dict.fromkeys(value for value in values if value == value)
    usual = [number_words(value) for value in different]
    return {
        value: said if usual.count(said) == 1 else repr(value).removesuffix(".0")
        for value, said in zip(different, usual, strict=True)
    }


def number_words(value: float) -> str:
    """Write a number in six digits, a whole one in all of its own.

    >>> number_words(0.10000004), number_words(1234568)
    ('0.1', '1234568')
    """
    return f"{value:g}" if isinstance(value, float) else str(value)
