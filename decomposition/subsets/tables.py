"""BASE.subsets.csv and BASE.subsets.json: averages of subsets at rest."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING

from ...checkpoints import FedscopeError
from ...checkpoints.tables import beside, number, read_csv, read_info, write_csv, write_info

if TYPE_CHECKING:
    from .result import SizeRow, Subsets

FORMAT, VERSION = "fedscope-subsets", 1
COLUMNS = (
    *("run", "round", "weights", "m", "subsets", "exhaustive"),
    *("error_mean", "error_std", "error_stderr", "loss_mean", "loss_std", "loss_stderr", "error_min", "error_max"),
)


def write_tables(result: Subsets, base: Path) -> list[Path]:
    """Write both files durably, BASE.subsets.json last, so that a result that can be loaded is whole."""
    table, main = (beside(base, suffix) for suffix in (".subsets.csv", ".subsets.json"))
    table.parent.mkdir(parents=True, exist_ok=True)
    write_csv(table, COLUMNS, ((one.run, one.round, result.weights, *astuple(row)) for one, row in result.rows()))
    info = {
        "weights": result.weights,
        "rounds": [
            {"run": one.run, "round": one.round, "clients": one.clients, "diverged": list(one.diverged)}
            for one in result.rounds
        ],
        "attrs": dict(result.attrs),
    }
    write_info(main, FORMAT, VERSION, info)
    return [table, main]


def read_tables(base: Path) -> Subsets:
    """Read what :func:`write_tables` wrote."""
    from .result import RoundSubsets, Subsets

    table, main = (beside(base, suffix) for suffix in (".subsets.csv", ".subsets.json"))
    for path in (main, table):
        if not path.exists():
            raise FedscopeError(
                f"{path} does not exist: a result of subsets is {table.name} and {main.name} in one folder; compute it "
                "again with --force"
            )
    info = read_info(main, FORMAT, VERSION, "subsets")
    sizes: dict[tuple[str, int], list[SizeRow]] = {}
    for row in read_csv(table, COLUMNS, "subsets"):
        sizes.setdefault((row["run"], int(row["round"])), []).append(_row(row))
    rounds = tuple(
        RoundSubsets(
            **{**one, "diverged": tuple(one.get("diverged", ()))},  # which results from before it existed lack
            sizes=tuple(sizes.get((one["run"], one["round"]), ())),
        )
        for one in info["rounds"]
    )
    return Subsets(rounds, info["weights"], info["attrs"])


def _row(row: dict[str, str]) -> SizeRow:
    from .result import SizeRow

    values = {name: number(row[name]) for name in COLUMNS[6:]}
    return SizeRow(int(row["m"]), int(row["subsets"]), row["exhaustive"] == "True", **values)  # type: ignore[arg-type]
