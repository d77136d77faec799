"""Which globals a run holds, and what can be asked of them."""

from __future__ import annotations

from collections.abc import Sequence

from ...checkpoints import FedscopeError, Run
from ...checkpoints.runs.run import lacking_words


def has_global(run: Run, round: int) -> bool:
    """Whether a round's ``global`` is in one of the run's files."""
    return any("global" in place.models for place in run.files_of(round))


def refuse_missing(run: Run, rounds: Sequence[int], window: int) -> None:
    """Make sure of all globals in windows that end in these rounds, without reading them.

    Raises:
        FedscopeError: one was not recorded; says what can be asked for.
    """
    needed = {t: end for end in reversed(rounds) for t in range(max(1, end - window + 1), end + 1)}
    missing = next((t for t in sorted(needed) if not has_global(run, t)), None)
    if missing is None:
        return
    if missing in run.lacking:
        raise FedscopeError(
            f"{run.path} {lacking_words(run)}; the mean of the last {window} in round {needed[missing]} needs the "
            f"global model of round {missing}: restore its file from a copy, or give other --rounds or --windows"
        )
    first = last = run.rounds[-1]  # which always has its global
    while first > 1 and has_global(run, first - 1):
        first -= 1
    remedy = ""
    if first + window - 1 <= last:
        remedy = f"give --rounds from {first + window - 1} on, or "
    elif last > first:
        remedy = f"give --rounds {last} and --windows up to {last - first + 1}, or "
    raise FedscopeError(
        f"{run.path} does not hold the global model of round {missing}, which the mean of the last {window} in round "
        f"{needed[missing]} needs; {remedy}train with record.globals = 'all'"
    )
