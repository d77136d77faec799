"""What replays of local training cost, said before it is paid."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..landscape.evaluation.compute import Compute
from .times import spoken

if TYPE_CHECKING:
    from ..checkpoints import Run
    from .work import Report

#: seconds from which on an estimate is worth a line
_WORTH = 15.0


def aloud(line: str) -> None:
    """Say a line on stderr."""
    print(line, file=sys.stderr, flush=True)


class Replays:
    """The replays of some rounds of a run: how many, and after the first one how long.

    Args:
        where: the run.
        cohorts: by round still to be replayed, how many clients it has.
        draws: R of ``local:R``; the recorded models are the first draw, and are not replayed.
        limited: whether ``--limit`` was given, which shortens the measurements alone.
        at_once: how many replays run side by side.
        instead: what else takes fewer, for the sentence.
        tell: where sentences go, mostly :attr:`Work.tell`.
    """

    def __init__(
        self,
        where: str,
        cohorts: Mapping[int, int],
        draws: int,
        *,
        limited: bool,
        at_once: int,
        instead: str,
        tell: Callable[[str], None] = aloud,
    ) -> None:
        self.where, self.cohorts, self.draws, self.limited = where, cohorts, draws, limited
        self.at_once, self.instead, self.tell = max(1, at_once), instead, tell
        self.done, self.told = 0, False

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self.cohorts.values()) * (self.draws - 1)

    def announce(self) -> None:
        """Say their number, and what takes fewer; nothing where all are done."""
        if not self.total:
            return
        sizes = set(self.cohorts.values())
        rounds, draws = len(self.cohorts), self.draws - 1
        clients = f"{sizes.pop()} clients" if len(sizes) == 1 else f"{sum(self.cohorts.values())} clients in all"
        limit = ", which --limit does not shorten" if self.limited else ""
        what = f"{_counted(rounds, 'round')}, {clients}, {_counted(draws, 'draw')} beside the recorded one"
        self.tell(
            f"fedscope: {self.where} needs {_counted(self.total, 'replay')} of local training ({what}){limit}; "
            f"{self._fewer()}{self.instead}"
        )

    def _fewer(self) -> str:
        if self.draws == 2:
            return ""
        fewer = max(self.draws // 2, 3 if self.draws > 3 else 2)
        count = sum(self.cohorts.values()) * (fewer - 1)
        return f"--draws local:{fewer} needs {count}{' but has no intervals' if fewer == 2 else ''}, "

    def watch(self, number: int, report: Report) -> Report:
        """Progress of a round's replays as progress of all; after the first one of all says how long the rest takes."""
        began, before = time.monotonic(), self.done
        self.done += self.cohorts.get(number, 0) * (self.draws - 1)

        def tell(done: int, of: int) -> None:
            report(before + done, self.total)
            if self.told:
                return
            self.told = True
            first, left = time.monotonic() - began, self.total - before - done
            seconds = first * left / self.at_once
            if seconds >= _WORTH:
                side = f" with {self.at_once} at once" if self.at_once > 1 else ""
                self.tell(
                    f"{self.where}: the first replay took {spoken(first)}; the other {left}{side} take about "
                    f"{spoken(seconds)}"
                )

        return tell


def replays_of(
    run: Run,
    rounds: Sequence[int],
    draws: int,
    compute: Compute,
    *,
    limited: bool,
    instead: str = "fewer --rounds fewer",
    tell: Callable[[str], None] = aloud,
) -> Replays:
    """Those of some rounds of a run."""
    from ..landscape import cores

    cohorts = {number: len(run.round(number).client_ids) for number in rounds}
    # one after the other on an accelerator, a client a core elsewhere
    at_once = min([compute.workers or cores(), *cohorts.values()])
    return Replays(str(run.path), cohorts, draws, limited=limited, at_once=at_once, instead=instead, tell=tell)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
