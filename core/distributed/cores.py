"""The number of cores to compute with."""

from __future__ import annotations

import os

#: so many cores at most are counted, where it is set: those that a job of this machine gets
VARIABLE = "FEDSCOPE_CORES"


def cores() -> int:
    """Count the cores that this process may use."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        count = os.cpu_count() or 1
    most = os.environ.get(VARIABLE, "")
    return min(count, int(most)) if most.isdecimal() and int(most) else count
