"""Sources of the draws of a decomposition, as ``--draws`` says it, the runs that they need, the draws, and what
replays of local training cost, said before it is paid."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from ...analysis.execution import Report, describe_seconds
from ...analysis.runs import cannot_replay
from ...checkpoints import FedscopeError, Run
from ...checkpoints.io.warn_user import warn_user
from ...evaluation.device import Compute

if TYPE_CHECKING:
    from torch import nn

    from ...training import Dataset
    from .. import CohortDraws
    from .replay import Replayer

Kind = Literal["local", "rounds", "runs", "none"]
#: seconds from which on an estimate is worth a line
_WORTH = 15.0


@dataclass(frozen=True)
class Draws:
    """``local:R``, ``rounds:R``, ``runs`` or ``none``. ``count`` is R: 0 for ``runs``, where those given count, and
    1 for ``none``."""

    kind: Kind
    count: int

    def __str__(self) -> str:
        """Return the draws as they are given."""
        return self.kind if self.kind in ("runs", "none") else f"{self.kind}:{self.count}"


def parse_draws(text: str) -> Draws:
    """A source of draws.

    Raises:
        FedscopeError: another source, or R that is not a whole number from 2.

    >>> parse_draws("rounds:5"), str(parse_draws("runs"))
    (Draws(kind='rounds', count=5), 'runs')
    """
    source, colon, number = text.partition(":")
    if source not in ("local", "rounds", "runs", "none"):
        raise FedscopeError(
            f"--draws {text}: {source!r} is not a source of draws; use local:R (replays, as in local:4), rounds:R (the "
            "last rounds of one cohort), runs (runs with other seeds) or none (the recorded models alone)"
        )
    if source == "none":
        if colon:
            raise FedscopeError(f"--draws {text}: none are the recorded models alone; write --draws none")
        return Draws("none", 1)
    if source == "runs":
        if colon:
            raise FedscopeError(f"--draws {text}: every run that is given is a draw; write --draws runs")
        return Draws("runs", 0)
    if not (number.isascii() and number.isdecimal()):
        raise FedscopeError(f"--draws {text}: {number!r} is not a number of draws; write {source}:4")
    if int(number) < 2:
        raise FedscopeError(f"--draws {text}: R = {number} gives no variance and no covariance; use {source}:2 or more")
    return Draws(cast(Kind, source), int(number))


#: where nothing is said: of runs that fedscope trained
REPLAYS = "local:4"


def usual_draws(draws: str | None, runs: Sequence[Run]) -> tuple[str, str]:
    """Return the draws that are asked for, or where none are those that all the runs can have; and a note on these.

    Args:
        draws: as they are given; None where they are not.
    """
    run = None if draws is not None else cannot_replay(runs)
    if run is None:
        return REPLAYS if draws is None else draws, ""
    note = (
        f"{run.path} was recorded by {run.info['source']}, whose training cannot be replayed, so --draws none is "
        "taken: the recorded models alone, whose variance over replays is not known"
    )
    return "none", note


def groups_of(runs: Sequence[Run], draws: Draws) -> list[list[Run]]:
    """Return the runs that are decomposed together: each alone, or with ``runs`` those that differ only in their seed.

    Raises:
        FedscopeError: runs of one method that are no draws of each other, or one alone.
    """
    if draws.kind != "runs":
        return [[run] for run in runs]
    from ...training.curves.other_seeds import describe_other_seeds
    from ...training.curves.run_names import title_of
    from ...training.user_code.different_sources import method_sources
    from .. import refuse_unequal_runs

    groups: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        if run.is_foreign and run.config is None:
            raise FedscopeError(
                f"{run.path} was recorded by {run.info['source']} and keeps no config.toml, so it is not known to "
                "differ only in its seed; give --draws none, the recorded models alone"
            )
        run.require("config.toml")
    for run, sources in zip(runs, method_sources(runs), strict=True):
        config = run.config or {}
        method = [config.get(section) for section in ("client", "server", "average")]
        of_method = groups.setdefault(json.dumps(method, sort_keys=True), {})
        of_method.setdefault(json.dumps(sources, sort_keys=True), []).append(run)
    for of_method in groups.values():
        for group in of_method.values():
            others = [one for own in of_method.values() if own is not group for one in own]
            refuse_unequal_runs(group if len(group) > 1 or not others else [*group, others[0]])
    found = [group for of_method in groups.values() for group in of_method.values()]
    titles = [title_of(group[0]) for group in found]
    named = {
        title if titles.count(title) == 1 else f"{title} ({group[0].name})": group
        for title, group in zip(titles, found, strict=True)
    }
    if other := describe_other_seeds(named):
        warn_user(f"--draws runs: {other}, so a difference between these is not one of the same seeds")
    return found


@dataclass
class Cohorts:
    """The draws of rounds' cohorts, made when they are needed; neighbours in an average over rounds share most.

    Attributes:
        dataset: that replays train on.
        made: by the name of the run that stands for its group, and the round; what is not needed is dropped before
            more are made, because they are R times a round's clients.
        replayer: of the run that was replayed last.
        code, code_changed: of the user's own that runs name, see
            :class:`fedscope.analysis.settings.EvaluationSettings`.
        modules: the architectures, by run, of runs that only name theirs.
    """

    draws: Draws
    dataset: Dataset
    compute: Compute
    code: Mapping[str, Any] = field(default_factory=dict)
    code_changed: bool = False
    modules: Mapping[Path, nn.Module] = field(default_factory=dict)
    made: dict[tuple[str, int], CohortDraws] = field(default_factory=dict)
    replayer: Replayer | None = None

    def keep(self, run: Run, rounds: Collection[int]) -> None:
        """Drop what is of other runs and rounds."""
        self.made = {key: drawn for key, drawn in self.made.items() if key[0] == run.name and key[1] in rounds}

    def of(self, runs: Sequence[Run], number: int, report: Report, replays: Replays | None) -> CohortDraws:
        """Return the draws of a round of a group of runs; ``report`` is told of replays, and ``replays`` how long they
        take.

        Raises:
            FedscopeError: draws that cannot be had.
        """
        from .. import draws_of_rounds, draws_of_runs, recorded_draw
        from .replay import Replayer

        run = runs[0]
        if (run.name, number) not in self.made:
            match self.draws.kind:
                case "runs":
                    drawn = draws_of_runs(runs, number)
                case "rounds":
                    drawn = draws_of_rounds(run, number, self.draws.count)
                case "none":
                    drawn = recorded_draw(run, number)
                case _:
                    if self.replayer is None or self.replayer.run.path != run.path:
                        self.replayer = Replayer.of(
                            run,
                            self.dataset,
                            compute=self.compute,
                            code=self.code,
                            code_changed=self.code_changed,
                            module=self.modules.get(run.path),
                        )
                    assert replays is not None, "announced"
                    drawn = self.replayer.local_draws(number, self.draws.count, replays.watch(number, report))
            self.made[run.name, number] = drawn
        return self.made[run.name, number]


class Replays:
    """The replays of some rounds of a run: how many, and after the first one how long.

    Args:
        where: the run.
        cohorts: by round still to be replayed, how many clients it has.
        draws: R of ``local:R``; the recorded models are the first draw, and are not replayed.
        limited: whether ``--limit`` was given, which shortens the measurements alone.
        at_once: how many replays run side by side.
        instead: what else takes fewer, for the sentence.
        tell: where sentences go.
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
        tell: Callable[[str], None],
    ) -> None:
        self.where, self.cohorts, self.draws, self.limited = where, cohorts, draws, limited
        self.at_once, self.instead, self.tell = max(1, at_once), instead, tell
        self.done, self.told = 0, False

    @property
    def total(self) -> int:
        """The number of replays."""
        return sum(self.cohorts.values()) * (self.draws - 1)

    def announce(self) -> None:
        """Say their number, and what takes fewer; nothing where all are done."""
        if not self.total:
            return
        sizes = set(self.cohorts.values())
        rounds, draws = len(self.cohorts), self.draws - 1
        clients = f"{sizes.pop()} clients" if len(sizes) == 1 else f"{sum(self.cohorts.values())} clients in all"
        limit = ", which --limit does not shorten" if self.limited else ""
        what = (
            f"{_count_word(rounds, 'round')}, {clients}, {_count_word(draws, 'draw')} in addition to the recorded one"
        )
        self.tell(
            f"fedscope: {self.where} needs {_count_word(self.total, 'replay')} of local training ({what}){limit}; "
            f"{self._fewer()}{self.instead}"
        )

    def _fewer(self) -> str:
        if self.draws == 2:
            return ""
        fewer = max(self.draws // 2, 3 if self.draws > 3 else 2)
        count = sum(self.cohorts.values()) * (fewer - 1)
        return f"--draws local:{fewer} needs {count}{' but has no intervals' if fewer == 2 else ''}, and "

    def watch(self, number: int, report: Report) -> Report:
        """Report a round's replays as progress; after the first one of all it says how long the rest takes."""
        began, before = time.monotonic(), self.done
        self.done += self.cohorts.get(number, 0) * (self.draws - 1)

        def tell(done: int, of: int) -> None:
            report(done, of)
            if self.told:
                return
            self.told = True
            first, left = time.monotonic() - began, self.total - before - done
            seconds = first * left / self.at_once
            if seconds >= _WORTH:
                side = f" with {self.at_once} at once" if self.at_once > 1 else ""
                self.tell(
                    f"{self.where}: the first replay took {describe_seconds(first)}; the other {left}{side} take about "
                    f"{describe_seconds(seconds)}"
                )

        return tell


def replays_of(
    run: Run,
    rounds: Sequence[int],
    draws: int,
    compute: Compute,
    *,
    limited: bool,
    instead: str = "fewer --rounds need fewer",
    tell: Callable[[str], None],
) -> Replays:
    """Those of some rounds of a run."""
    from ...distributed.cores import cores

    cohorts = {number: len(run.round(number).client_ids) for number in rounds}
    # one after the other on an accelerator, a client a core elsewhere
    at_once = min([compute.workers or cores(), *cohorts.values()])
    return Replays(str(run.path), cohorts, draws, limited=limited, at_once=at_once, instead=instead, tell=tell)


def _count_word(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
