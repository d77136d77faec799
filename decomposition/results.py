"""The decomposition of one or more runs: a result that saves, loads and draws itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoints import FedscopeError
from .records import ClientRow, FactorRow, RoundFactors
from .tables import read_tables, write_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ErrorCurve:
    """A measured error (share misclassified, 0..1) over rounds: `label` names the model, "global" or "averaged"."""

    label: str
    rounds: tuple[int, ...]
    error: tuple[float, ...]


@dataclass(frozen=True)
class RunFactors:
    """One model of one run over rounds: the run's name; `model`, "global" (the rounds' w_FMA) or "averaged" (the
    average over rounds, whose clients are those of all rounds in it); the decomposed rounds in order; the test errors
    to be drawn below."""

    run: str
    model: str
    rounds: tuple[RoundFactors, ...]
    curves: tuple[ErrorCurve, ...] = ()


@dataclass(frozen=True)
class Decomposition:
    """The five factors of the rounds of one or more runs, all on the same split.

    `split` is "train" or "test", `loss` "squared" (the squared error summed over classes; with probabilities the Brier
    score), `draws` the source of the draws as given ("local:4"), `attrs` the provenance: data, seed, precision, device,
    versions. Values on the test split and on the training split are never in one result, so never on one axis.

    >>> result = Decomposition((RunFactors("ima", "global", ()),), split="train", draws="local:4")
    >>> list(result.rows())
    []
    """

    runs: tuple[RunFactors, ...]
    split: str
    draws: str
    loss: str = "squared"
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [(run.run, run.model) for run in self.runs]
        for name in names:
            if names.count(name) > 1:
                raise FedscopeError(f"two runs are called {name[0]}: their rows could not be told apart; rename one")

    def rows(self) -> Iterator[tuple[RunFactors, RoundFactors, FactorRow]]:
        """Every row of every round of every run."""
        return ((run, one, row) for run in self.runs for one in run.rounds for row in one.rows)

    def clients(self) -> Iterator[tuple[RunFactors, RoundFactors, ClientRow]]:
        """Every client of every round of every run."""
        return ((run, one, row) for run in self.runs for one in run.rounds for row in one.clients)

    def save(self, base: str | Path) -> list[Path]:
        """Write BASE.factors.csv, BASE.clients.csv (tidy, one value a row; empty where a value does not exist) and
        BASE.factors.json (provenance, weights of the clients, error curves); returns their paths. Floats survive."""
        return write_tables(self, Path(base))

    @classmethod
    def load(cls, base: str | Path) -> Decomposition:
        """The inverse of `save`. Raises FedscopeError where a file is missing or is no such result."""
        return read_tables(Path(base))

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """The factors over rounds, signed, above the clients' own numbers, their distance to the average and the
        measured test error; `width` in inches, one column of panels a run.

        Raises FedscopeError where there is no round to draw."""
        from .factor_figure import draw_factors

        return draw_factors(self, width, title)
