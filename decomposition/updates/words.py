"""The geometry of updates in words and as plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...checkpoints.errors import listed, spans

if TYPE_CHECKING:
    from .result import ClientUpdates, RoundUpdates

_NUMBERS = (
    *("cosine_mean", "cosine_stderr", "cosine_min", "cosine_max"),
    *("mean_norm", "norm_of_mean", "cancellation", "diversity", "orthogonal"),
)
# Of more rounds than this in which clients diverged only the first one's clients are named.
_NAMED = 3


def sentence(result: ClientUpdates) -> str:
    """The first and the last round: how alike the updates point, and how much of their length the mean keeps."""
    first, last = result.rounds[0], result.rounds[-1]
    shown = [first] if last is first else [first, last]
    cosines = ", ".join(f"{_cosine(one)} in round {one.round}" for one in shown)
    kept = ", ".join(f"{_kept(one)} in round {one.round}" for one in shown)
    across = ", ".join("undefined" if math.isnan(one.orthogonal) else f"{one.orthogonal:.3g}" for one in shown)
    said = (
        f"{result.run}: mean cosine between updates {cosines}; of their mean length the mean update keeps {kept} "
        f"(orthogonal ones: {across})"
    )
    for one in result.rounds:
        if one.unmoved:
            has = "have" if len(one.unmoved) > 1 else "has"
            said += f"; {_who(one.unmoved)} of round {one.round} did not move and {has} no direction"
    lost = diverged(result)
    return f"{said}; {lost}" if lost else said


def diverged(result: ClientUpdates) -> str:
    """Which clients of which rounds diverged, and what that costs; "" where none did."""
    lost = [one for one in result.rounds if one.diverged]
    if not lost:
        return ""
    if len(lost) <= _NAMED:
        who = ", ".join(f"{_who(one.diverged)} of round {one.round}" for one in lost)
        return f"{who} diverged: no mean exists there"
    first = lost[0]
    return (
        f"clients of rounds {spans(one.round for one in lost)} diverged, first {_who(first.diverged)} of round "
        f"{first.round}: no mean exists there"
    )


def as_numbers(result: ClientUpdates) -> list[dict[str, Any]]:
    """Every round's numbers, for --json."""
    return [
        {
            "run": result.run,
            "round": one.round,
            "clients": len(one.client_ids),
            **{name: getattr(one, name) for name in _NUMBERS},
            "unmoved": one.unmoved,
            "diverged": one.diverged,
        }
        for one in result.rounds
    ]


def _cosine(one: RoundUpdates) -> str:
    if math.isnan(one.cosine_mean):
        return "not defined"
    return f"{one.cosine_mean:.3g}" + ("" if math.isnan(one.cosine_stderr) else f" ± {one.cosine_stderr:.1g}")


def _kept(one: RoundUpdates) -> str:
    return "an undefined share" if math.isnan(one.cancellation) else f"{one.cancellation:.3g}"


def _who(ids: Sequence[int]) -> str:
    return f"client{'s' if len(ids) > 1 else ''} {listed(ids)}"
