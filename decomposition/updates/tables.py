"""BASE.updates.csv: the numbers of all runs and rounds, a row each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoints.tables import beside, write_csv

if TYPE_CHECKING:
    from .result import ClientUpdates

COLUMNS = (
    *("run", "round", "clients", "cosine_mean", "cosine_stderr", "cosine_min", "cosine_max"),
    *("mean_norm", "norm_of_mean", "cancellation", "diversity", "orthogonal", "unmoved"),
)


def write_table(results: Sequence[ClientUpdates], base: Path) -> Path:
    """Write ``BASE.updates.csv`` durably, and return its path; fields are empty where a value does not exist.

    ``unmoved`` is how many clients are where they started; the rest is in
    :class:`~fedscope.decomposition.updates.RoundUpdates`.
    """
    path = beside(base, ".updates.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (
        [
            *(result.run, one.round, len(one.client_ids)),
            *(_field(getattr(one, name)) for name in COLUMNS[3:-1]),
            len(one.unmoved),
        ]
        for result in results
        for one in result.rounds
    )
    write_csv(path, COLUMNS, rows)
    return path


def _field(value: Any) -> Any:
    return None if math.isnan(value) else value
