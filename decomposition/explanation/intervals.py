"""Intervals of measured numbers, and when two numbers are apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum, hypot, isfinite, nan, sqrt

from ..factors.records import ClientRow, RoundFactors
from .records import Reading

# Of one recorded model each: draws do not enter, so all of D leaves no error.
WITHOUT_DRAWS = ("global_loss", "averaged_loss", "server_step")

# Below it, the draws of a client are the same model up to rounding.
FULL_BATCHES = 1e-12


def read(one: RoundFactors, factor: str) -> Reading:
    """A factor of a round with its 95 % interval: t on R - 1 degrees of freedom times `stderr_draws`, and where the
    samples are not all of D, 1.96 `stderr_samples` beside it, added in quadrature (the page says so).

    No interval without `stderr_draws`, that is for R = 2 and for dependent draws, and none where the draws are all
    alike, because then it is one of rounding.
    """
    try:
        row = one.row(factor)
    except KeyError:
        return Reading(factor, one.round, None)
    if row.value is None:
        return Reading(factor, one.round, None)
    if factor in WITHOUT_DRAWS:
        over_draws: float | None = 0.0
        known = one.population or row.stderr_samples is not None
    else:
        over_draws = row.stderr_draws
        known = over_draws is not None and not all_alike(one)
    if not known or over_draws is None:
        return Reading(factor, one.round, row.value)
    half = hypot(quantile(one.count - 1) * over_draws, 1.96 * (row.stderr_samples or 0.0))
    return Reading(factor, one.round, row.value, row.value - half, row.value + half)


def all_alike(one: RoundFactors) -> bool:
    """Whether the draws are the same models up to rounding, as replays are where clients take full batches."""
    try:
        value = one.row("variance").value
    except KeyError:
        return False
    return value is not None and abs(value) < FULL_BATCHES


def mean_of_clients(name: str, one: RoundFactors, known: Sequence[tuple[ClientRow, float]]) -> Reading:
    """The p-weighted mean of a number of each client, and its interval over clients, as if the K of them had been drawn
    from many: t on K - 1 degrees of freedom times sqrt(K / (K-1) sum_k p_k^2 (x_k - mean)^2), p normalised over them.
    With equal p that is the standard deviation over sqrt(K). No interval for a single client."""
    total = fsum(row.weight for row, _ in known)
    if not known or total <= 0:
        return Reading(name, one.round, None)
    count = len(known)
    mean = fsum(row.weight * value for row, value in known) / total
    if count < 2:
        return Reading(name, one.round, mean)
    spread = fsum((row.weight / total * (value - mean)) ** 2 for row, value in known)
    half = quantile(count - 1) * sqrt(count / (count - 1) * spread)
    return Reading(name, one.round, mean, mean - half, mean + half)


def above(a: Reading, b: Reading, factor: float = 1.0) -> bool:
    """Whether a's whole interval lies above `factor` times b's (factor >= 0); False where an interval does not exist.

    Conservative whatever the dependence of the two: |a - b| > t s_a + t s_b implies |a - b| > t s_{a-b}.

    >>> above(Reading("a", 1, 2.0, 1.5, 2.5), Reading("b", 1, 1.0, 0.5, 1.4))
    True
    """
    if a.low is None or b.high is None:
        return False
    return a.low > factor * b.high


def zero(one: Reading) -> Reading:
    """0, to compare a number with."""
    return Reading("0", one.round, 0.0, 0.0, 0.0)


def magnitude(one: Reading) -> Reading:
    """|x| and its interval.

    >>> magnitude(Reading("locality", 1, -0.5, -0.6, 0.4))
    Reading(name='locality', round=1, value=0.5, low=0.0, high=0.6)
    """
    if one.value is None:
        return one
    if one.low is None or one.high is None:
        return replace(one, value=abs(one.value))
    low, high = sorted((abs(one.low), abs(one.high)))
    return replace(one, value=abs(one.value), low=low if one.low > 0 or one.high < 0 else 0.0, high=high)


def difference(a: Reading, b: Reading) -> Reading:
    """a - b; its half-width is the sum of both, so that it holds 0 exactly where the intervals touch."""
    if a.value is None or b.value is None:
        return Reading(a.name, a.round, None)
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Reading(a.name, a.round, a.value - b.value)
    return Reading(a.name, a.round, a.value - b.value, a.low - b.high, a.high - b.low)


def size(one: Reading) -> float:
    """|value| to rank by; NaN where there is none."""
    return nan if one.value is None else abs(one.value)


def finite(one: Reading) -> bool:
    """Whether there is a value to rank."""
    return one.value is not None and isfinite(one.value)


def broken(one: Reading) -> bool:
    """Whether there is a value, but NaN or infinite."""
    return one.value is not None and not isfinite(one.value)


def quantile(degrees: float) -> float:
    """Student's t of a 95 % interval.

    >>> round(quantile(3), 3)
    3.182
    """
    from scipy.stats import t

    return float(t.ppf(0.975, degrees))
