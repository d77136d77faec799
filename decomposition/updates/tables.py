"""BASE.updates.csv: the numbers of all runs and rounds, a row each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...checkpoints.tables import beside, write_csv

if TYPE_CHECKING:
    from .result import ClientUpdates, RoundUpdates

COLUMNS = (
    *("run", "round", "clients", "cosine_mean", "cosine_stderr", "cosine_min", "cosine_max"),
    *("mean_norm", "norm_of_mean", "cancellation", "diversity", "orthogonal", "unmoved", "diverged"),
)


def write_table(results: Sequence[ClientUpdates], base: Path) -> Path:
    """Write ``BASE.updates.csv`` durably, and return its path; fields are empty where a value does not exist, also
    where a client that diverged makes it infinite.

    ``unmoved`` is how many clients are where they started, ``diverged`` how many have no finite update; the rest is in
    :class:`~fedscope.decomposition.updates.RoundUpdates`.
    """
    path = beside(base, ".updates.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (
        [
            *(result.run, one.round, len(one.client_ids)),
            *(_field(getattr(one, name), one) for name in COLUMNS[3:-2]),
            *(len(one.unmoved), len(one.diverged)),
        ]
        for result in results
        for one in result.rounds
    )
    write_csv(path, COLUMNS, rows)
    return path


def _field(value: float, one: RoundUpdates) -> float | None:
    # the diversity of updates that cancel entirely is infinite, and a value
    return None if math.isnan(value) or (one.diverged and math.isinf(value)) else value
