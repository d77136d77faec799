"""Is ``global`` what the round's clients give? If not, which known server explains it.

With Δ_k = w_k - start, m = Σ p_k Δ_k and d = global - start, a server that averages has d = m. Others that are known:
the plain mean of the clients, a rate η (d = η m, η < 0 where the sign is wrong), momentum (d_t = η m_t + β d_{t-1}),
Nesterov momentum as DiLoCo's (v_t = β v_{t-1} + m_t, d_t = η (m_t + β v_t)), the median of the clients, one of them.
Without start, a mean, the median and one client are told from the clients alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from math import isnan, nan

import numpy as np

from ..io.errors import list_few
from ..models.weights import BFLOAT16, Layout
from ..rounds.round import Round
from .coerce_models import ModelTensors, coerce_model, numbers_of

#: coordinates that are looked at, at most: of a model, and of a cohort
COORDINATES, ALL_COORDINATES = 2**18, 2**22
#: numbers that a rate and momenta, three coefficients, are told from, at least
FEW = 12
_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, BFLOAT16: 2.0**-7}
#: rounding that is larger than this share of the server's step leaves nothing to be said
_COARSE = 0.2


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
                text = "global is the plain mean of the clients, though they have different numbers of samples"
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
                    f"no known server explains global: {100 * self.left:.2g} % of its step is not a multiple of Σ p Δ "
                    "(an adaptive or a robust server, or a fault)"
                )
        if self.statistics:
            buffers = "1 buffer is" if self.statistics == 1 else f"{self.statistics} buffers are"
            text += f"; {buffers} not the clients' mean (statistics of BatchNorm)"
        return text


class ServerIdentifier:
    """Looks at round after round; keeps the last round's steps, which momentum is told by.

    A model of more than :data:`COORDINATES` parameters is looked at in every so many of each tensor's.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._before: tuple[np.ndarray, np.ndarray] | None = None  # m, d
        self._stride = 0

    def look(
        self, start: ModelTensors | None, clients: Sequence[ModelTensors], p: np.ndarray, global_: ModelTensors
    ) -> tuple[ServerStep, list[str]]:
        """Find the rule that explains ``global``, and a clause for each kind of buffers that are not averaged."""
        if not self._stride:
            fit = min(COORDINATES, ALL_COORDINATES // max(1, len(clients)))
            self._stride = max(1, -(-self.layout.size // max(1, fit)))
        end = self._vector(global_)
        moves = np.empty((len(clients), len(end)))  # filled row by row: it is as large as a round may be
        for row, client in zip(moves, clients, strict=True):
            row[:] = self._vector(client)
        # without start, from the first client that counts: what is told then is the same from everywhere
        origin = moves[int(np.argmax(p > 0))].copy() if start is None else self._vector(start)
        moves -= origin
        counted = p > 0
        d, m = end - origin, (p @ moves if counted.all() else p[counted] @ moves[counted])
        norm = float(np.linalg.norm(end))
        if start is None:
            step, self._before = self._told_without_start(d, m, moves, p, norm), None
        else:
            step = self._explain(d, m, moves, p, norm)
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

    def _vector(self, model: ModelTensors) -> np.ndarray:
        parts = []
        for entry in self.layout.parameters:
            some = model.arrays[entry.name].reshape(-1)[:: self._stride]
            parts.append(numbers_of(some, model.dtypes[entry.name]).astype(np.float64))
        return np.concatenate(parts) if parts else np.zeros(0)

    def _explain(self, d: np.ndarray, m: np.ndarray, moves: np.ndarray, p: np.ndarray, norm: float) -> ServerStep:
        length = float(np.linalg.norm(d))
        if not np.isfinite(length) or not np.isfinite(m).all():
            return ServerStep(Rule.UNKNOWN)
        noise = self._noise(len(moves), norm) + 1e-9 * length
        if length and noise > _COARSE * length:
            return ServerStep(Rule.COARSE, left=float(np.linalg.norm(d - m)) / length)
        bases = _means(m, moves, p)
        if (step := _average(d, bases, noise, length)) is not None:
            return step
        if not length:
            return ServerStep(Rule.UNCHANGED)
        if (step := _selected_client(d, moves, noise, length)) is not None:
            return step
        for mean, plain in bases:
            step = _linear(d, mean, self._before, noise)
            if step is not None:
                return replace(step, plain=plain)
        (rate,), rest = _fit(d, [m])
        return ServerStep(Rule.UNKNOWN, rate, left=rest / length)

    def _told_without_start(
        self, d: np.ndarray, m: np.ndarray, moves: np.ndarray, p: np.ndarray, norm: float
    ) -> ServerStep:
        if not np.isfinite(d).all() or not np.isfinite(m).all():
            return ServerStep(Rule.UNKNOWN)
        finite = moves[np.isfinite(moves).all(axis=1)]
        spread = float(np.sqrt(np.square(finite - finite.mean(axis=0)).sum(axis=1).mean()))
        noise = self._noise(len(moves), norm) + 1e-9 * spread
        left = float(np.linalg.norm(d - m))
        # of clients that are alike up to rounding, a mean, a median and one client are the same
        if noise > _COARSE * spread and (len(moves) > 1 or left <= noise):
            alike = left <= noise and len(moves) == 1
            return ServerStep(Rule.MEAN, 1.0, left=0.0) if alike else ServerStep(Rule.COARSE)
        found = _average(d, _means(m, moves, p), noise, spread) or _selected_client(d, moves, noise, spread)
        return found or ServerStep(Rule.UNKNOWN_WITHOUT_START, left=left / spread if spread else nan)

    def _noise(self, clients: int, norm: float) -> float:
        """Bound the distance by which rounding moves a mean of clients: each of C terms, and the sum, is rounded to the
        precision of the weights; some servers sum in it."""
        dtypes = [entry.stored or entry.dtype for entry in self.layout.parameters]
        eps = max((_EPS.get(dtype, 0.0) for dtype in dtypes), default=0.0)
        return float((1 + np.sqrt(clients)) / 2 * max(eps, 1e-12) * norm)

    def _statistics(
        self, start: ModelTensors | None, clients: Sequence[ModelTensors], p: np.ndarray, global_: ModelTensors
    ) -> tuple[int, list[str]]:
        """Count the floating buffers that are not averaged, and say what they are instead, a clause each."""
        found: dict[str, list[str]] = {}
        for entry in self.layout.buffers:
            if entry.dtype not in _EPS:
                continue
            rows = [numbers_of(client.arrays[entry.name], client.dtypes[entry.name]) for client in clients]
            end = numbers_of(global_.arrays[entry.name], global_.dtypes[entry.name])
            mean = np.tensordot(p, np.stack(rows).astype(np.float64), axes=1)
            size = float(np.linalg.norm(mean))
            if not np.isfinite(size) or np.linalg.norm(end - mean) <= 1e-3 * size + 1e-12:
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


def _means(m: np.ndarray, moves: np.ndarray, p: np.ndarray) -> list[tuple[np.ndarray, bool]]:
    """Return the weighted mean, and where p is not the same for all the plain one; whether it is that."""
    return [(m, False)] + ([] if np.allclose(p, 1 / len(p), rtol=1e-9) else [(moves.mean(axis=0), True)])


def _average(d: np.ndarray, means: Sequence[tuple[np.ndarray, bool]], noise: float, length: float) -> ServerStep | None:
    for mean, plain in means:
        if (left := float(np.linalg.norm(d - mean))) <= noise:
            return ServerStep(Rule.MEAN, 1.0, plain=plain, left=left / length if length else 0.0)
    return None


def _selected_client(d: np.ndarray, moves: np.ndarray, noise: float, length: float) -> ServerStep | None:
    """Check whether the step leads to the median or to one client."""
    if (left := float(np.linalg.norm(d - np.median(moves, axis=0)))) <= noise:
        return ServerStep(Rule.MEDIAN, left=left / length)
    if (left := min(float(np.linalg.norm(d - move)) for move in moves)) <= noise:
        return ServerStep(Rule.ONE_CLIENT, left=left / length)
    return None


def _fit(d: np.ndarray, vectors: Sequence[np.ndarray]) -> tuple[list[float], float]:
    """Return the coefficients that come nearest to d, and ||what is left||."""
    matrix = np.stack(vectors, axis=1)
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    found, *_ = np.linalg.lstsq(matrix / scale, d, rcond=None)
    return (found / scale).tolist(), float(np.linalg.norm(d - matrix @ (found / scale)))


def _linear(
    d: np.ndarray, m: np.ndarray, before: tuple[np.ndarray, np.ndarray] | None, noise: float
) -> ServerStep | None:
    """Find a rate, momentum or Nesterov momentum over m, if one of them explains d."""
    length = float(np.linalg.norm(d))
    (rate,), left = _fit(d, [m])
    # a few numbers are explained by anything
    if len(d) < FEW:
        return None
    if left <= noise:
        return ServerStep(Rule.RATE, rate, left=left / length)
    if before is None or before[0].shape != d.shape:
        return None
    last_m, last_d = before
    (rate, beta), left = _fit(d, [m, last_d])
    # what was rounded in the last round comes in again
    if left <= 2 * noise and 0 < beta <= 1:
        return ServerStep(Rule.MOMENTUM, rate, beta, left=left / length)
    (ahead, beta, back), left = _fit(d, [m, last_d, last_m])
    rate = ahead / (1 + beta) if beta > -1 else nan
    if left <= 2 * noise and 0 < beta <= 1 and abs(back + rate * beta) <= 0.02 * abs(ahead):
        return ServerStep(Rule.NESTEROV, rate, beta, left=left / length)
    return None
