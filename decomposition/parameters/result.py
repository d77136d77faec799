"""Single parameters over the clients of a round: densities, and a map of many of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError
from ...results import Table, TableResult, number, truth
from .parameter_names import Array, RunValues
from .summaries import Reference, Summary, none_if_nan, summarise

Colour = Literal["layer", "skewness", "dispersion"]

#: parameters in a result, which is a panel each
MOST = 100


@dataclass(frozen=True, eq=False)
class Parameters(TableResult):
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

    command = "parameters"
    suffixes = (".parameters.csv", ".parameters.json")
    format = "fedscope-parameters"
    tables = (Table(".parameters.csv", {"run": str, "round": int, "parameter": str, "which": str, "value": float}),)

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

    def values(self) -> Iterator[tuple[str, int, str, str, float]]:
        """run, round, parameter, which, value: clients first, then the models."""
        for run in self.runs:
            for i, name in enumerate(self.names):
                for k, client in enumerate(run.client_ids):
                    yield run.run, run.round, name, f"client-{client}", float(run.clients[k, i])
                for which, values in run.models.items():
                    yield run.run, run.round, name, which, float(values[i])

    def rows(self) -> list[Any]:
        """BASE.parameters.csv: a row a value."""
        return [self.values()]

    def head(self) -> dict[str, Any]:
        """Return the run, its clients, the summaries and the reference."""
        return {
            "runs": [
                {"run": run.run, "round": run.round, "clients": run.client_ids.tolist(), "models": list(run.models)}
                for run in self.runs
            ],
            **self.findings(),
        }

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave; summaries are computed anew of the values."""
        values = {(row["run"], row["parameter"], row["which"]): row["value"] for row in tables[0]}
        names = tuple(summary["parameter"] for summary in head["parameters"])
        reference = Reference.from_json(head["reference"]) if head["reference"] else None
        return cls(names, tuple(_run(run, names, values) for run in head["runs"]), reference, head["attrs"])

    def summary(self) -> str:
        """Describe the distance of the average to the mode, against that by chance; then a line a parameter."""
        first = self.runs[0]
        what = f"{len(self.names)} parameter{'s' if len(self.names) > 1 else ''}"
        if "top" in self.attrs and self.attrs["top"] is not None:
            what = f"the {len(self.names)} most skewed of {self.attrs.get('size', 0):,} parameters"
        words = f"{first.run}, round {first.round}: "
        missed = [abs(one.fma_to_mode) for one in self.summaries if one.fma_to_mode is not None]
        if missed:
            clients = len(first.client_ids)
            words += (
                f"the plain average misses the mode of {what} by {span(missed)} standard deviations of the {clients} "
            )
            words += "clients"
            for run in self.runs[1:]:
                theirs = [one.to_mode.get(f"{run.run}/global") for one in self.summaries]
                finite = [abs(distance) for distance in theirs if distance is not None]
                words += f", {run.run}'s global by {span(finite) if finite else 'no finite number'}"
            reference = "" if self.reference is None else self.reference.words()
            words += f"; {reference}" if reference else ""
        else:
            words += f"{what} without a density, so there is no mode to miss"
        lines = [words, *(f"  {one.parameter}: {one.words()}" for one in self.summaries)]
        lines += [f"  not finite: {', '.join(which)}" for which in [not_finite(self)] if which]
        if differ(self):
            lines.append(
                "  these runs' rounds began from different models, or had other clients or data, so marks of the "
                "others say nothing about their servers; branch them: fedscope train --from"
            )
        return "\n".join(lines)

    def findings(self) -> dict[str, Any]:
        """Return the summaries, and what they are to be compared with."""
        return {
            "parameters": [summary.numbers() for summary in self.summaries],
            "reference": vars(self.reference) if self.reference else None,
        }


