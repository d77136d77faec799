"""A map of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt

from ...checkpoints.results import Table, TableResult, number, truth

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = npt.NDArray[np.float64]
Colour = Literal["layer", "skewness", "dispersion"]


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
                (layer, ",".join(map(str, index)), x, y, _known(cv), _known(skewness), high)
                for layer, index, (x, y, cv, skewness, high) in zip(self.layers, self.index, numbers, strict=True)
            )
        ]

    def head(self) -> dict[str, Any]:
        """Of which round."""
        return {"run": self.run, "round": self.round, "clients": self.clients}

    @classmethod
    def of_tables(cls, head: dict[str, Any], *tables: list[dict[str, Any]]) -> Self:
        """The inverse of :meth:`rows` and :meth:`head`."""
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

    def figure(self, width: float = 3.5, title: str | None = None, colour: Colour = "layer") -> Figure:
        """The map, coloured by layer, by skewness or by dispersion (cv); ``width`` in inches.

        Raises:
            FedscopeError: another ``colour``.
        """
        from .map_figure import draw_map

        return draw_map(self, width, title, colour)

    def summary(self) -> str:
        """How many of how many parameters are shown, and how many of them are of high dispersion."""
        every = self.attrs["parameters"]
        return (
            f"{self.run}, round {self.round}: {len(self.layers):,} of {every:,} parameters as points "
            f"by the updates of {self.clients} clients, {self.high.sum()} of them of high dispersion in their layer"
        )

    def findings(self) -> dict[str, Any]:
        """The same numbers."""
        return {
            **self.head(),
            "points": len(self.layers),
            "parameters": self.attrs["parameters"],
            "high": int(self.high.sum()),
        }


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
