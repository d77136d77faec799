"""A map of parameters: a result that saves, loads and draws itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ...checkpoints import FedscopeError
from ...checkpoints.tables import beside, number, read_csv, read_info, write_csv, write_info

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = npt.NDArray[np.float64]
Colour = Literal["layer", "skewness", "dispersion"]

FORMAT, VERSION = "fedscope-parameters-tsne", 1
COLUMNS = ("layer", "index", "x", "y", "cv", "skewness", "high")


@dataclass(frozen=True, eq=False)
class ParameterMap:
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

    def save(self, base: Path | str) -> list[Path]:
        """Write BASE.parameters-tsne.csv (a row a parameter; empty where a number does not exist) and
        BASE.parameters-tsne.json (provenance); returns their paths. Floats survive."""
        table, main = (beside(Path(base), f".parameters-tsne.{kind}") for kind in ("csv", "json"))
        table.parent.mkdir(parents=True, exist_ok=True)
        numbers = zip(self.at[:, 0], self.at[:, 1], self.cv, self.skewness, self.high.tolist(), strict=True)
        rows = (
            (layer, ",".join(map(str, index)), x, y, _known(cv), _known(skewness), high)
            for layer, index, (x, y, cv, skewness, high) in zip(self.layers, self.index, numbers, strict=True)
        )
        write_csv(table, COLUMNS, rows)
        said = {"run": self.run, "round": self.round, "clients": self.clients, "attrs": dict(self.attrs)}
        write_info(main, FORMAT, VERSION, said)
        return [table, main]

    @classmethod
    def load(cls, base: Path | str) -> ParameterMap:
        """The inverse of :meth:`save`.

        Raises:
            FedscopeError: a file is missing or is no such result.
        """
        table, main = (beside(Path(base), f".parameters-tsne.{kind}") for kind in ("csv", "json"))
        for path in (main, table):
            if not path.exists():
                raise FedscopeError(
                    f"{path} does not exist: a map of parameters is {table.name} and {main.name} in one folder; "
                    "compute it again with --force"
                )
        info = read_info(main, FORMAT, VERSION, "parameters --tsne")
        rows = read_csv(table, COLUMNS, "parameters --tsne")

        def column(name: str) -> Array:
            return np.array([np.nan if number(row[name]) is None else float(row[name]) for row in rows], np.float64)

        return cls(
            info["run"],
            info["round"],
            info["clients"],
            tuple(row["layer"] for row in rows),
            tuple(tuple(int(i) for i in row["index"].split(",") if i) for row in rows),
            np.stack([column("x"), column("y")], axis=1),
            column("cv"),
            column("skewness"),
            np.array([row["high"] == "True" for row in rows], np.bool_),
            info["attrs"],
        )

    def figure(self, width: float = 3.5, title: str | None = None, colour: Colour = "layer") -> Figure:
        """The map, coloured by layer, by skewness or by dispersion (cv); ``width`` in inches.

        Raises:
            FedscopeError: another ``colour``.
        """
        from .map_figure import draw_map

        return draw_map(self, width, title, colour)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
