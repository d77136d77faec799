"""Locality by layer and round: the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from ...checkpoints import FedscopeError
from ...plotting.style import describe_errors
from ...results import Table, TableResult, columns_of, group_rows
from .layer_rows import LAYER_ROUND_FIELDS, LayerFactors, RoundLayerFactors
from .rows import FactorRow, refuse_one_name


@dataclass(frozen=True)
class RunLayerFactors:
    """One model of one run over rounds: the run's name, ``global`` or ``averaged``, and the rounds in order."""

    run: str
    model: str
    rounds: tuple[RoundLayerFactors, ...]


@dataclass(frozen=True)
class LayerDecomposition(TableResult):
    """The factors of the squared loss by layer: locality when only some layers are averaged.

    Attributes:
        runs: each with its rounds, all of the same layers; the last one is all layers, with the rows of
            :class:`~fedscope.Decomposition`.
        split: train or test; draws: their source as given.
        attrs: provenance; ``layers`` is what was asked for.

    Raises:
        FedscopeError: two runs of one name and model; no round, or rounds of different layers.
    """

    command = "decompose"
    suffixes = (".factors-layers.csv", ".factors-layers.json")
    format = "fedscope-decomposition-layers"
    tables = (
        Table(
            ".factors-layers.csv",
            {
                **{"run": str, "round": int, "model": str, "split": str, "draws": str, "layer": str},
                **{"parameters": int, **columns_of(FactorRow)},
            },
        ),
    )
    drawn: ClassVar = {"": "layer_figure:draw_layers"}

    runs: tuple[RunLayerFactors, ...]
    split: str
    draws: str
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_one_name([(run.run, run.model) for run in self.runs])
        kinds = {tuple(cell.layer for cell in one.cells) for _, one in self.rounds()}
        if len(kinds) != 1 or () in kinds:
            raise FedscopeError("a decomposition by layer needs rounds of the same layers; give at least one round")

    def rounds(self) -> Iterator[tuple[RunLayerFactors, RoundLayerFactors]]:
        """Every round of every run."""
        return ((run, one) for run in self.runs for one in run.rounds)

    @property
    def layers(self) -> tuple[str, ...]:
        """What the rows of a round are of; the last one is all layers."""
        return next(tuple(cell.layer for cell in one.cells) for _, one in self.rounds())

    def values(self, factor: str, which: str = "value") -> np.ndarray:
        """Return a factor [layer, round of a run], NaN where it does not exist; or its ``stderr_draws``."""
        found = [[getattr(cell.row(factor), which) for cell in one.cells] for _, one in self.rounds()]
        return np.array([[np.nan if value is None else value for value in row] for row in found], np.float64).T

    def rows(self) -> list[Any]:
        """BASE.factors-layers.csv: a row a round, layer, factor and estimate, empty where a value does not exist."""
        return [
            [
                (run.run, one.round, run.model, self.split, self.draws, cell.layer, cell.parameters, *astuple(row))
                for run, one in self.rounds()
                for cell in one.cells
                for row in cell.rows
            ]
        ]

    def head(self) -> dict[str, Any]:
        """Return the runs, rounds and layers."""

        def told(one: RoundLayerFactors) -> dict[str, Any]:
            cells = [{"layer": cell.layer, "parameters": cell.parameters, "rows": len(cell.rows)} for cell in one.cells]
            return {**{name: getattr(one, name) for name in LAYER_ROUND_FIELDS}, "cells": cells}

        runs = [{"run": run.run, "model": run.model, "rounds": [told(one) for one in run.rounds]} for run in self.runs]
        return {"split": self.split, "draws": self.draws, "runs": runs}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        rows = group_rows(tables[0], "run", "model", "round", "layer")
        runs = []
        for run in head["runs"]:
            rounds = []
            for told in run["rounds"]:
                cells = []
                for about in told["cells"]:
                    own = rows.get((run["run"], run["model"], told["round"], about["layer"]), [])
                    if len(own) != about["rows"]:
                        raise ValueError(f"{len(own)} rows of a layer that has {about['rows']}")
                    kept = tuple(FactorRow(**{name: row[name] for name in columns_of(FactorRow)}) for row in own)
                    cells.append(LayerFactors(about["layer"], about["parameters"], kept))
                fields = {name: told[name] for name in LAYER_ROUND_FIELDS}
                rounds.append(RoundLayerFactors(**fields, cells=tuple(cells)))
            runs.append(RunLayerFactors(run["run"], run["model"], tuple(rounds)))
        return cls(tuple(runs), head["split"], head["draws"], head["attrs"])

    def summary(self) -> str:
        """Say of every run's last round which layer carries the locality."""
        return "\n".join(_sentence(run) for run in self.runs if run.rounds)

    def findings(self) -> dict[str, Any]:
        """Every round's locality and loss by layer."""
        names = ("locality", "ensemble_loss", "fma_loss", "delta_mean", "closure_error")
        return {
            "layers": list(self.layers),
            "rounds": [
                {
                    **{"run": run.run, "model": run.model, "round": one.round, "layer": cell.layer},
                    **{name: cell.row(name).value for name in names},
                }
                for run, one in self.rounds()
                for cell in one.cells
            ],
        }


def _sentence(run: RunLayerFactors) -> str:
    last = run.rounds[-1]
    *parts, whole = last.cells
    which = "" if run.model == "global" else f", {run.model}"
    apart, loss = (whole.row(name).value or 0.0 for name in ("ensemble_loss", "fma_loss"))
    closures = [cell.row("closure_error").value or 0.0 for cell in last.cells]
    closure = max((value for value in closures if not np.isnan(value)), default=np.nan)
    together = (
        f"all layers together {_locality(whole)}: from loss {apart:.3g} of averaged outputs to {loss:.3g} of averaged "
        f"weights (closes to {closure:.0e})"
    )
    known = [cell for cell in parts if np.isfinite(cell.row("locality").value or np.nan)]
    if not parts:
        sentence = f"{run.run}{which}, round {last.round}: locality of {together}"
        return sentence + describe_errors(sentence, "draws")
    if len(parts) == 1:
        said = f"locality {_locality(parts[0])} with {parts[0].layer} averaged alone"
    elif not known:
        broken = [cell for cell in parts if not np.isfinite(cell.row("locality").value or 0.0)]
        said = "no layer has a locality that is " + (
            "not 0" if not broken else "finite" if len(broken) == len(parts) else "finite and not 0"
        )
    else:
        most = max(known, key=lambda cell: abs(cell.row("locality").value or 0.0))
        said = f"locality is carried most by {most.layer}, {_locality(most)} when it is averaged alone"
    sentence = f"{run.run}{which}, round {last.round}: {said}; {together}"
    return sentence + describe_errors(sentence, "draws")


def _locality(cell: LayerFactors) -> str:
    row = cell.row("locality")
    if row.value is None:
        return "not defined"
    return f"{row.value:.3g}" + ("" if row.stderr_draws is None else f" ± {row.stderr_draws:.1g}")
