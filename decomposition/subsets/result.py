"""Averages of subsets of clients over rounds and runs: a result that saves, loads and draws itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError
from .tables import read_tables, write_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Means of one error over different numbers of subsets differ by as much, relative to the largest error of 1.
ROUNDING = 1e-12


@dataclass(frozen=True)
class SizeRow:
    """Averages of ``m`` clients: over ``subsets`` of them, all there are where ``exhaustive``.

    ``error``: share misclassified, 0..1; ``loss``: mean cross-entropy in nats. ``std`` is over the subsets, ``stderr``
    that of the mean (see :func:`~fedscope.decomposition.subsets.average_subsets`); None where it does not exist.
    """

    m: int
    subsets: int
    exhaustive: bool
    error_mean: float
    error_std: float | None
    error_stderr: float | None
    loss_mean: float
    loss_std: float | None
    loss_stderr: float | None
    error_min: float
    error_max: float


@dataclass(frozen=True)
class RoundSubsets:
    """One round of a run: C ``clients``, and a row a size, ascending.

    ``diverged``: the ids of the clients whose model holds a NaN or an infinity; so does every average with one of them,
    and where its outputs are NaN, they count as wrong.
    """

    run: str
    round: int
    clients: int
    sizes: tuple[SizeRow, ...]
    diverged: tuple[int, ...] = ()

    def enough(self, share: float = 0.9) -> int | None:
        """The least size from which on mean errors have come down by ``share`` of the way from the first size to the
        last; None where the last is no better than the first, but for rounding.

        >>> rows = [SizeRow(m, 1, False, e, None, None, e, None, None, e, e) for m, e in ((1, 0.5), (2, 0.2), (4, 0.1))]
        >>> RoundSubsets("ima", 1, 4, tuple(rows)).enough(0.75)
        2
        """
        first, last = self.sizes[0].error_mean, self.sizes[-1].error_mean
        if not first - last > ROUNDING:
            return None
        found = self.sizes[-1].m
        for row in reversed(self.sizes):
            if row.error_mean > last + (1 - share) * (first - last):
                break
            found = row.m
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers, for the store of an interrupted analysis; floats survive exactly."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RoundSubsets:
        """The inverse of :meth:`to_json`."""
        sizes = tuple(SizeRow(**row) for row in value["sizes"])
        return cls(**{**value, "sizes": sizes, "diverged": tuple(value.get("diverged", ()))})


@dataclass(frozen=True)
class Subsets:
    """How error and loss of an average hang on the number of models in it.

    ``weights`` is ``samples`` (p proportional to the clients' numbers of samples) or ``uniform``; ``attrs`` the
    provenance: data, split, samples, seed, subsets asked for, device, versions.

    Raises:
        FedscopeError: two rounds that could not be told apart.

    >>> list(Subsets((RoundSubsets("ima", 1, 10, ()),), "samples").rows())
    []
    """

    rounds: tuple[RoundSubsets, ...]
    weights: str
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = [(one.run, one.round) for one in self.rounds]
        for run, number in named:
            if named.count((run, number)) > 1:
                raise FedscopeError(
                    f"round {number} of {run} is there twice, and its rows could not be told apart; rename one of two "
                    "runs with the same name"
                )

    def rows(self) -> Iterator[tuple[RoundSubsets, SizeRow]]:
        """Every size of every round."""
        return ((one, row) for one in self.rounds for row in one.sizes)

    def save(self, base: Path | str) -> list[Path]:
        """Write BASE.subsets.csv (tidy, a row a size, empty where a value does not exist) and BASE.subsets.json
        (provenance); returns their paths. Floats survive."""
        return write_tables(self, Path(base))

    @classmethod
    def load(cls, base: Path | str) -> Subsets:
        """The inverse of :meth:`save`.

        Raises:
            FedscopeError: a file is missing or is no such result.
        """
        return read_tables(Path(base))

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """Error against m, a line a round and a run, in bands of one standard deviation; ``width`` in inches.

        Raises:
            FedscopeError: there is no round to draw.
        """
        from .figure import draw_subsets

        return draw_subsets(self, width, title)
