"""Which runs of a sweep have the same first rounds, so that these are trained once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ..config.config import Config
from ..methods.base import AverageMethod


@dataclass(frozen=True)
class Shared:
    """A run goes on from a round of another one.

    Attributes:
        trunk: the position of the other run; round: the last one that both have.
    """

    trunk: int
    round: int


def shared_histories(configs: Sequence[Config]) -> list[Shared | None]:
    """For each run the one that it can branch from, bit for bit as if trained alone; None: trained from its start.

    Runs share rounds where their averages alone differ: before an average begins nothing depends on it (IMA before
    t_s is FMA). Of such runs the one whose average begins last, and of these the one that reaches back farthest, is
    trained from its start, because all others can branch from it before theirs begins. One that leaves out a setting
    which that one has is trained from its start, too: a branch has all settings that it does not change.

    >>> both = [Config.read({"average": {"method": name}, "run": {"rounds": 20}}) for name in ("none", "ima")]
    >>> shared_histories(both)
    [Shared(trunk=1, round=14), None]
    """
    groups: dict[str, list[int]] = {}
    for i, config in enumerate(configs):
        tables = config.tables()
        del tables["average"]
        groups.setdefault(json.dumps(tables, sort_keys=True), []).append(i)
    found: list[Shared | None] = [None] * len(configs)
    for members in groups.values():
        starts = {i: configs[i].average.begins() for i in members}
        averages = {i: start for i, start in starts.items() if start is not None}
        if not averages:
            continue  # runs without an average are the same run, however often they are asked for
        trunk = max(averages, key=lambda i: (averages[i], configs[i].average.reaches_back()))
        for i in members:
            start = starts[i]
            round = (averages[trunk] if start is None else start) - 1
            if i != trunk and round >= 1 and _can_branch(configs[i].average, configs[trunk].average):
                found[i] = Shared(trunk, round)
    return found


def _can_branch(own: AverageMethod, trunk: AverageMethod) -> bool:
    """Whether the history of a run with one average holds what another needs, and its settings can be replaced."""
    left_out = set(trunk.table()) - set(own.table()) if type(own) is type(trunk) else set()
    return own.reaches_back() <= trunk.reaches_back() and not left_out
