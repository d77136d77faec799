"""Single parameters over the clients of a round: a result that saves, loads and draws itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoints import FedscopeError
from .reading import RunValues
from .reference import Reference
from .summaries import Summary, summarise
from .tables import read_tables, write_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: parameters in a result, which is a panel each
MOST = 100


@dataclass(frozen=True, eq=False)
class Parameters:
    """n parameters in one round of one or more runs with the same layout.

    Attributes:
        names: of the parameters, as in ``conv1.weight[3,0,2,2]``.
        runs: the first one's clients make the densities; the others' models can be marked in them.
        reference: what distances from the mode are to be compared with; None where it was not asked for.
        attrs: provenance: run, round, seed, versions.

    Raises:
        FedscopeError: no parameter, or more than 100; a first run with fewer than two clients, of which there is no
            density; two runs of one name.
    """

    names: tuple[str, ...]
    runs: tuple[RunValues, ...]
    reference: Reference | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < len(self.names) <= MOST:
            raise FedscopeError(f"there are {len(self.names)} parameters to draw a panel of each; take 1 to {MOST}")
        first, named = self.runs[0], [run.run for run in self.runs]
        if len(first.client_ids) < 2:
            raise FedscopeError(
                f"round {first.round} of {first.run} has {len(first.client_ids) or 'no'} client"
                f"{'' if len(first.client_ids) == 1 else 's'}, and a density over clients needs two or more; take a "
                "round with more clients"
            )
        for name in named:
            if named.count(name) > 1:
                raise FedscopeError(f"{named.count(name)} of the runs are called {name!r}; rename a folder")

    @cached_property
    def summaries(self) -> tuple[Summary, ...]:
        """Skewness, mode and distances of every parameter, in the order of ``names``."""
        return summarise(self.names, self.runs)

    def rows(self) -> Iterator[tuple[str, int, str, str, float]]:
        """run, round, parameter, which, value: clients first, then the models."""
        for run in self.runs:
            for i, name in enumerate(self.names):
                for k, client in enumerate(run.client_ids):
                    yield run.run, run.round, name, f"client-{client}", float(run.clients[k, i])
                for which, values in run.models.items():
                    yield run.run, run.round, name, which, float(values[i])

    def save(self, base: Path | str) -> list[Path]:
        """Write BASE.parameters.csv (tidy: run, round, parameter, which, value) and BASE.parameters.json (provenance,
        summaries); returns their paths. Floats survive."""
        return write_tables(self, Path(base))

    @classmethod
    def load(cls, base: Path | str) -> Parameters:
        """The inverse of :meth:`save`.

        Raises:
            FedscopeError: a file is missing or is no such result.
        """
        return read_tables(Path(base))

    def figure(self, width: float = 3.5, title: str | None = None) -> Figure:
        """Densities over the first run's clients, a panel a parameter, with the models' values marked; ``width`` in
        inches."""
        from .figure import draw_parameters

        return draw_parameters(self, width, title)
