"""BASE.theory.csv and BASE.theory.json: a result at rest."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from ...checkpoints import FedscopeError
from ...checkpoints.tables import beside, number, read_csv, read_info, write_csv, write_info
from .bounds import ClientBound
from .locality import Gap
from .slopes import fit_slope, local_slopes

if TYPE_CHECKING:
    from .result import Theory

# 2: `predicted` has the diagonal of the kernel, where version 1 had its greatest eigenvalue.
FORMAT, VERSION = "fedscope-theory", 2
COLUMNS = ("run", "round", "shrink", "client", "quantity", "value")
GAP = tuple(field.name for field in fields(Gap) if field.name not in ("round", "shrink"))
BOUND = tuple(field.name for field in fields(ClientBound) if field.name not in ("round", "client"))

Row = tuple[int | None, float | None, int | None, str, float | int | None]


def values(result: Theory) -> Iterator[Row]:
    """Round, ε, client, quantity, value. What is derived from several rows comes last: of rounds together without a
    round, of one round's shrunk clients (`shrink_*`) or of its clients with it."""
    for gap in result.gaps:
        for name in (*GAP, "ratio"):
            yield gap.round, gap.shrink, None, name, getattr(gap, name)
    for bound in result.bounds:
        for name in BOUND:
            yield bound.round, None, bound.client, name, getattr(bound, name)
    slope = result.slope
    if slope is not None:
        for name in ("value", "stderr", "points"):
            yield None, None, None, "slope" if name == "value" else f"slope_{name}", getattr(slope, name)
    for round_, path in result.paths.items():
        own, steps = fit_slope(path), local_slopes(path)
        if own is not None:
            yield round_, None, None, "shrink_slope", own.value
            yield round_, None, None, "shrink_slope_last", steps[-1]
    for one in result.correlations:
        for name in ("clients", "pearson", "low", "high", "spearman", "spearman_p"):
            kind = f"pearson_{name}" if name in ("low", "high") else name
            yield one.round, None, None, f"{one.variance}_{kind}", getattr(one, name)


def write_tables(result: Theory, base: Path) -> list[Path]:
    """Write the files durably, BASE.theory.json last, so that a result that can be loaded is whole."""
    table, main = beside(base, ".theory.csv"), beside(base, ".theory.json")
    table.parent.mkdir(parents=True, exist_ok=True)
    rows = [(result.run, *row) for row in values(result)]
    write_csv(table, COLUMNS, rows)
    # Their number tells a table that was cut between two rows.
    write_info(main, FORMAT, VERSION, {"run": result.run, "rows": len(rows), "attrs": result.attrs})
    return [table, main]


def read_tables(base: Path) -> Theory:
    """Read what :func:`write_tables` wrote.

    Raises:
        FedscopeError: a file is missing, is no such result or is not whole.
    """
    from .result import Theory

    main, table = _there(base, ".theory.json"), _there(base, ".theory.csv")
    info = read_info(main, FORMAT, VERSION, "theory")
    if not {"run", "attrs"} <= info.keys():
        raise FedscopeError(f"{main} is not whole; compute it again with --force")
    try:
        rows = read_csv(table, COLUMNS, "theory")
        gaps, bounds = _parsed(rows)
    except (csv.Error, KeyError, TypeError, ValueError) as error:
        raise FedscopeError(f"{table} is not whole; compute it again with --force") from error
    if len(rows) != info.get("rows", len(rows)):
        raise FedscopeError(
            f"{table} is not whole, it has {len(rows)} of {info['rows']} rows; compute it again with --force"
        )
    return Theory(info["run"], gaps, bounds, info["attrs"])


def _parsed(rows: Iterable[Mapping[str, str]]) -> tuple[tuple[Gap, ...], tuple[ClientBound, ...]]:
    gaps: defaultdict[tuple[int, float], dict[str, float]] = defaultdict(dict)
    bounds: defaultdict[tuple[int, int], dict[str, float | None]] = defaultdict(dict)
    for row in rows:
        name, value = row["quantity"], number(row["value"])
        if row["shrink"] and name in GAP and value is not None:
            gaps[int(row["round"]), float(row["shrink"])][name] = value
        elif row["client"]:
            bounds[int(row["round"]), int(row["client"])][name] = value
    return (
        tuple(Gap(round=round_, shrink=shrink, **own) for (round_, shrink), own in gaps.items()),
        tuple(_bound(round_, client, own) for (round_, client), own in bounds.items()),
    )


def _bound(round_: int, client: int, own: dict[str, float | None]) -> ClientBound:
    known = {name: value for name, value in own.items() if value is not None}
    return ClientBound.from_json({"round": round_, "client": client, **known, "samples": int(known["samples"])})


def _there(base: Path, suffix: str) -> Path:
    path = beside(base, suffix)
    if not path.exists():
        raise FedscopeError(
            f"{path} does not exist: a result of theory is {base.name}.theory.csv and {base.name}.theory.json; compute "
            "it again with --force"
        )
    return path