@dataclass(frozen=True, eq=False)
class ParameterMap(TableResult):
    """n parameters of a round as points in the plane.

    Attributes:
        run: its name; round: the number; clients: C.
        layers: of each parameter, its ``state_dict`` key, [n].
        index: its place in the layer's tensor, [n] tuples.
        at: where it lies, [n, 2]; the axes have no unit.
        cv, skewness: over the clients, [n]; NaN where they do not exist.
        high: whether it is of high dispersion in its layer (FedSA eq. 5, 6), [n].
        attrs: provenance: run, seed, perplexity, backend, versions.
    """

    command = "parameters --tsne"
    drawn: ClassVar = {"": "tsne_figure:draw"}
    suffixes = (".parameters-tsne.csv", ".parameters-tsne.json")
    format = "fedscope-parameters-tsne"
    tables = (
        Table(
            ".parameters-tsne.csv",
            {"layer": str, "index": str, "x": float, "y": float, "cv": number, "skewness": number, "high": truth},
        ),
    )

    run: str
    round: int
    clients: int
    layers: tuple[str, ...]
    index: tuple[tuple[int, ...], ...]
    at: Array
    cv: Array
    skewness: Array
    high: npt.NDArray[np.bool_]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def rows(self) -> list[Any]:
        """BASE.parameters-tsne.csv: a row a parameter, empty where a number does not exist."""
        numbers = zip(self.at[:, 0], self.at[:, 1], self.cv, self.skewness, self.high.tolist(), strict=True)
        return [
            (
                (layer, ",".join(map(str, index)), x, y, none_if_nan(cv), none_if_nan(skewness), high)
                for layer, index, (x, y, cv, skewness, high) in zip(self.layers, self.index, numbers, strict=True)
            )
        ]

    def head(self) -> dict[str, Any]:
        """Return the round."""
        return {"run": self.run, "round": self.round, "clients": self.clients}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """Build the result from what :meth:`rows` and :meth:`head` gave."""
        (rows,) = tables

        def column(name: str) -> Array:
            return np.array([row[name] for row in rows], np.float64)  # NaN for None

        return cls(
            head["run"],
            head["round"],
            head["clients"],
            tuple(row["layer"] for row in rows),
            tuple(tuple(int(i) for i in row["index"].split(",") if i) for row in rows),
            np.stack([column("x"), column("y")], axis=1),
            column("cv"),
            column("skewness"),
            np.array([row["high"] for row in rows], np.bool_),
            head["attrs"],
        )

    def summary(self) -> str:
        """Count the shown parameters, of how many, and those of high dispersion."""
        every = self.attrs["parameters"]
        return (
            f"{self.run}, round {self.round}: {len(self.layers):,} of {every:,} parameters as points "
            f"by the updates of {self.clients} clients, {self.high.sum()} of them of high dispersion in their layer"
        )

    def findings(self) -> dict[str, Any]:
        """Return the numbers of the summary."""
        return {
            **self.head(),
            "points": len(self.layers),
            "parameters": self.attrs["parameters"],
            "high": int(self.high.sum()),
        }


def _run(head: dict[str, Any], names: tuple[str, ...], values: dict[tuple[str, str, str], float]) -> RunValues:
    def of(which: str) -> list[float]:
        return [values[head["run"], name, which] for name in names]

    clients = np.array([of(f"client-{k}") for k in head["clients"]], np.float64).reshape(-1, len(names))
    models = {which: np.array(of(which), np.float64) for which in head["models"]}
    return RunValues(head["run"], head["round"], np.array(head["clients"], np.int64), clients, models)


def differ(result: Parameters) -> bool:
    """Tell whether further runs did not begin the round as the first did."""
    return len(result.runs) > 1 and not result.attrs.get("same_start")


def not_finite(result: Parameters) -> list[str]:
    """Return the models with a value that is not finite where the clients have a density, as ``fma/global``."""
    dense = [one.mode is not None for one in result.summaries]
    return [
        f"{run.run}/{which}"
        for run in result.runs
        for which, values in run.models.items()
        if not np.isfinite(values[dense]).all()
    ]


def span(values: Sequence[float]) -> str:
    """Return the least and the greatest of some values.

    >>> span([0.3]), span([0.42, 0.3])
    ('0.30', '0.30 to 0.42')
    """
    low, high = (f"{value:.2f}" if value < 100 else f"{value:.3g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
