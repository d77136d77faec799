"""Where the draws of a decomposition come from, as `--draws` says it, and the runs that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

if TYPE_CHECKING:
    from ..checkpoints import Run

Kind = Literal["local", "rounds", "runs"]


@dataclass(frozen=True)
class Draws:
    """``local:R``, ``rounds:R`` or ``runs``; ``count`` is R, and 0 for ``runs``, where the runs given are counted."""

    kind: Kind
    count: int

    def __str__(self) -> str:
        """As it is given."""
        return self.kind if self.kind == "runs" else f"{self.kind}:{self.count}"


def parse_draws(text: str) -> Draws:
    """A source of draws.

    Raises:
        FedscopeError: another source, or R that is not a whole number from 2.

    >>> parse_draws("rounds:5"), str(parse_draws("runs"))
    (Draws(kind='rounds', count=5), 'runs')
    """
    from ..checkpoints import FedscopeError

    source, colon, number = text.partition(":")
    if source not in ("local", "rounds", "runs"):
        raise FedscopeError(
            f"--draws {text}: {source!r} is not a source of draws; use local:R (replays, as in local:4), rounds:R (the "
            "last rounds of one cohort) or runs (runs with other seeds)"
        )
    if source == "runs":
        if colon:
            raise FedscopeError(f"--draws {text}: every run that is given is a draw; write --draws runs")
        return Draws("runs", 0)
    if not (number.isascii() and number.isdecimal()):
        raise FedscopeError(f"--draws {text}: {number!r} is not a number of draws; write {source}:4")
    if int(number) < 2:
        raise FedscopeError(f"--draws {text}: R = {number} gives no variance and no covariance; use {source}:2 or more")
    return Draws(cast(Kind, source), int(number))


def groups_of(runs: Sequence[Run], draws: Draws) -> list[list[Run]]:
    """The runs that are decomposed together: each alone, or with ``runs`` those that differ in their seed alone.

    Raises:
        FedscopeError: runs of one method that are no draws of each other, or one alone.
    """
    if draws.kind != "runs":
        return [[run] for run in runs]
    import json

    from ..checkpoints import FedscopeError
    from ..decomposition import refuse_unequal_runs

    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.is_foreign and run.config is None:
            raise FedscopeError(
                f"{run.path} was recorded by {run.info['source']} and keeps no settings, so it is not known to differ "
                "in its seed alone; give --draws rounds:4, the last rounds of one cohort"
            )
        run.require("config.toml")
        config = run.config or {}
        method = [config.get(section) for section in ("client", "server", "average")]
        groups.setdefault(json.dumps(method, sort_keys=True), []).append(run)
    for group in groups.values():
        refuse_unequal_runs(group)
    return list(groups.values())
