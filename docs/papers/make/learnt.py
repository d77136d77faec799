"""Which methods have learnt enough that a claim of their accuracy is judged at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from outcomes import Cost, Outcome, over_bound, untested

#: a method has learnt where its accuracy is at least this share of what the paper publishes for it; and others, to show
#: whether it matters
HALF, SHARES = 0.5, (0.3, 0.4, 0.5, 0.6)
#: what was changed where methods that had not learnt were judged, too
CHANGED = "methods that had not learnt were judged, too"


class Level(NamedTuple):
    """What a method has reached.

    Attributes:
        own: its accuracy here; paper: the published one; whose: method's that is, where its own is not legible.
    """

    own: float
    paper: float
    whose: str = ""


def where_learnt(
    claim: str,
    rule: str,
    reached: Mapping[str, Level],
    judge: Callable[[list[str]], Outcome],
    cost: Cost,
    needed: Collection[str] = (),
) -> Outcome:
    """The outcome over the methods that have learnt, with the curve over what learnt means.

    Args:
        reached: by method its accuracy here and in the paper; judge: from those that have learnt.
        needed: without which there is no claim; by default all of them.
    """

    @cache
    def judged(names: tuple[str, ...]) -> Outcome:
        return judge(list(names))

    def at(share: float) -> Outcome:
        there = [name for name, level in reached.items() if level.own >= share * level.paper]
        lacking = [name for name in needed or reached if name not in there]
        if lacking or len(there) < min(2, len(reached)):
            said = ", ".join(_said(name, reached[name]) for name in lacking or reached)
            numbers = judged(tuple(reached))
            why = f"too little is learnt: {said}"
            return replace(untested(claim, rule, why, cost), numbers=numbers.numbers, percent=numbers.percent)
        return judged(tuple(there))

    found = over_bound("learnt at the share … of the paper's accuracy", HALF, SHARES, at)
    return replace(found, rule=f"{rule} Judged are methods that have at least half of the paper's accuracy.")


def _said(name: str, level: Level) -> str:
    whose = f"{level.whose}'s " if level.whose else ""
    return f"{name}'s accuracy is {100 * level.own:.0f} %, in the paper {whose}{100 * level.paper:.0f} %"
