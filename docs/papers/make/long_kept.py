"""The numbers of finished units of long runs, by seed; those of one commit, data file and machine."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from costs import spent
from outcomes import Cost, Outcome, above, in_each, inside, over_bound, over_seeds, pooled, untested
from verdicts import Number

#: a model has learnt where its test error is at most this, of 0.9 by chance; and other bounds, to show whether it
#: turns an outcome. Rounds before are shown and not judged
LEARNT, BOUNDS = 0.7, (0.75, 0.7, 0.6, 0.5)
SAID = (
    f"Judged are the rounds in which the global model has learnt: its test error is at most {100 * LEARNT:g} % in "
    "every seed."
)
OVER = "95 % intervals by Student over seeds"
#: what was changed of claims of several rounds, and how they are judged now
CHANGED = "each of the numbers had to lie apart by itself, and none was corrected for how many there are"
POOLED = "no single round, corrected for their number (Holm), lies apart on the other side"


@dataclass(frozen=True)
class Long:
    """Finished units of one identity.

    Attributes:
        folders: of their numbers, by the unit's name; costs: of one seed, by the unit's name without its seed.
    """

    folders: Mapping[str, Path]
    costs: Mapping[str, Cost]

    def of(self, place: str, ending: str = "") -> dict[int, Path]:
        """By seed the folder of a kind of unit, as ``device`` or ``device`` with the ending ``-ima``."""
        pattern = re.compile(rf"{re.escape(place)}-(\d+){re.escape(ending)}")
        found = ((pattern.fullmatch(name), folder) for name, folder in self.folders.items())
        return dict(sorted((int(match[1]), folder) for match, folder in found if match))

    def cost(self, place: str, ending: str = "") -> Cost:
        """What one more seed costs: measured where one is finished on two cores, else as the plan estimates it."""
        return spent(self.costs[place + ending], self.of(place, ending).values())


def keyed(long: Long, *rules: Callable[[Long], Outcome]) -> list[Outcome]:
    """The outcomes of rules, by whose names they are known."""
    return [replace(rule(long), key=rule.__name__) for rule in rules]


@lru_cache(maxsize=64)
def metrics(path: Path) -> dict[int, dict[str, float]]:
    """A run's ``metrics.csv`` by round; NaN where a cell is empty."""
    with path.open(encoding="utf-8", newline="") as file:
        return {
            int(row["round"]): {key: _number(text) for key, text in row.items() if key != "round"}
            for row in csv.DictReader(file)
        }


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return math.nan


def error(folder: Path, run: str, round_: int, *, around: int = 0) -> float:
    """The global model's test error, the mean over the measured rounds within ``around`` of this one."""
    own = metrics(folder / f"{run}.metrics.csv")
    found = [own[t]["test_error"] for t in own if abs(t - round_) <= around and not math.isnan(own[t]["test_error"])]
    return math.fsum(found) / len(found) if found else math.nan


def last(folder: Path, run: str, column: str, count: int) -> dict[int, float]:
    """A column by round, of the last measured rounds."""
    own = metrics(folder / f"{run}.metrics.csv")
    there = [t for t in sorted(own) if not math.isnan(own[t][column])][-count:]
    return {t: own[t][column] for t in there}


def rounds_of(folders: Mapping[int, Path], pattern: str) -> tuple[int, ...]:
    """The rounds that stand in file names of every seed, as of ``fig1.round-*.nc``."""
    found = [
        {int(match[1]) for path in folder.glob(pattern) if (match := re.search(r"round-(\d+)\.", path.name))}
        for folder in folders.values()
    ]
    return tuple(sorted(set.intersection(*found))) if found else ()


@dataclass(frozen=True)
class Bound:
    """A bound of ours that a claim is judged by.

    Attributes:
        words: what it is, with ``…`` for its value; nominal: the chosen one; others: to show whether it matters.
        before: the others that were shown until the first seed was seen.
    """

    words: str
    nominal: float
    others: tuple[float, ...]
    before: tuple[float, ...] = ()


