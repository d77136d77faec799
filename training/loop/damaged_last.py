"""A run whose last round's file is damaged: whether a resume can make the round again, which is said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...checkpoints import FedscopeError, Run
from ...checkpoints.io.hdf5_validation import DamagedError
from ...checkpoints.rounds.verify import check_round
from ..config.config import Config
from .run_history import branch_of
from .state import RunMemory, last_participations


def refuse_damaged_last(run: Run, config: Config, *, compare: bool) -> None:
    """Refuse a run whose last round is none, or not whole.

    Args:
        compare: whether all of it is compared with its checksums; else what is read later is compared then.

    Raises:
        FedscopeError: what is wrong with it, and the remedies.
    """
    last = run.round(run.rounds[-1])
    with said_how_to_repeat(run, config):
        _ = last.models  # of what is no round's file, in its own words
        if compare and (faults := check_round(last).faults):
            raise DamagedError(last.path, faults[0])


@contextmanager
def said_how_to_repeat(run: Run, config: Config) -> Iterator[None]:
    """Add to what is said of a damaged last round that it can be made again, where that is so."""
    try:
        yield
    except FedscopeError as error:
        if not (run.rounds and check_round(run.round(run.rounds[-1])).faults and can_repeat_last(run, config)):
            raise
        raise FedscopeError(
            f"{error}; or move that file elsewhere and give the same command again, which trains round "
            f"{run.rounds[-1]} anew, to the same numbers"
        ) from error


def can_repeat_last(run: Run, config: Config) -> bool:
    """Check whether the files of the rounds before the last one hold all that a resume after them needs.

    What is kept for a resume beside the rounds is of the last one only, so the round before must hold its own.
    """
    before = run.rounds[-1] - 1
    if run.is_foreign or run.rounds != tuple(range(1, before + 2)) or branch_of(run)["round"] >= max(before, 1):
        return False
    if not before:
        return True
    memory, average = RunMemory(run), config.average
    window = average.window_size()
    try:
        round_ = run.round(before)
        checked = check_round(round_)
        if "global" not in round_.models or checked.faults or checked.checksums is None:
            return False
        for t in range(max(1, before - window + 1), before + 1) if window else ():
            memory.refuse_missing_row(t, mean=average.averages_first)
        last = last_participations(run, before, config)
        for t in set(last.values()):
            memory.refuse_missing_states(t, [k for k, of in last.items() if of == t])
    except FedscopeError:
        return False
    return True
