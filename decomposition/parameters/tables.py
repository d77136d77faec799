"""BASE.parameters.csv and BASE.parameters.json: single parameters at rest."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.tables import beside, read_csv, read_info, write_csv, write_info
from .reading import RunValues
from .reference import Reference
from .summaries import Summary

if TYPE_CHECKING:
    from .result import Parameters

FORMAT, VERSION = "fedscope-parameters", 1
COLUMNS = ("run", "round", "parameter", "which", "value")


def write_tables(result: Parameters, base: Path) -> list[Path]:
    """Write both files durably, BASE.parameters.json last, so that a result that can be loaded is whole."""
    table, main = (beside(base, suffix) for suffix in (".parameters.csv", ".parameters.json"))
    table.parent.mkdir(parents=True, exist_ok=True)
    write_csv(table, COLUMNS, result.rows())
    info = {
        "runs": [
            {"run": run.run, "round": run.round, "clients": run.client_ids.tolist(), "models": list(run.models)}
            for run in result.runs
        ],
        "parameters": [summary_json(summary) for summary in result.summaries],
        "reference": asdict(result.reference) if result.reference else None,
        "attrs": dict(result.attrs),
    }
    write_info(main, FORMAT, VERSION, info)
    return [table, main]


def summary_json(summary: Summary) -> dict[str, Any]:
    """A summary as plain values, with ``fma_to_mode`` beside the distances of all models."""
    return {**asdict(summary), "fma_to_mode": summary.fma_to_mode}


def read_tables(base: Path) -> Parameters:
    """Read what :func:`write_tables` wrote; summaries are made anew of the values."""
    from .result import Parameters

    table, main = (beside(base, suffix) for suffix in (".parameters.csv", ".parameters.json"))
    for path in (main, table):
        if not path.exists():
            raise FedscopeError(
                f"{path} does not exist: a result of parameters is {table.name} and {main.name} in one folder; compute "
                "it again with --force"
            )
    info = read_info(main, FORMAT, VERSION, "parameters")
    values = {
        (row["run"], row["parameter"], row["which"]): float(row["value"])
        for row in read_csv(table, COLUMNS, "parameters")
    }
    names = tuple(one["parameter"] for one in info["parameters"])
    try:
        runs = tuple(_run(one, names, values) for one in info["runs"])
    except KeyError as error:
        run, name, which = error.args[0]
        raise FedscopeError(f"{table} lacks {which} of {run} in {name}; compute it again with --force") from None
    known: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in (info["reference"] or {}).items()}
    reference = Reference(**known) if known else None
    return Parameters(names, runs, reference, info["attrs"])


def _run(one: dict[str, Any], names: tuple[str, ...], values: dict[tuple[str, str, str], float]) -> RunValues:
    def of(which: str) -> list[float]:
        return [values[one["run"], name, which] for name in names]

    clients = np.array([of(f"client-{k}") for k in one["clients"]], np.float64).reshape(-1, len(names))
    models = {which: np.array(of(which), np.float64) for which in one["models"]}
    return RunValues(one["run"], one["round"], np.array(one["clients"], np.int64), clients, models)
