"""Is ``global`` what the round's clients give? If not, which known server explains it.

With Δ_k = w_k - start, m = Σ p_k Δ_k and d = global - start, a server that averages has d = m. Others that are known:
the plain mean of the clients, a rate η (d = η m, η < 0 where the sign is wrong), momentum (d_t = η m_t + β d_{t-1}),
Nesterov momentum as DiLoCo's (v_t = β v_{t-1} + m_t, d_t = η (m_t + β v_t)), the median of the clients, one of them.
Two mistakes of loops are told by the same numbers: updates that were given as models (d = η Σ p_k w_k), and a start of
after the aggregation, which the clients' moves leave no way from (m = 0, and no Δ_k is).
Without start, a mean, the median and one client are told from the clients alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from math import isnan, nan

import numpy as np
from xxhash import xxh3_128_digest

from ..io.errors import list_few
from ..models.weights import BFLOAT16, Layout
from ..rounds.round import Round
from .client_moves import ClientMoves, SampledParameters, fit
from .coerce_models import ModelTensors, coerce_model, numbers_of

#: numbers that a rate and momenta, three coefficients, are told from, at least
FEW = 12
_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, BFLOAT16: 2.0**-7}
#: rounding that is larger than this share of the server's step leaves nothing to be said
_COARSE = 0.2
#: rates that differ from 1 by less are those of a mean, or cannot be told from it in a coarse precision
_SLIGHT, _PLAIN = 0.05, 0.01
#: how many deviations a rate is from 1 before it counts as another
_SURE = 5.0
#: ways that cancel keep less than this share of what chance would leave of them
_CANCELLED = 0.3


class Rule(IntEnum):
    """A rule that explains a round's ``global``; the number is what ``metrics.csv`` has as ``server_rule``."""

    UNKNOWN = 0
    MEAN = 1
    RATE = 2
    MOMENTUM = 3
    NESTEROV = 4
    MEDIAN = 5
    ONE_CLIENT = 6
    UNCHANGED = 7
    COARSE = 8
    UNKNOWN_WITHOUT_START = 9
    UPDATES = 10
    LATE_START = 11


