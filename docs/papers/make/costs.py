"""What one more seed of a claim's runs costs: as the plan of long runs estimates it, or from seconds that were measured
with the results that are kept."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from outcomes import Cost

#: seconds that two cores take for a round of the papers' CNN with ten clients of 500 samples and five epochs; the
#: median of the long runs that had both cores for themselves
ROUND = 12.0
#: the numbers of finished long runs
KEPT = Path(__file__).resolve().parents[1] / "results" / "long"


@lru_cache(maxsize=8)
def plan(kept: Path = KEPT) -> dict[str, Cost]:
    """Of a seed of each kind of unit of the long runs: measured where one is finished, else as the plan estimates it.

    Args:
        kept: where the numbers of finished units lie.
    """
    folder = str(Path(__file__).resolve().parents[1] / "long")
    if folder not in sys.path:
        sys.path.append(folder)
    from plan import Scale, costs
    from units import groups

    finished: dict[str, list[Path]] = {}
    for _, folders in list(groups(kept))[:1]:  # of the identity whose outcomes count
        for name, place in folders.items():
            finished.setdefault(re.sub(r"-\d+(-ima)?$", r"\1", name), []).append(place)
    return {name: spent(one, finished.get(name, ())) for name, one in costs(Scale()).items()}


def spent(cost: Cost, units: Iterable[Path]) -> Cost:
    """The cost with the hours that finished units took on two cores, on average; as it is where there is none."""
    told = [json.loads((folder / "unit.json").read_text(encoding="utf-8")) for folder in units]
    # the plan's hours are of two cores, too
    hours = [one["seconds"] / 3600 for one in told if one.get("cores") == 2 and not one.get("device")]
    return replace(cost, hours=sum(hours) / len(hours)) if hours else cost


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
