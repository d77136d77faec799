"""Lemma 1 and Theorem 2 on one run: a result that saves, loads and draws itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .bounds import ClientBound
from .correlations import VARIANCES, Correlation, correlate
from .locality import Gap
from .slopes import Slope, fit_slope
from .tables import read_tables, write_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Theory:
    """What a recorded run says of Lemma 1 and of Theorem 2.

    `gaps` as recorded, one a round, and of some rounds also with shrunk clients; `bounds`, the clients of the rounds of
    Theorem 2. `attrs` is the provenance: split, data, outputs, draws, dimension, ridge, seed, device, versions.

    >>> made = Theory("fma", tuple(Gap(t, 1.0, 0.1 * t**2, t, t, 1.0) for t in (1, 2, 3)))
    >>> round(made.slope.value, 6), made.paths, made.correlations
    (1.0, {}, ())
    """

    run: str
    gaps: tuple[Gap, ...] = ()
    bounds: tuple[ClientBound, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def rounds(self) -> tuple[Gap, ...]:
        """The gaps as recorded, one a round."""
        return tuple(one for one in self.gaps if one.shrink == 1)

    @property
    def slope(self) -> Slope | None:
        """Over rounds; None for fewer than three that count."""
        return fit_slope(self.rounds)

    @property
    def paths(self) -> dict[int, tuple[Gap, ...]]:
        """By round, the gaps of its shrunk clients, from ε = 1 on."""
        shrunk = sorted({one.round for one in self.gaps if one.shrink != 1})
        return {
            number: tuple(sorted((one for one in self.gaps if one.round == number), key=lambda one: -one.shrink))
            for number in shrunk
        }

    @property
    def by_round(self) -> dict[int, tuple[ClientBound, ...]]:
        """The clients of every round of Theorem 2."""
        rounds = sorted({one.round for one in self.bounds})
        return {number: tuple(one for one in self.bounds if one.round == number) for number in rounds}

    @cached_property  # counting the orders of nine clients takes a second
    def correlations(self) -> tuple[Correlation, ...]:
        """Of the prediction with each variance, for every round of Theorem 2; those that exist."""
        every = (correlate(own, name) for own in self.by_round.values() for name in VARIANCES)
        return tuple(one for one in every if one is not None)

    def correlation(self, round: int, variance: str) -> Correlation | None:
        """One of them."""
        return next((one for one in self.correlations if (one.round, one.variance) == (round, variance)), None)

    def values(self) -> Iterator[tuple[int | None, float | None, int | None, str, float | int | None]]:
        """Round, ε, client, quantity and value of everything measured and derived; see `tables`."""
        from .tables import values

        return values(self)

    def save(self, base: Path | str) -> list[Path]:
        """Write BASE.theory.csv (tidy, one value a row, empty where it does not exist) and BASE.theory.json
        (provenance); returns their paths. Floats survive."""
        return write_tables(self, Path(base))

    @classmethod
    def load(cls, base: Path | str) -> Theory:
        """The inverse of :meth:`save`.

        Raises:
            FedscopeError: a file is missing or is no such result.
        """
        return read_tables(Path(base))

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """The gap against Δ², above the variances against their prediction; ``width`` in inches."""
        from .figure import draw_theory

        return draw_theory(self, width, title)
