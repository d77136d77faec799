"""What the papers' modules do alike with numbers and kept results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def listed(values: Sequence[Any]) -> str:
    """As a command takes them."""
    return ",".join(map(str, values))


def federation(recipe: str) -> str:
    """Of a recipe, as a sentence begins: how many clients, how they share the data, how many a round.

    >>> federation("ima/fig1"), federation("ima/fig2")
    ('100 clients, shards:2, 10 of them per round', '10 clients, shards:2,250, all in every round')
    """
    import fedscope

    tables = fedscope.recipe(recipe).tables
    clients, share = tables["data"]["clients"], tables["run"]["participation"]
    cohort = round(share * clients)
    words = "all in every round" if cohort == clients else f"{cohort} of them per round"
    return f"{clients} clients, {tables['data']['partition']}, {words}"


def drawn(kind: str, name: str, results: Path, **how: Any) -> Any:
    """A result's own figure.

    Args:
        kind: its class in ``fedscope``; name: of the answer.
    """
    import fedscope

    return getattr(fedscope, kind).load(results / name).figure(**how)


def shown(values: Mapping[Any, float], scale: float = 100, digits: str = ".2f") -> str:
    """Mean ± deviation over seeds, of one seed the value alone.

    >>> shown({"0": 0.5, "1": 0.7})
    '60.00 ± 14.14'
    """
    import numpy as np

    own = scale * np.array(list(values.values()))
    return f"{own.mean():{digits}}" + (f" ± {own.std(ddof=1):{digits}}" if len(own) > 1 else "")


def damaged(results: Path) -> str:
    """A sentence on the first file of kept numbers that is half-written; "" where all are whole.

    Args:
        results: the folder of a paper's numbers.
    """
    path = next((path for path in sorted(results.glob("*.*")) if path.is_file() and not _whole(path)), None)
    if path is None:
        return ""
    remedy = f"delete {path.with_name(path.name.partition('.')[0])}.* and run `make papers` again"
    if (results / "unit.json").exists():  # of long runs
        remedy = f"delete {results} and give --keep to `make papers-long` again"
    return f"{path} is damaged or half-written; `git checkout -- {path}` brings back what is committed, or {remedy}"


def _whole(path: Path) -> bool:
    from fedscope.checkpoints import FedscopeError
    from fedscope.results.arrays import read_netcdf

    try:
        if path.suffix == ".nc":
            read_netcdf(path)
        elif path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        elif path.suffix == ".csv":
            return path.read_bytes().endswith(b"\n")  # written at once, and cut off anywhere
    except (FedscopeError, OSError, ValueError):
        return False
    return True
