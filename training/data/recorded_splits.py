"""What recorded runs say of their data, while these are loaded again: samples stay what the models were trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ...checkpoints.io.warn_user import warn_user

#: means and deviations, one a channel
Moments = tuple[Sequence[float], Sequence[float]]

#: deviations up to which recorded means are those of one way, whatever sums have rounded; of other data they are others
SAME = 1e-3

#: ``data`` entries of ``run.json``; None where a run begins, or none is there
_ENTRIES: ContextVar[tuple[Mapping[str, Any], ...] | None] = ContextVar("recorded_splits", default=None)


@contextmanager
def loaded_for(entries: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Load data inside as those of recorded runs.

    Args:
        entries: the runs' own ``data`` entries; none are as outside.
    """
    token = _ENTRIES.set(tuple(entries) or None)
    try:
        yield
    finally:
        _ENTRIES.reset(token)


def are_recorded() -> bool:
    """Check whether data are loaded for runs that are there, so that what their splits are is no choice any more."""
    return _ENTRIES.get() is not None


def known_sums() -> frozenset[str]:
    """Return the sums of arrays that the recorded runs say, for which data are loaded."""
    return frozenset(str(entry["sha256"]) for entry in _ENTRIES.get() or () if "sha256" in entry)


def is_of_before(name: str, before: Moments, now: Moments) -> bool:
    """Check whether recorded runs were trained on samples that an earlier fedscope standardised, in float32 alone.

    Of several runs the first counts, and a warning says so where others differ from it.

    Args:
        before, now: what either way gives.
    """
    known = [
        (entry["channel_means"], entry["channel_deviations"])
        for entry in _ENTRIES.get() or ()
        if len(entry.get("channel_means", ())) == len(entry.get("channel_deviations", ())) == len(now[0])
    ]
    ways = [_distance(said, before, now[1]) < min(_distance(said, now, now[1]), SAME * len(now[1])) for said in known]
    if len(set(ways)) > 1:
        old, new = known[ways.index(True)], known[ways.index(False)]
        k = next(k for k, pair in enumerate(zip(*old, *new, strict=True)) if pair[:2] != pair[2:])
        warn_user(
            f"{name}: runs were trained on samples that were standardised in two ways (mean {old[0][k]:.9g} and "
            f"deviation {old[1][k]:.3g}, or {new[0][k]:.9g} and {new[1][k]:.3g}), and all are measured in that of the "
            "first; ask for one of them at a time"
        )
    return bool(ways) and ways[0]


def _distance(one: Moments, other: Moments, unit: Sequence[float]) -> float:
    pairs = zip(one, other, strict=True)
    return sum(abs(a - b) / u for mine, theirs in pairs for a, b, u in zip(mine, theirs, unit, strict=True))
