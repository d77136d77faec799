"""The outcome of a check: a line with what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from .subject import Subject

Outcome = Literal["passed", "failed", "not asked"]


class CheckFailed(Exception):
    """A method does not do what a check asks for; says what was measured."""


class NotAsked(Exception):
    """A check that does not concern a method; says why."""


@dataclass(frozen=True)
class Line:
    """A check's line.

    Attributes:
        kind: ``client``, ``server`` or ``average``.
        words: what was measured, or why nothing was.
    """

    kind: str
    check: str
    outcome: Outcome
    words: str
    seconds: float = 0.0

    def __str__(self) -> str:
        mark = {"passed": "ok", "failed": "FAILED", "not asked": "-"}[self.outcome]
        return f"{mark:<7} {self.check:<18} {self.words}"


@dataclass(frozen=True)
class Check:
    """A check.

    Attributes:
        ask: returns what was measured, and raises :class:`CheckFailed` or :class:`NotAsked`.
        kinds: that it is asked of.
        trained: whether it needs the method to be trained.
        repeatable: whether it compares bits, so that a method that gives others each time is not asked.
    """

    name: str
    ask: Callable[[Subject], str]
    kinds: tuple[str, ...] = ("client", "server", "average")
    trained: bool = False
    repeatable: bool = False


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """‖one − other‖, in float64."""
    return float(np.linalg.norm(np.asarray(one, np.float64) - np.asarray(other, np.float64)))


def length(one: np.ndarray) -> float:
    """‖one‖, in float64."""
    return float(np.linalg.norm(np.asarray(one, np.float64)))


def share(part: float, whole: float) -> float:
    """A part of a whole; of nothing 0, or infinite where the part is something.

    >>> share(1.0, 4.0), share(0.0, 0.0), share(1.0, 0.0)
    (0.25, 0.0, inf)
    """
    if whole:
        return part / whole
    return float("inf") if part else 0.0


def digits(value: float) -> str:
    """A small number as words have it.

    >>> digits(0.0), digits(2.345e-7)
    ('0', '2.3e-07')
    """
    return f"{value:.1e}" if value else "0"
