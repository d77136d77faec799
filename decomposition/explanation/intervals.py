"""Measured numbers with their intervals, and when two numbers are apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum, hypot, isfinite, nan, sqrt

from ..factors.fixed import all_alike
from ..factors.rows import ClientRow, RoundFactors, is_recorded

# Of one recorded model each: draws do not enter, so all of D leaves no error.
WITHOUT_DRAWS = ("global_loss", "averaged_loss", "server_step")


@dataclass(frozen=True)
class Reading:
    """A number behind a statement, and its 95 % interval `low` to `high`; in units of the loss, unless its name says a
    distance (`delta_max`), an error (a share, 0..1), a correlation or a similarity.

    `value` is None where the quantity does not exist; `low` and `high` are None where no interval does, and both are
    the value where it was measured on all of D without draws. `round` is None for a number over several rounds.

    >>> Reading("locality", 60, -0.2, -0.25, -0.15).half
    0.05
    """

    name: str
    round: int | None
    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def half(self) -> float | None:
        """Half the width of the interval; None where there is none."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


def read(one: RoundFactors, factor: str) -> Reading:
    """Read a factor of a round with its 95 % interval: t on R - 1 degrees of freedom times `stderr_draws`, and where
    the samples are not all of D, also 1.96 `stderr_samples`, added in quadrature (the page says so). Of the recorded
    models alone over samples only: none on all of D, where nothing is drawn.

    No interval without `stderr_draws`, that is for R = 2 and for dependent draws, and none where the draws are all
    alike, because then it is one of rounding.
    """
    try:
        row = one.row(factor)
    except KeyError:
        return Reading(factor, one.round, None)
    alone = factor in WITHOUT_DRAWS or is_recorded([one])
    known = one.population or row.stderr_samples is not None if alone else not all_alike(one)
    over_draws = 0.0 if alone else row.stderr_draws
    if row.value is None or over_draws is None or not known:
        return Reading(factor, one.round, row.value)
    half = hypot(quantile(one.count - 1) * over_draws if over_draws else 0.0, 1.96 * (row.stderr_samples or 0.0))
    return Reading(factor, one.round, row.value, row.value - half, row.value + half)


def clients_differ(rounds: Sequence[RoundFactors]) -> bool:
    """Tell whether two of the rounds have different clients."""
    return len({frozenset(row.client for row in one.clients) for one in rounds}) > 1


def mean_of_clients(name: str, one: RoundFactors, known: Sequence[tuple[ClientRow, float]]) -> Reading:
    """Compute the p-weighted mean of a number of each client, and its interval over clients, as if the K of them had
    been drawn from many: t on K - 1 degrees of freedom times sqrt(K / (K-1) sum_k p_k^2 (x_k - mean)^2), p normalised
    over them. With equal p that is the standard deviation over sqrt(K). No interval for a single client."""
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
    """Tell whether a's whole interval lies above `factor` times b's (factor >= 0); False where an interval does not
    exist.

    Conservative whatever the dependence of the two: |a - b| > t s_a + t s_b implies |a - b| > t s_{a-b}.

    >>> above(Reading("a", 1, 2.0, 1.5, 2.5), Reading("b", 1, 1.0, 0.5, 1.4))
    True
    """
    if a.low is None or b.high is None:
        return False
    return a.low > factor * b.high


def order(a: Reading, b: Reading | None = None) -> int:
    """1 where a lies :func:`above` b, -1 where it lies below, else 0; b is 0 by default.

    >>> order(Reading("locality", 1, -0.5, -0.6, -0.4)), order(Reading("locality", 1, -0.5, -0.6, 0.1))
    (-1, 0)
    """
    other = zero(a) if b is None else b
    return int(above(a, other)) - int(above(other, a))


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


def subtract(a: Reading, b: Reading) -> Reading:
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
    """Tell whether there is a value to rank."""
    return one.value is not None and isfinite(one.value)


def broken(one: Reading) -> bool:
    """Tell whether there is a value, but NaN or infinite."""
    return one.value is not None and not isfinite(one.value)


def quantile(degrees: float) -> float:
    """Student's t of a 95 % interval.

    >>> round(quantile(3), 3)
    3.182
    """
    from scipy.stats import t

    return float(t.ppf(0.975, degrees))
