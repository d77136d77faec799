"""Measured numbers with their intervals, and when two numbers are apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import fsum, hypot, isfinite, nan, sqrt
from statistics import fmean

import numpy as np
import numpy.typing as npt

from ..factors.fixed import all_alike
from ..factors.rows import ClientRow, RoundFactors, is_recorded

# Of one recorded model each: draws do not enter, so all of D leaves no error. Where runs are draws, each has its own.
WITHOUT_DRAWS = ("global_loss", "averaged_loss", "server_step")
# Of weights alone: no sample enters, so that of recorded models they are exact whatever was measured.
WITHOUT_SAMPLES = ("delta_max", "delta_mean")
#: share of the weight of one client beyond which there is no interval over clients
DOMINANT = 0.9


@dataclass(frozen=True)
class Reading:
    """A number behind a statement, and its 95 % interval `low` to `high`; in units of the loss, unless its name says a
    distance (`delta_max`), an error (a share, 0..1), a correlation or a similarity.

    `value` is None where the quantity does not exist; `low` and `high` are None where no interval does, and both are
    the value where neither draws nor a choice of samples enter it. `round` is None for a number over several rounds.

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
    models alone over samples only: of width 0 on all of D, where nothing is drawn, and of Δ, which no sample enters.

    No interval without `stderr_draws`, that is for R = 2 and for dependent draws, and none where the draws are all
    alike, because then it is one of rounding.
    """
    try:
        row = one.row(factor)
    except KeyError:
        return Reading(factor, one.round, None)
    alone = (factor in WITHOUT_DRAWS and one.draws != "runs") or is_recorded([one])
    exact = one.population or factor in WITHOUT_SAMPLES
    known = exact or row.stderr_samples is not None if alone else not all_alike(one)
    over_draws = 0.0 if alone else row.stderr_draws
    if row.value is None or over_draws is None or not known:
        return Reading(factor, one.round, row.value)
    half = hypot(quantile(one.count - 1) * over_draws if over_draws else 0.0, 1.96 * (row.stderr_samples or 0.0))
    return Reading(factor, one.round, row.value, row.value - half, row.value + half)


def clients_differ(rounds: Sequence[RoundFactors]) -> bool:
    """Tell whether two of the rounds have different clients."""
    return len({frozenset(row.client for row in one.clients) for one in rounds}) > 1


def mean_of_clients(name: str, one: RoundFactors, known: Sequence[tuple[ClientRow, float]]) -> Reading:
    """Compute the p-weighted mean of a number of each client, and its 95 % interval over clients, as if they had been
    drawn from many.

    A client that took part in several rounds of an average over rounds is one: its weights are added up, and its number
    is the mean of its models' with these weights, because they are no independent draws of a client.

    Of the K clients with p_k > 0, p normalised over them, m = Σ p_k x_k and S = Σ p_k²; 1/S is how many clients of
    equal weight the mean is worth.

        s² = Σ_k p_k² (x_k − m)² / (1 − 2 p_k + S)           m ± t(0.975; ν) s
        ν  = (tr B)² / tr B²,   B = Mᵀ diag(p_k² / (1 − 2 p_k + S)) M,   M = I − 1 pᵀ

    Where all x_k have one variance σ², that of x_k − m is (1 − 2 p_k + S) σ², so that s² is unbiased, and ν are
    Satterthwaite's degrees of freedom of it. With equal p it is the standard deviation over √K with ν = K − 1. Of
    40,000 simulated cohorts each, these shares of intervals hold the true mean (± 0.5 %), where x are normal or
    exponential:

    =============================================  =====  =====  ======  ===========
    weights                                        1/S    ν      normal  exponential
    =============================================  =====  =====  ======  ===========
    10 alike                                       10     9      95 %    90 %
    0.8 and 0.2                                    1.5    1      96 %    92 %
    0.5, 0.2, 0.1, 0.05, 0.05, 0.04, ... 0.01      3.3    1.2    99.8 %  99 %
    0.9, and nine of 0.011                         1.2    1      99 %    99 %
    two of 0.4996, and eight of 0.0001             2.0    1      95 %    91 %
    100, log-normal with σ = 1.5                   32     12     96 %    93 %
    =============================================  =====  =====  ======  ===========

    No interval for a single client, nor where one has more than nine tenths of the weight (see :func:`dominant`): the
    others hardly say how far such a mean would be from that of other clients.
    """
    taking_part = [(row.weight, value) for row, value in known if row.weight > 0]
    total = fsum(weight for weight, _ in taking_part)
    if total <= 0:
        return Reading(name, one.round, None)
    mean = fsum(weight * value for weight, value in taking_part) / total
    each = [(weight, value) for _, weight, value in by_client(known) if weight > 0]
    if len(each) < 2 or dominant([row for row, _ in known]) is not None:
        return Reading(name, one.round, mean)
    p = np.array([weight / total for weight, _ in each])
    kept = 1 - 2 * p + fsum(p**2)
    with np.errstate(invalid="ignore", over="ignore"):  # of clients that diverged
        squares = p**2 * np.square([value - mean for _, value in each]) / kept
    half = quantile(_degrees(p, p**2 / kept)) * sqrt(fsum(squares)) if np.isfinite(squares).all() else nan
    return Reading(name, one.round, mean, mean - half, mean + half)


def by_client(known: Iterable[tuple[ClientRow, float]]) -> list[tuple[int, float, float]]:
    """Return (client, weight, number) of a number of each model: once for a client in several rounds, with the sum of
    its models' weights and the mean of their numbers with these weights.

    >>> rows = [ClientRow(k, None, weight, None, None, None, 0.0) for k, weight in ((3, 0.25), (8, 0.5), (3, 0.25))]
    >>> by_client(zip(rows, (1.0, 4.0, 2.0)))
    [(3, 0.5, 1.5), (8, 0.5, 4.0)]
    """
    models: dict[int, list[tuple[float, float]]] = {}
    for row, value in known:
        models.setdefault(row.client, []).append((row.weight, value))
    return [(client, *_joined(own)) for client, own in models.items()]


def _joined(models: Sequence[tuple[float, float]]) -> tuple[float, float]:
    if len(models) == 1:
        return models[0]
    total = fsum(weight for weight, _ in models)
    if total <= 0:
        return 0.0, fmean(value for _, value in models)
    return total, fsum(weight * value for weight, value in models if weight > 0) / total


def _degrees(p: npt.NDArray[np.float64], scale: npt.NDArray[np.float64]) -> float:
    """ν of Σ scale_k (x_k − m)², see :func:`mean_of_clients`, in O(K): with d = scale and S = Σ p², D = Σ d,

    B = diag(d) − d pᵀ − p dᵀ + D p pᵀ, of which tr B² is the sum of squares of its entries.
    """
    own, total = float(p @ p), float(scale.sum())
    trace = float(scale.sum() - 2 * scale @ p + total * own)
    cross, both = float(scale @ p), float(scale @ scale)
    squares = (
        both
        + 2 * (both * own + cross**2)
        + total**2 * own**2
        - 4 * float(scale**2 @ p)
        + 2 * total * float(scale @ p**2)
        - 4 * total * cross * own
    )
    return min(trace**2 / squares, len(p) - 1.0)


def dominant(clients: Sequence[ClientRow]) -> int | None:
    """Return the client with more than nine tenths of the weight of several, whose mean has no interval over clients.

    >>> rows = [ClientRow(k, None, weight, None, None, None, 0.0) for k, weight in ((3, 0.95), (8, 0.05))]
    >>> dominant(rows), dominant(rows[:1])
    (3, None)
    """
    there = [(client, weight) for client, weight, _ in by_client((row, 0.0) for row in clients) if weight > 0]
    client, most = max(there, key=lambda one: one[1], default=(None, 0.0))
    return None if len(there) < 2 or most <= DOMINANT * fsum(weight for _, weight in there) else client


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
