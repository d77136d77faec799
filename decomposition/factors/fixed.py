"""Factors that are fixed by how a decomposition is made, whatever the models: they are in the table, but no finding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .rows import RoundFactors

#: variances below are those of draws that are the same models up to rounding
FULL_BATCHES = 1e-12


def is_replayed(rounds: Sequence[RoundFactors]) -> bool:
    """Tell whether draws are replays, independent across clients, so that the covariance is 0 by construction."""
    return any(one.draws.partition(":")[0] == "local" for one in rounds)


def all_alike(one: RoundFactors) -> bool:
    """Tell whether the draws are the same models up to rounding, as replays are where clients take full batches."""
    try:
        value = one.row("variance").value
    except KeyError:
        return False
    return value is not None and abs(value) < FULL_BATCHES


def has_full_batches(one: RoundFactors) -> bool:
    """Tell whether a round's replays are all alike, so that its variance is 0 by construction and nothing has bars."""
    # of the 0-1 loss other models may still predict the same
    return is_replayed([one]) and one.loss != "zero-one" and all_alike(one)


def fixed_factors(rounds: Sequence[RoundFactors]) -> tuple[str, ...]:
    """Return the factors that are 0 by construction in all of these rounds, so that a figure of them would show
    estimates of nothing.

    The covariance of replays; the variance of replays that are all alike; and of a single client, which is its own
    average, covariance, locality and remainder.
    """
    if not rounds:
        return ()
    single = all(len(one.clients) == 1 for one in rounds)
    squared = all(one.loss == "squared" for one in rounds)
    names = []
    if squared and (is_replayed(rounds) or single):
        names.append("covariance")
    if all(has_full_batches(one) for one in rounds):
        names.append("variance")
    if single:
        names.append("locality" if squared else "remainder")
    return tuple(names)
