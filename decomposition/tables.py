"""BASE.factors.csv, BASE.clients.csv and BASE.factors.json: a decomposition at rest."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checkpoints import FedscopeError
from ..checkpoints.tables import beside, number, read_csv, read_info, write_csv, write_info
from .records import ClientRow, FactorRow, RoundFactors

if TYPE_CHECKING:
    from .results import Decomposition

FORMAT, VERSION = "fedscope-decomposition", 2
FACTOR_COLUMNS = (
    "run",
    "round",
    "model",
    "split",
    "loss",
    "draws",
    "factor",
    "estimate",
    "value",
    "stderr_draws",
    "stderr_samples",
)
CLIENT_COLUMNS = (
    "run",
    "round",
    "client",
    "samples",
    "train_bias",
    "heter_bias",
    "variance",
    "distance",
    "model",
    "trained",
)
# What a round's tables do not say and a figure needs.
ROUND_FIELDS = (
    *("round", "draws", "count", "independent", "outputs"),
    *("samples", "classes", "population", "split", "loss"),
)


def write_tables(result: Decomposition, base: Path) -> list[Path]:
    """Write the three files durably, BASE.factors.json last, so that a result that can be loaded is whole."""
    factors = (
        (
            *(run.run, one.round, run.model, result.split, result.loss, result.draws),
            *(row.factor, row.estimate, row.value, row.stderr_draws, row.stderr_samples),
        )
        for run, one, row in result.rows()
    )
    clients = (
        (
            *(run.run, one.round, row.client, row.samples),
            *(row.train_bias, row.heter_bias, row.variance, row.distance, run.model, row.trained),
        )
        for run, one, row in result.clients()
    )
    info = {
        "split": result.split,
        "loss": result.loss,
        "draws": result.draws,
        "runs": [
            {
                "run": run.run,
                "model": run.model,
                "rounds": [
                    {
                        **{name: getattr(one, name) for name in ROUND_FIELDS},
                        "rows": len(one.rows),
                        "weights": [row.weight for row in one.clients],
                    }
                    for one in run.rounds
                ],
                "curves": [
                    {"label": curve.label, "rounds": list(curve.rounds), "error": list(curve.error)}
                    for curve in run.curves
                ],
            }
            for run in result.runs
        ],
        "attrs": dict(result.attrs),
    }
    paths = [beside(base, suffix) for suffix in (".factors.csv", ".clients.csv", ".factors.json")]
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    write_csv(paths[0], FACTOR_COLUMNS, factors)
    write_csv(paths[1], CLIENT_COLUMNS, clients)
    write_info(paths[2], FORMAT, VERSION, info)
    return paths


def read_tables(base: Path) -> Decomposition:
    """Read what `write_tables` wrote."""
    paths = [beside(base, suffix) for suffix in (".factors.json", ".factors.csv", ".clients.csv")]
    for path in paths:
        if not path.exists():
            raise FedscopeError(
                f"{path} does not exist: a decomposition is {base.name}.factors.csv, {base.name}.clients.csv and "
                f"{base.name}.factors.json in one folder; run `fedscope decompose` again without --redraw"
            )
    info = read_info(paths[0], FORMAT, VERSION, "decompose")
    try:
        return _assembled(info, paths[1], paths[2])
    except (KeyError, ValueError, TypeError):
        raise FedscopeError(
            f"{paths[1].name}, {paths[2].name} and {paths[0]} do not fit each other, so one was changed or cut; "
            "compute them again with --force"
        ) from None


def _assembled(info: Any, factor_table: Path, client_table: Path) -> Decomposition:
    from .results import Decomposition, ErrorCurve, RunFactors

    factors: defaultdict[tuple[str, str, int], list[FactorRow]] = defaultdict(list)
    for row in read_csv(factor_table, FACTOR_COLUMNS, "decompose"):
        numbers = (number(row[name]) for name in ("value", "stderr_draws", "stderr_samples"))
        factors[row["run"], row["model"], int(row["round"])].append(FactorRow(row["factor"], row["estimate"], *numbers))
    clients: defaultdict[tuple[str, str, int], list[dict[str, str]]] = defaultdict(list)
    for row in read_csv(client_table, CLIENT_COLUMNS, "decompose"):
        clients[row["run"], row["model"], int(row["round"])].append(row)
    runs = []
    for run in info["runs"]:
        name = run["run"], run["model"]
        rounds = tuple(
            RoundFactors(
                **{name: one[name] for name in ROUND_FIELDS},
                rows=_whole(factors[*name, one["round"]], one["rows"]),
                clients=tuple(
                    _client(row, weight)
                    for row, weight in zip(clients[*name, one["round"]], one["weights"], strict=True)
                ),
            )
            for one in run["rounds"]
        )
        curves = (ErrorCurve(one["label"], tuple(one["rounds"]), tuple(one["error"])) for one in run["curves"])
        runs.append(RunFactors(run["run"], run["model"], rounds, tuple(curves)))
    return Decomposition(tuple(runs), info["split"], info["draws"], info["loss"], info["attrs"])


def _whole(rows: list[FactorRow], count: int) -> tuple[FactorRow, ...]:
    if len(rows) != count:
        raise ValueError(f"{len(rows)} rows of a round that has {count}")
    return tuple(rows)


def _client(row: dict[str, str], weight: float) -> ClientRow:
    return ClientRow(
        client=int(row["client"]),
        samples=int(row["samples"]),
        weight=weight,
        train_bias=number(row["train_bias"]),
        heter_bias=number(row["heter_bias"]),
        variance=float(row["variance"]),
        distance=float(row["distance"]),
        trained=int(row["trained"]) if row["trained"] else None,
    )
