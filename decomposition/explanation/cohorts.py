"""Whether rounds have the same clients."""

from __future__ import annotations

from collections.abc import Sequence

from ..factors.records import RoundFactors


def clients_of(one: RoundFactors) -> frozenset[int]:
    """The ids of a round's clients."""
    return frozenset(row.client for row in one.clients)


def clients_differ(rounds: Sequence[RoundFactors]) -> bool:
    """Whether two of the rounds have different clients."""
    return len({clients_of(one) for one in rounds}) > 1
