"""BASE.embedding.csv and BASE.embedding.json: a result at rest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.tables import beside, read_csv, read_info, write_csv, write_info
from .points import Point

if TYPE_CHECKING:
    from .result import Embedding

FORMAT, VERSION = "fedscope-embedding", 1
COLUMNS = ("run", "round", "which", "x", "y")
#: what the JSON says besides the spreads, the clients' classes and the provenance
_SAID = ("method", "trustworthiness", "neighbours", "explained", "perplexity", "kl_divergence")
# The command that makes the files, for sentences.
COMMAND = "disperse --embed"


def write_tables(result: Embedding, base: Path) -> list[Path]:
    """Write the files durably, BASE.embedding.json last, so that a result that can be loaded is whole."""
    table, main = beside(base, ".embedding.csv"), beside(base, ".embedding.json")
    table.parent.mkdir(parents=True, exist_ok=True)
    rows = zip(result.points, result.places.tolist(), strict=True)
    write_csv(table, COLUMNS, ((point.run, point.round, point.which, x, y) for point, (x, y) in rows))
    labels: dict[str, dict[str, list[int]]] = {}
    for point in result.points:
        if point.labels:
            labels.setdefault(point.run, {})[point.which] = list(point.labels)
    info = {name: getattr(result, name) for name in _SAID}
    write_info(
        main,
        FORMAT,
        VERSION,
        {
            **info,
            "spreads": [{"run": run, "round": number, "mean": mean} for run, number, mean in result.spreads],
            "labels": labels,
            "attrs": dict(result.attrs),
        },
    )
    return [table, main]


def read_tables(base: Path) -> Embedding:
    """Read what :func:`write_tables` wrote."""
    from .result import Embedding

    table, main = beside(base, ".embedding.csv"), beside(base, ".embedding.json")
    for path in (table, main):
        if not path.exists():
            raise FedscopeError(
                f"{path} does not exist: an embedding is {table.name} and {main.name}; compute it again with --force"
            )
    info = read_info(main, FORMAT, VERSION, COMMAND)
    points, places = [], []
    for row in read_csv(table, COLUMNS, COMMAND):
        labels = info["labels"].get(row["run"], {}).get(row["which"], ())
        points.append(Point(row["run"], int(row["round"]), row["which"], tuple(labels)))
        places.append((float(row["x"]), float(row["y"])))
    said = {name: info[name] for name in _SAID}
    said["explained"] = None if said["explained"] is None else tuple(said["explained"])
    return Embedding(
        points=tuple(points),
        places=np.array(places).reshape(-1, 2),
        spreads=tuple((one["run"], one["round"], one["mean"]) for one in info["spreads"]),
        attrs=info["attrs"],
        **said,
    )
