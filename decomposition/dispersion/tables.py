"""BASE.dispersion.csv and .json, and the tables of single layers: dispersion at rest."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.tables import beside, number, read_csv, read_info, write_csv, write_info
from .records import Cells, LayerDispersion, LayerMap, RoundDispersion, SkewHistogram

if TYPE_CHECKING:
    from .result import Dispersion

FORMAT, VERSION = "fedscope-dispersion", 1
COLUMNS = (
    *("run", "round", "layer", "parameters", "constant", "mean_cv", "high_share", "skew_mean_abs"),
    *("skew_rejected_share", "kurtosis_mean", "median_cv"),
)
#: what a row of the table leaves to the JSON file
COUNTS = ("zero_mean", "nonfinite", "tested", "rejected")
LAYER = ("run", "round", "layer")
SKEW_COLUMNS = (*LAYER, "low", "high", "count", "expected")
CELL_COLUMNS = (*LAYER, "mean", "deviation", "count", "skewness")
SUFFIXES = (".dispersion.csv", ".layers.skewness.csv", ".layers.map.csv", ".dispersion.json")


def write_tables(result: Dispersion, base: Path) -> list[Path]:
    """Write all files durably, BASE.dispersion.json last, so that a result that can be loaded is whole."""
    table, skewness, cells, main = paths = [beside(base, suffix) for suffix in SUFFIXES]
    table.parent.mkdir(parents=True, exist_ok=True)
    rows = ((one, row) for one in result.rounds for row in one.rows)
    write_csv(table, COLUMNS, ((one.run, one.round, *(getattr(row, c) for c in COLUMNS[2:])) for one, row in rows))
    write_csv(skewness, SKEW_COLUMNS, (row for one in result.maps for row in _histogram_rows(one)))
    write_csv(cells, CELL_COLUMNS, (row for one in result.maps for row in _cell_rows(one)))
    info = {
        "fdr": result.fdr,
        "rounds": [
            {
                "run": one.run,
                "round": one.round,
                "clients": one.clients,
                "counts": [{name: getattr(row, name) for name in COUNTS} for row in one.rows],
            }
            for one in result.rounds
        ],
        "maps": [
            {
                **{name: getattr(one, name) for name in (*LAYER, "clients")},
                **{name: getattr(one.cells, name) for name in ("width", "height")},
            }
            for one in result.maps
        ],
        "attrs": dict(result.attrs),
    }
    write_info(main, FORMAT, VERSION, info)
    return paths


def read_tables(base: Path) -> Dispersion:
    """Read what :func:`write_tables` wrote."""
    from .result import Dispersion

    table, skewness, cells, main = paths = [beside(base, suffix) for suffix in SUFFIXES]
    for path in (main, *paths):
        if not path.exists():
            raise FedscopeError(
                f"{path} does not exist: a result of disperse is {table.name}, {main.name} and the tables of its "
                "layers in one folder; compute it again with --force"
            )
    info = read_info(main, FORMAT, VERSION, "disperse")
    rows = iter(read_csv(table, COLUMNS, "disperse"))
    rounds = tuple(_round(one, rows, table) for one in info["rounds"])
    histograms, maps = _by_layer(skewness, SKEW_COLUMNS), _by_layer(cells, CELL_COLUMNS)
    found = []
    for one in info["maps"]:
        key = (one["run"], str(one["round"]), one["layer"])
        cell = _cells(one.pop("width"), one.pop("height"), maps.get(key, []))
        found.append(LayerMap(**one, histogram=_histogram(histograms.get(key, [])), cells=cell))
    return Dispersion(rounds, info["fdr"], tuple(found), info["attrs"])


def _round(info: dict[str, Any], rows: Iterator[dict[str, str]], table: Path) -> RoundDispersion:
    found = []
    for counts in info.pop("counts"):
        row = next(rows, None)
        if row is None or (row["run"], int(row["round"])) != (info["run"], info["round"]):
            raise FedscopeError(
                f"{table} lacks rows of round {info['round']} of {info['run']}, which its .json tells of; compute it "
                "again with --force"
            )
        values: dict[str, Any] = {name: number(row[name]) for name in COLUMNS[5:] if name != "skew_rejected_share"}
        values |= {"layer": row["layer"], **{name: int(row[name]) for name in ("parameters", "constant")}}
        found.append(LayerDispersion(**values, **counts))
    return RoundDispersion(**info, layers=tuple(found[:-1]), whole=found[-1])


def _histogram_rows(one: LayerMap) -> Iterator[tuple[Any, ...]]:
    made = one.histogram
    for i, (count, expected) in enumerate(zip(made.counts.tolist(), made.expected.tolist(), strict=True)):
        yield one.run, one.round, one.layer, float(made.edges[i]), float(made.edges[i + 1]), count, expected


def _cell_rows(one: LayerMap) -> Iterator[tuple[Any, ...]]:
    cells = one.cells
    columns = (cells.mean, cells.deviation, cells.count, cells.skewness)
    for values in zip(*(column.tolist() for column in columns), strict=True):
        yield one.run, one.round, one.layer, *values


def _by_layer(path: Path, columns: tuple[str, ...]) -> dict[tuple[str, ...], list[dict[str, str]]]:
    rows = read_csv(path, columns, "disperse")
    return {key: list(own) for key, own in groupby(rows, lambda row: tuple(row[name] for name in LAYER))}


def _floats(rows: list[dict[str, str]], name: str) -> np.ndarray:
    return np.array([float(row[name]) for row in rows])


def _histogram(rows: list[dict[str, str]]) -> SkewHistogram:
    edges = np.concatenate([_floats(rows[:1], "low"), _floats(rows, "high")])
    return SkewHistogram(edges, _floats(rows, "count").astype(np.int64), _floats(rows, "expected"))


def _cells(width: float, height: float, rows: list[dict[str, str]]) -> Cells:
    count = _floats(rows, "count").astype(np.int64)
    return Cells(width, height, _floats(rows, "mean"), _floats(rows, "deviation"), count, _floats(rows, "skewness"))
