"""All claims that long runs are for, judged on the units of one identity that are finished. Rules were written before
any of these runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from long_device import device
from long_kept import Long
from long_silo import silo
from long_wima import wima
from outcomes import Cost, Outcome

#: of each paper's page, by figure
Outcomes = Mapping[str, list[Outcome]]


def judged(folders: Mapping[str, Path], costs: Mapping[str, Cost]) -> dict[str, Outcomes]:
    """By paper and figure the outcomes.

    Args:
        folders: of finished units of one commit, data file and machine, by name; costs: of a seed of each kind of
            unit, by its name without the seed.
    """
    long = Long(folders, costs)
    return {"ima": {**device(long), **silo(long)}, "wima": wima(long)}