@dataclass(frozen=True)
class ServerStep:
    """A server's step from its clients to ``global``.

    Attributes:
        rule: what explains it.
        rate, momentum: η and β, where it has them.
        plain: whether it is of the mean with equal weights, though p has others.
        left: ||d - what explains it|| / ||d||; where nothing does, of the best multiple of m. Without start, ||d|| is
            how far clients are from their mean, the root mean square.
        statistics: how many floating buffers are not the clients' mean.
    """

    rule: Rule
    rate: float = nan
    momentum: float = nan
    plain: bool = False
    left: float = nan
    statistics: int = 0

    def metrics(self) -> dict[str, float | int | None]:
        """Return the step as numbers of the round."""
        return {
            "server_rule": int(self.rule),
            "server_rate": self.rate,
            "server_momentum": self.momentum,
            "server_plain": int(self.plain),
            "server_left": self.left,
            "server_statistics": self.statistics,
        }

    @classmethod
    def of_metrics(cls, numbers: Mapping[str, float | int | None]) -> ServerStep | None:
        """Invert :attr:`metrics`; None of a round that was not checked."""
        found = [numbers.get(f"server_{name}") for name in ("rule", "rate", "momentum", "plain", "left", "statistics")]
        rule, rate, momentum, plain, left, statistics = (nan if value is None else float(value) for value in found)
        if isnan(rule) or int(rule) not in list(Rule):
            return None
        return cls(Rule(int(rule)), rate, momentum, plain == 1, left, 0 if isnan(statistics) else int(statistics))

    def is_like(self, other: ServerStep) -> bool:
        """Check whether both are of one server: the same rule, with the same rate and momentum up to rounding.

        >>> ServerStep(Rule.RATE, rate=0.5).is_like(ServerStep(Rule.RATE, rate=0.5002))
        True
        >>> ServerStep(Rule.UNKNOWN, left=0.4).is_like(ServerStep(Rule.UNKNOWN, left=0.7))
        True
        >>> ServerStep(Rule.MEAN).is_like(ServerStep(Rule.MEAN, plain=True))
        False
        """
        if (self.rule, self.plain) != (other.rule, other.plain):
            return False
        if self.rule is Rule.UNKNOWN:  # its best multiple is no rate of a server
            return True
        pairs = ((self.rate, other.rate), (self.momentum, other.momentum))
        return all(bool(np.isclose(*pair, rtol=0.02, atol=1e-3, equal_nan=True)) for pair in pairs)

    def __str__(self) -> str:
        """A clause.

        >>> str(ServerStep(Rule.MEAN)), str(ServerStep(Rule.RATE, rate=-1.0, left=0.0))
        ('global is the weighted mean of the clients', 'global = start - 1 Σ p Δ: the sign of the server is wrong')
        """
        mean = "the plain mean of Δ" if self.plain else "Σ p Δ"
        match self.rule:
            case Rule.MEAN if self.plain:
                text = "global is the plain mean of the clients, though they have different weights"
            case Rule.MEAN:
                text = "global is the weighted mean of the clients"
            case Rule.RATE if self.rate < 0:
                text = f"global = start - {-self.rate:.3g} {mean}: the sign of the server is wrong"
            case Rule.RATE:
                text = f"global = start + {self.rate:.3g} {mean}: a server rate of {self.rate:.3g}"
            case Rule.MOMENTUM:
                text = f"the server has momentum {self.momentum:.3g} and rate {self.rate:.3g}, over {mean}"
            case Rule.NESTEROV:
                text = f"the server has Nesterov momentum {self.momentum:.3g} and rate {self.rate:.3g}, over {mean}"
            case Rule.MEDIAN:
                text = "global is the median of the clients, coordinate by coordinate"
            case Rule.ONE_CLIENT:
                text = "global is the model of one client"
            case Rule.UNCHANGED:
                text = "global is start: nothing was aggregated"
            case Rule.UPDATES:
                of, sign = "plain mean of" if self.plain else "weighted mean of", "-" if self.rate < 0 else "+"
                text = (
                    f"global = start {sign} {abs(self.rate):.3g} times the {of} the clients as they were given: these "
                    "are updates, not models"
                )
            case Rule.LATE_START:
                text = (
                    "start is the clients' mean: it was copied after the aggregation, or start and global are swapped"
                )
            case Rule.COARSE:
                text = "the models' precision is too coarse to say how global came about"
            case Rule.UNKNOWN_WITHOUT_START:
                text = (
                    "global is not the clients' mean, their median or one of them; with start, more servers could be "
                    "told"
                )
            case _ if isnan(self.left):
                text = "models are not finite, so the server was not checked"
            case _:
                text = (
                    f"no known server explains global: {_per_cent(self.left)} of its step is not a multiple of Σ p Δ "
                    "(an adaptive or a robust server, or a fault)"
                )
        if self.statistics:
            buffers = "1 buffer is" if self.statistics == 1 else f"{self.statistics} buffers are"
            text += f"; {buffers} not the clients' mean (statistics of BatchNorm)"
        return text


