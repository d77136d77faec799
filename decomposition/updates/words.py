"""The geometry of updates in words and as plain numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...checkpoints.errors import listed

if TYPE_CHECKING:
    from .result import ClientUpdates, RoundUpdates

_NUMBERS = (
    *("cosine_mean", "cosine_stderr", "cosine_min", "cosine_max"),
    *("mean_norm", "norm_of_mean", "cancellation", "diversity", "orthogonal"),
)


def sentence(result: ClientUpdates) -> str:
    """The first and the last round: how alike the updates point, and how much of their length the mean keeps."""
    first, last = result.rounds[0], result.rounds[-1]
    shown = [first] if last is first else [first, last]
    cosines = ", ".join(f"{_cosine(one)} in round {one.round}" for one in shown)
    kept = ", ".join(f"{_kept(one)} in round {one.round}" for one in shown)
    across = ", ".join(f"{one.orthogonal:.3g}" for one in shown)
    said = (
        f"{result.run}: mean cosine between updates {cosines}; of their mean length the mean update keeps {kept} "
        f"(orthogonal ones: {across})"
    )
    for one in result.rounds:
        if one.unmoved:
            who = f"client{'s' if len(one.unmoved) > 1 else ''} {listed(one.unmoved)}"
            said += f"; {who} of round {one.round} did not move and {_has(one)} no direction"
    return said


def as_numbers(result: ClientUpdates) -> list[dict[str, Any]]:
    """Every round's numbers, for --json."""
    return [
        {
            "run": result.run,
            "round": one.round,
            "clients": len(one.client_ids),
            **{name: getattr(one, name) for name in _NUMBERS},
            "unmoved": one.unmoved,
        }
        for one in result.rounds
    ]


def _cosine(one: RoundUpdates) -> str:
    if math.isnan(one.cosine_mean):
        return "not defined"
    return f"{one.cosine_mean:.3g}" + ("" if math.isnan(one.cosine_stderr) else f" ± {one.cosine_stderr:.1g}")


def _kept(one: RoundUpdates) -> str:
    return "an undefined share" if math.isnan(one.cancellation) else f"{one.cancellation:.3g}"


def _has(one: RoundUpdates) -> str:
    return "have" if len(one.unmoved) > 1 else "has"