@dataclass(frozen=True)
class Claim:
    """What is judged, and on what.

    Attributes:
        said, rule: as of an `Outcome`.
        runs: folders by seed, of each run that it is about; the test errors of all say what has learnt.
        rounds: that may be judged; cost: of one more seed; ours: the claim is not the paper's; bound: of ours, if it
            has one; then this is varied, else what learnt means; early: it is about models before they have learnt.
    """

    said: str
    rule: str
    runs: Mapping[str, Mapping[int, Path]]
    rounds: tuple[int, ...]
    cost: Cost
    ours: bool = False
    bound: Bound | None = None
    early: bool = False

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of which all runs are finished."""
        return tuple(sorted(set.intersection(*(set(own) for own in self.runs.values()))))

    @property
    def folders(self) -> Mapping[int, Path]:
        """Of the first run, by seed."""
        own = next(iter(self.runs.values()))
        return {seed: own[seed] for seed in self.seeds}

    def judged(self, judge: Callable[[Sequence[int], float], Outcome]) -> Outcome:
        """The outcome over the rounds in which the models have learnt, with the curve over the bound.

        Args:
            judge: from those rounds, of which there is at least one, and the bound's value.
        """
        if not self.seeds:
            return self.untested("no seed of it is finished")

        def at(needed: float, value: float) -> Outcome:
            there = self.rounds if self.early else self.learnt(needed)
            if there:
                return judge(there, value)
            return self.untested(self.lacking(needed))

        if (own := self.bound) is not None:
            found = over_bound(own.words, own.nominal, own.others, lambda value: at(LEARNT, value))
            others = f"the bound was also tried as {', '.join(f'{one:g}' for one in own.before)}" if own.before else ""
            return replace(found, changed="; ".join(filter(None, (found.changed, others))) if found.numbers else "")
        if self.early:
            return at(LEARNT, LEARNT)
        return over_bound("learnt at a test error of …", LEARNT, BOUNDS, lambda needed: at(needed, needed))

    def learnt(self, needed: float) -> tuple[int, ...]:
        """The rounds in which every seed's global models have a test error of at most this."""
        return tuple(
            t
            for t in self.rounds
            if all(error(own[seed], run, t) <= needed for run, own in self.runs.items() for seed in self.seeds)
        )

    def lacking(self, needed: float) -> str:
        """Why nothing is judged: which seed has learnt too little in the round that is nearest."""
        said = f"in no round is the test error at most {100 * needed:g} % in every seed"
        worst = {
            t: max((error(own[seed], run, t), seed) for run, own in self.runs.items() for seed in self.seeds)
            for t in self.rounds
        }
        if not worst:
            return said
        nearest = min(worst, key=lambda t: worst[t])
        value, seed = worst[nearest]
        return f"{said}; nearest is round {nearest:,}, in which seed {seed} has {100 * value:.1f} %"

    def untested(self, why: str) -> Outcome:
        """Nothing bears on it."""
        return untested(self.said, self.rule, why, self.cost, ours=self.ours, longer=bool(self.seeds))

    def over_seeds(self, where: str, of: Callable[[Path], float], run: str = "") -> Number:
        """A number over seeds, of the first run or of another."""
        own = self.runs[run] if run else self.folders
        return over_seeds(where, {seed: of(own[seed]) for seed in self.seeds})

    def by_seed(self, of: Callable[[Path], float], a: str, b: str) -> dict[int, float]:
        """One run's number minus another's."""
        return {seed: of(self.runs[a][seed]) - of(self.runs[b][seed]) for seed in self.seeds}

    def above(self, numbers: Sequence[Number], bound: float = 0.0, *, percent: bool = False) -> Outcome:
        """It says that all numbers lie above a bound."""
        return above(self.said, self.rule, numbers, self.cost, bound=bound, percent=percent, ours=self.ours)

    def inside(self, numbers: Sequence[Number], low: float, high: float, *, percent: bool = False) -> Outcome:
        """It says that all numbers lie between two bounds."""
        return inside(self.said, self.rule, numbers, low, high, self.cost, percent=percent, ours=self.ours)

    def in_general(
        self,
        effects: Mapping[str, Mapping[str, Callable[[Path], float]]],
        low: float = 0.0,
        high: float = math.inf,
        *,
        percent: bool = False,
        runs: Mapping[str, str] | None = None,
    ) -> Outcome:
        """It says that each effect, pooled over its parts, lies between two bounds.

        Args:
            effects: by effect and by part, as a round, the number of one seed; of a single effect named "" the parts
                have no other name. runs: by effect the run that it is of, by default the first.
        """
        found, parts = [], []
        for name, own in effects.items():
            folders = self.runs[runs[name]] if runs else self.folders
            cases = {part: {seed: of(folders[seed]) for seed in self.seeds} for part, of in own.items()}
            found.append(pooled(", ".join(filter(None, (name, "on average"))), cases))
            parts += [over_seeds(", ".join(filter(None, (name, part))), values) for part, values in cases.items()]
        if all(len(own) == 1 for own in effects.values()):  # a part is the effect, and is shown once
            return self.inside(parts, low, high, percent=percent)
        outcome = in_each(
            self.said, self.rule, found, parts, self.cost, low=low, high=high, percent=percent, ours=self.ours
        )
        return replace(outcome, changed=CHANGED)


def loaded(kind: str, base: Path) -> Any:
    """A result of ``fedscope``, by its class's name."""
    return _loaded(kind, base)


@lru_cache(maxsize=256)
def _loaded(kind: str, base: Path) -> Any:
    import fedscope

    return getattr(fedscope, kind).load(base)
