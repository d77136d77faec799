"""Runs that name the same code, and were trained by other sources of it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from ...checkpoints import Run
from .kept_source import sources_in
from .used_source import digest_of_used

#: digests of what made the rounds of a run, each with the last round before it
Sources = tuple[tuple[int, str], ...]
#: kinds whose code says how a run is trained; data and partitions are compared by what the code has made
_METHODS = ("client", "server", "average", "model", "optimiser")


def sources_of(run: Run) -> Mapping[tuple[str, str], Sources]:
    """Return the sources of the code of one's own that a run's rounds were trained by, by kind and name; of a branch
    also those of its history. Equal ones say the same, see :func:`~.used_source.digest_of_used`.

    Raises:
        FedscopeError: a damaged file.
    """
    last = run.rounds[-1] if run.rounds else 0
    found: dict[tuple[str, str], Sources] = {}
    for key, own in sources_in(run, last).items():
        told = [(int(entry["after"]), digest_of_used(run, entry)) for entry in own]
        found[key] = tuple(next(alike) for _, alike in groupby(told, key=lambda one: one[1]))
    return found


def method_kinds(run: Run) -> dict[tuple[str, str], Sources]:
    """Return those of them that say how a run is trained."""
    return {key: own for key, own in sources_of(run).items() if key[0] in _METHODS}


def method_sources(run: Run) -> dict[str, Sources]:
    """Return the same under what a sentence calls each: ``the source of server mine:FedX``."""
    return {f"the source of {kind} {name}": own for (kind, name), own in method_kinds(run).items()}


def other_source(one: Run, other: Run) -> str:
    """Return what a sentence calls the first code of which two runs were trained by other sources; "" for none. Code
    that only one of them names is another method, and no other source."""
    ours, theirs = method_sources(one), method_sources(other)
    return next((name for name, own in ours.items() if theirs.get(name, own) != own), "")
