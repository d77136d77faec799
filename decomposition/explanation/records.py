"""What is said of a run: numbers with intervals, and statements made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["supported", "contradicted", "undecided"]


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


@dataclass(frozen=True)
class Statement:
    """One claim, and what the data say of it.

    Attributes:
        claim: its id, `own-data`; of a phase `greatest-part/late`.
        run: which run it is about; for several `fma, ima`.
        title: what is judged, in words.
        paper: what the paper says of it.
        verdict: on the title.
        sentence: what was measured, with its numbers.
        decide: what would decide it; empty unless undecided.
        readings: all numbers behind the sentence.
    """

    claim: str
    run: str
    title: str
    paper: str
    verdict: Verdict
    sentence: str
    decide: str
    readings: tuple[Reading, ...]
