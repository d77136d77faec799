"""What one more seed of a claim's runs costs: as the plan of long runs estimates it, or from seconds that were measured
with the results that are kept."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from outcomes import Cost

#: seconds that two cores take for a round of the papers' CNN with ten clients of 500 samples and five epochs; the
#: median of the long runs that had both cores for themselves
ROUND = 12.0


@lru_cache(maxsize=1)
def plan() -> dict[str, Cost]:
    """Of a seed of each kind of unit of the long runs."""
    folder = str(Path(__file__).resolve().parents[1] / "long")
    if folder not in sys.path:
        sys.path.append(folder)
    from plan import Scale, costs

    return costs(Scale())


def planned(*places: str) -> Cost:
    """Of the units of long runs that a claim needs, as ``device`` and ``device-ima``."""
    own = [plan()[place] for place in places]
    return Cost(own[0].seeds, sum(one.rounds for one in own), sum(one.hours for one in own))


def measured(curves: Any, begins: str, runs: int, rounds: int, seeds: int = 3) -> Cost:
    """Of runs as long as that, at the seconds that a round of those whose names begin so took.

    Args:
        curves: a ``Curves`` with seconds.
    """
    import numpy as np

    found = [own.values["seconds"] for own in curves.runs if own.run.startswith(begins)]
    second = float(np.nanmedian(np.concatenate(found)))  # some stand still while others work
    return Cost(seeds, runs * rounds, runs * rounds * second / 3600)


def at_length(runs: int, rounds: int, seeds: int = 3) -> Cost:
    """Of runs of the papers' CNN at a paper's own length; estimated."""
    return Cost(seeds, runs * rounds, runs * rounds * ROUND / 3600)
