"""Rounds of which the recording policy kept the clients."""

from __future__ import annotations

from .errors import FedscopeError
from .rounds import Round
from .runs import Run


def recorded_clients(run: Run, number: int, *, start: bool = True) -> Round:
    """A round, if its clients, and with ``start`` the model they were sent, were recorded.

    Raises:
        FedscopeError: they were not; the sentence says which rounds have them.
    """
    round_ = run.round(number)
    if round_.has_clients and ("start" in round_.models or not start):
        return round_
    have = rounds_with_clients(run)
    listed = ", ".join(map(str, have[:12])) + (", ..." if len(have) > 12 else "")
    raise FedscopeError(
        f"{run.path}@{number}: the clients of round {number} were not recorded; "
        + (f"rounds {listed} have them" if have else "no round of this run has them: train with record.clients = 'all'")
    )


def rounds_with_clients(run: Run) -> tuple[int, ...]:
    """The rounds of a run whose clients were recorded, ascending."""
    return tuple(number for number in run.rounds if run.round(number).has_clients)
