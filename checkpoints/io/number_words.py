"""Numbers in words that tell them apart: names of rows, files and settings, where two numbers must not be one."""

from __future__ import annotations

from collections.abc import Iterable

#: digits of a number that is only looked at, and as many as any two of double precision need
USUAL, MOST = 6, 17


def exact(value: float) -> str:
    """Write a number in six digits where these say it, else in as many as do.

    >>> exact(0.1), exact(1.0), exact(0.10000004), exact(1234567.0)
    ('0.1', '1', '0.10000004', '1234567.0')
    """
    short = f"{value:g}"
    return short if float(short) == value or value != value else repr(float(value))


def digits_apart(values: Iterable[float]) -> int:
    """Return in how many digits different numbers are written apart, six at least; whole numbers have all of theirs.

    >>> digits_apart([0.1, 0.3333333333]), digits_apart([0.1, 0.10000004]), digits_apart([100000, 100000.25])
    (6, 8, 7)
    """
    different = {value for value in values if value == value}
    for digits in range(USUAL, MOST):
        if len({number_words(value, digits) for value in different}) == len(different):
            return digits
    return MOST


def number_words(value: float, digits: int = USUAL) -> str:
    """Write a number in so many digits, a whole one in all of its own.

    >>> number_words(0.10000004), number_words(0.10000004, 8), number_words(1234568)
    ('0.1', '0.10000004', '1234568')
    """
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