class ServerIdentifier:
    """Looks at round after round; keeps the last round's steps, which momentum is told by.

    Of large models it looks at some parameters, see :class:`SampledParameters`; the first round decides which.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._before: tuple[np.ndarray, np.ndarray] | None = None  # m, d
        self._start = b""  # the sum of the last round's
        self._least = 0.0  # of the precision that the server has computed in, as far as its numbers tell
        self._has_moved = False
        #: how many rounds in a row have the start of the one before, whose server had made another model of it
        self.again = 0
        self._sampled: SampledParameters | None = None

    def look(
        self, start: ModelTensors | None, clients: Sequence[ModelTensors], p: np.ndarray, global_: ModelTensors
    ) -> tuple[ServerStep, list[str]]:
        """Find the rule that explains ``global``, and a clause for each kind of buffers that are not averaged."""
        sampled = self._sampled = self._sampled or SampledParameters(self.layout, len(clients))
        # without start, from the first client that counts: what is told then is the same from everywhere
        origin = sampled.vector(clients[int(np.argmax(p > 0))] if start is None else start)
        d = sampled.vector(global_)
        norm = float(np.linalg.norm(d))
        with np.errstate(over="ignore", invalid="ignore"):
            self._least = _EPS["float32"] if np.array_equal(d, d.astype(np.float32)) else 0.0
        d -= origin
        begins = (
            b"" if start is None or not origin.any() else xxh3_128_digest(origin.view(np.uint8).data)
        )  # from zeros, updates are models
        self.again = self.again + 1 if begins and begins == self._start and self._has_moved else 0
        self._start, self._has_moved = begins, bool(np.isfinite(norm) and d.any())
        moves = ClientMoves(sampled, origin, clients, p)
        if start is None:
            step, self._before = self._told_without_start(d, moves, norm), None
        else:
            step, m = self._explain(d, moves, norm, origin), moves.weighted_mean
            self._before = (m, d) if np.isfinite(d).all() and np.isfinite(m).all() else None
        lacking, clauses = self._statistics(start, clients, p, global_)
        return replace(step, statistics=lacking), clauses

    def recall(self, round_: Round) -> None:
        """Go on behind a recorded round, whose steps momentum is told by."""
        if {"start", "global"} <= set(round_.models) and round_.has_clients:
            clients, p = round_.clients(), round_.weights
            rows = [coerce_model(clients.row(k).arrays()) for k in range(len(clients))]
            self.look(
                coerce_model(round_.read("start").arrays()), rows, p, coerce_model(round_.read("global").arrays())
            )

    def _explain(self, d: np.ndarray, moves: ClientMoves, norm: float, start: np.ndarray) -> ServerStep:
        length, m = float(np.linalg.norm(d)), moves.weighted_mean
        if not np.isfinite(length) or not np.isfinite(m).all():
            return ServerStep(Rule.UNKNOWN)
        noise = self._noise(len(moves), norm) + 1e-9 * length
        if _is_late(moves, noise):
            return ServerStep(Rule.LATE_START)
        if length and noise > _COARSE * length:
            return ServerStep(Rule.COARSE, left=float(np.linalg.norm(d - m)) / length)
        if (step := _average(d, moves, noise, length)) is not None:
            return step
        if not length:
            return ServerStep(Rule.UNCHANGED)
        if (step := _selected_client(d, moves, noise, length)) is not None:
            return step
        linear = [(_linear(d, mean, self._before, noise), plain) for mean, plain in _means(moves)]
        found = [replace(step, plain=plain) for step, plain in linear if step is not None]
        if found:
            one, other = found[0], found[-1]
            return other if other.rule <= one.rule and _is_nearer(other.left, one.left, len(d)) else one
        for mean, plain in _means(moves) if len(d) >= FEW else ():
            (rate,), left = fit(d, [mean + start])
            if left <= noise:
                return ServerStep(Rule.UPDATES, rate, plain=plain, left=left / length)
        (rate,), rest = fit(d, [m])
        return ServerStep(Rule.UNKNOWN, rate, left=rest / length)

    def _told_without_start(self, d: np.ndarray, moves: ClientMoves, norm: float) -> ServerStep:
        m = moves.weighted_mean
        if not np.isfinite(d).all() or not np.isfinite(m).all():
            return ServerStep(Rule.UNKNOWN)
        spread = moves.spread()
        noise = self._noise(len(moves), norm) + 1e-9 * spread
        left = float(np.linalg.norm(d - m))
        # of clients that are alike up to rounding, a mean, a median and one client are the same
        if noise > _COARSE * spread and (len(moves) > 1 or left <= noise):
            alike = left <= noise and len(moves) == 1
            return ServerStep(Rule.MEAN, 1.0, left=0.0) if alike else ServerStep(Rule.COARSE)
        found = _average(d, moves, noise, spread) or _selected_client(d, moves, noise, spread)
        return found or ServerStep(Rule.UNKNOWN_WITHOUT_START, left=left / spread if spread else nan)

    def _noise(self, clients: int, norm: float) -> float:
        """Bound the distance by which rounding moves a mean of clients: each of C terms, and the sum, is rounded to the
        precision of the weights; some servers sum in it."""
        dtypes = [entry.stored or entry.dtype for entry in self.layout.parameters]
        eps = max((self._least, *(_EPS.get(dtype, 0.0) for dtype in dtypes)))
        return float(_rounding(clients, max(eps, 1e-12)) * norm)

    def _statistics(
        self, start: ModelTensors | None, clients: Sequence[ModelTensors], p: np.ndarray, global_: ModelTensors
    ) -> tuple[int, list[str]]:
        """Count the floating buffers that are not averaged, and say what they are instead, a clause each."""
        found: dict[str, list[str]] = {}
        for entry in self.layout.buffers:
            if entry.dtype not in _EPS:
                continue
            end, *rows = (numbers_of(one.arrays[entry.name], one.dtypes[entry.name]) for one in (global_, *clients))
            mean = np.zeros(np.shape(end))
            for weight, row in zip(p, rows, strict=True):
                if weight:  # else it may have diverged
                    mean += weight * row.astype(np.float64)
            size = float(np.linalg.norm(mean))
            rounding = _rounding(len(rows), _EPS[entry.stored or entry.dtype])
            if not np.isfinite(size) or np.linalg.norm(end - mean) <= max(1e-3, rounding) * size + 1e-12:
                continue
            kept = "not the clients' mean"
            if start is not None and np.array_equal(
                end, numbers_of(start.arrays[entry.name], start.dtypes[entry.name])
            ):
                kept = "kept from start"
            if any(np.array_equal(end, row) for row in rows):
                kept = "those of one client"
            found.setdefault(kept, []).append(entry.name)
        clauses = [
            f"{list_few(names, 3)} in global {'are' if len(names) > 1 else 'is'} {what}"
            for what, names in found.items()
        ]
        return sum(map(len, found.values())), clauses


def _per_cent(share: float) -> str:
    """Two digits, and never as a power of ten.

    >>> _per_cent(0.9968), _per_cent(0.0314)
    ('100 %', '3.1 %')
    """
    return f"{float(f'{100 * share:.2g}'):g} %"


def _rounding(clients: int, eps: float) -> float:
    """By which share of its length rounding moves a mean of clients, at most: see :meth:`ServerIdentifier._noise`."""
    return float((1 + np.sqrt(clients)) / 2 * eps)


def _means(moves: ClientMoves) -> Iterator[tuple[np.ndarray, bool]]:
    """Yield the weighted mean, and where p is not the same for all the plain one; whether it is that."""
    yield moves.weighted_mean, False
    if not np.allclose(moves.p, 1 / len(moves), rtol=1e-9) and np.isfinite(moves.plain_mean).all():
        yield moves.plain_mean, True  # not of a client that has no weight and has diverged


def _is_late(moves: ClientMoves, noise: float) -> bool:
    """Check whether clients that have moved, in more than a few numbers, have all their ways cancel: by chance their
    mean would keep a share 1 / √C of their lengths, which a coarse precision may hide."""
    means = [mean for mean, _ in _means(moves)]
    kept = min(float(np.linalg.norm(mean)) for mean in means)
    if len(moves) < 2 or len(means[0]) < FEW or kept > noise:
        return False
    spread = moves.spread()
    return spread > noise / _COARSE and kept < _CANCELLED * spread / float(np.sqrt(len(moves)))


def _average(d: np.ndarray, moves: ClientMoves, noise: float, length: float) -> ServerStep | None:
    """Check whether the step is a mean of the moves, as far as the precision tells: the weighted one, unless the plain
    one is nearer."""
    left, plain, mean = np.inf, False, d
    for one, is_plain in _means(moves):
        apart = float(np.linalg.norm(d - one))
        if not is_plain or _is_nearer(apart, left, len(d)):
            left, plain, mean = apart, is_plain, one
    if left > noise:
        return None
    rate = _other_rate(d, mean, noise)
    if abs(rate - 1) > _SLIGHT:
        return None
    if abs(rate - 1) > _PLAIN:
        return ServerStep(Rule.COARSE, left=left / length)
    return ServerStep(Rule.MEAN, 1.0, plain=plain, left=left / length if length else 0.0)


def _is_nearer(left: float, than: float, count: int) -> bool:
    """Check whether what a plain mean leaves of a step is less than what a weighted one does by more than rounding
    explains: by chance the squares differ by a share of about 1 / n."""
    return count >= FEW and than**2 - left**2 > (2 * _SURE) ** 2 / count * left**2


def _other_rate(d: np.ndarray, mean: np.ndarray, noise: float) -> float:
    """Return the rate over a mean that fits a step best, where rounding does not explain that it is not 1; else 1.

    The bound on rounding is of the worst case, in which errors point one way; they seldom do.
    """
    length = float(np.linalg.norm(mean))
    if len(d) < FEW or noise <= _PLAIN * length:  # what is left then is less than such a rate would leave
        return 1.0
    rate = float(d @ mean) / length**2 if length else 1.0
    deviation = float(np.linalg.norm(d - rate * mean)) / np.sqrt(len(d) - 1) / length if length else 0.0
    return rate if abs(rate - 1) > _SURE * deviation else 1.0


def _selected_client(d: np.ndarray, moves: ClientMoves, noise: float, length: float) -> ServerStep | None:
    """Check whether the step leads to the median or to one client."""
    if (left := float(np.linalg.norm(d - moves.median()))) <= noise:
        return ServerStep(Rule.MEDIAN, left=left / length)
    apart = [float(np.linalg.norm(d - move)) for move in moves]
    if (left := min((one for one in apart if not np.isnan(one)), default=np.inf)) <= noise:
        return ServerStep(Rule.ONE_CLIENT, left=left / length)
    return None


def _linear(
    d: np.ndarray, m: np.ndarray, before: tuple[np.ndarray, np.ndarray] | None, noise: float
) -> ServerStep | None:
    """Find a rate, momentum or Nesterov momentum over m, if one of them explains d."""
    length = float(np.linalg.norm(d))
    (rate,), left = fit(d, [m])
    # a few numbers are explained by anything
    if len(d) < FEW:
        return None
    if left <= noise:
        return ServerStep(Rule.RATE, rate, left=left / length)
    if before is None or before[0].shape != d.shape:
        return None
    last_m, last_d = before
    (rate, beta), left = fit(d, [m, last_d])
    # what was rounded in the last round comes in again
    if left <= 2 * noise and 0 < beta <= 1:
        return ServerStep(Rule.MOMENTUM, rate, beta, left=left / length)
    (ahead, beta, back), left = fit(d, [m, last_d, last_m])
    rate = ahead / (1 + beta) if beta > -1 else nan
    if left <= 2 * noise and 0 < beta <= 1 and abs(back + rate * beta) <= 0.02 * abs(ahead):
        return ServerStep(Rule.NESTEROV, rate, beta, left=left / length)
    return None


def describe_server(rows: Mapping[int, Mapping[str, float]]) -> str:
    """Describe for ``ls`` how a recorded run's server came to its models; empty where that was not looked at.

    Args:
        rows: the numbers of rounds.
    """
    steps = {number: step for number, row in sorted(rows.items()) if (step := ServerStep.of_metrics(row)) is not None}
    if not steps:
        return ""
    last = max(steps)
    same = last
    for number in sorted(steps, reverse=True):
        if not steps[number].is_like(steps[last]):
            break
        same = number
    if same == min(steps):
        which = "all" if len(steps) == len(rows) else "the"
        known = "" if len(steps) == len(rows) else " that were looked at"
        when = f"in {which} {len(steps)} rounds{known}" if len(steps) > 1 else f"in round {last}"
    else:
        when = f"from round {same} on" if same < last else f"in round {last}, unlike before"
    return f"{steps[last]} ({when})"
