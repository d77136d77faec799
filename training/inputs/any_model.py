"""A model of a run, whichever it kept: for what asks how the run's architecture answers, not how good a round is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...checkpoints import Round, Run, Weights


def rounds_with_models(run: Run, *, first: bool = False) -> Iterator[Round]:
    """Yield the rounds of a run that kept a model of whatever kind, the last one first, or the ``first`` one: where
    clients are kept every so many rounds, or the server has none, the last round may hold none."""
    for number in run.rounds if first else reversed(run.rounds):
        round_ = run.round(number)
        if round_.models or round_.has_clients or round_.has_sample:
            yield round_


def any_model(run: Run, *, first: bool = False) -> Weights | None:
    """Read one model of the last round that kept one: its ``global``, else its first client that was kept, else its
    ``start``, else its ``averaged``; None where no round kept any.

    Args:
        first: of the first such round, which stays the same when the run goes on.
    """
    round_ = next(rounds_with_models(run, first=first), None)
    if round_ is None:
        return None
    if "global" not in round_.models and (round_.has_clients or round_.has_sample):
        return round_.client(int((round_.client_ids if round_.has_clients else round_.sampled_ids)[0]))
    return round_.read(next(name for name in ("global", "start", "averaged") if name in round_.models))
