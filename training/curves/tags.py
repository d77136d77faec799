"""What a run's numbers are called in trackers, and the time of each round there."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from .measures import USUAL
from .run_curve import Curve

#: trackers show what stands before the slash as a group
_GROUPS = (
    ("clients", ("client_", "all_client_")),
    ("test", ("test_", "averaged_", "domain_")),
    ("server", ("server_", "soup_")),
    ("drift", ("drift_",)),
    ("consensus", ("consensus_",)),
)


def tag_of(column: str) -> str:
    """Return the tag of a column of ``metrics.csv``: its name behind a group.

    >>> tag_of("test_error"), tag_of("client_error_mean"), tag_of("lr")
    ('test/test_error', 'clients/client_error_mean', 'training/lr')
    """
    group = next((name for name, starts in _GROUPS if column.startswith(starts)), "training")
    return f"{group}/{column}"


def tagged(curve: Curve) -> dict[str, np.ndarray]:
    """All of a run's numbers by tag, over its rounds.

    ``deployed/test_loss`` and ``deployed/test_error`` are of the model that a user would deploy, as ``curves`` draws
    them: the averaged one where there is one.
    """
    columns = {f"deployed/{name}": curve.deployed(name) for name in USUAL}
    return columns | {tag_of(name): values for name, values in curve.values.items()}


def walls_of(curve: Curve, created: str | None) -> np.ndarray:
    """When each round was there, in seconds since 1970: when the run was created plus the ``seconds`` of all rounds
    until then, so that pauses do not count and a copied run gives the same."""
    return timestamp(created) + np.cumsum(np.nan_to_num(curve.column("seconds"), posinf=0.0, neginf=0.0))


def timestamp(created: str | None) -> float:
    """Seconds since 1970."""
    try:
        return max(0.0, datetime.fromisoformat(created or "").timestamp())
    except (ValueError, OverflowError):
        return 0.0
