"""WIMA's Figure 1 and Table 4, FedAvg alone, at 1,000 of the paper's 10,000 rounds: claims, and the rules by which they
are judged. Written before these runs, and changed after the first seed where that is said."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from long_kept import LEARNT, OVER, Claim, Long, keyed, last, loaded, metrics
from outcomes import Outcome, over_seeds
from verdicts import Number

#: the units, and their level of skew; measured rounds of an end
LEVELS, LAST = {"wima-a0": "alpha 0", "wima-a0.05": "alpha 0.05"}, 10
RUN, SIZE = "fedavg", "CIFAR-10, FedAvg, 1,000 of 10,000 rounds"
#: windows of Table 4 that the paper tells apart: too short, best, too long
SHORT, BEST, LONG = 5, 100, 200
LEVEL = (
    "Judged are levels of which each seed's global model has learnt in the last round: its test error is at most "
    f"{100 * LEARNT:g} %."
)


def wima(long: Long) -> dict[str, list[Outcome]]:
    """By figure or table."""
    return {
        "fig1": keyed(long, smoother),
        "table2": keyed(long, gains),
        "table4": keyed(long, any_window, longer, too_long),
    }


def claim_of(
    long: Long, said: str, rule: str, places: Sequence[str], *, ours: bool = False, half: bool = False
) -> _Levels:
    """A claim about the ends of runs. Each level has its own seeds, and is judged where it has learnt in all of them;
    one level may be finished before the other.

    Args:
        half: it is about the last half of the measured rounds, not about the last `LAST`.
    """
    places = [place for place in places if long.of(place)] or places
    runs = {place: long.of(place) for place in places}
    ends = {max(_measured(folder)) for own in runs.values() for folder in own.values()}
    cost = long.cost(places[0])
    if len(places) > 1:
        hours = math.fsum(long.cost(place).hours for place in places)
        cost = type(cost)(cost.seeds, len(places) * cost.rounds, hours)
    return _Levels(said, f"{rule} {LEVEL}", runs, tuple(ends) if len(ends) == 1 else (), cost, ours, half=half)


@dataclass(frozen=True)
class _Levels(Claim):
    """All runs have the same name; what the claim keeps apart are units.

    Attributes:
        half: of the measured rounds it is about the last half.
    """

    half: bool = False

    @property
    def seeds(self) -> tuple[int, ...]:
        """That some level has."""
        return tuple(sorted(set().union(*self.runs.values())))

    @property
    def folders(self) -> Mapping[int, Path]:
        """Of the first level that is finished."""
        return next((own for own in self.runs.values() if own), {})

    def learnt(self, needed: float) -> tuple[int, ...]:
        return tuple(t for t in self.rounds if any(self._has(place, t, needed) for place in self.runs))

    def _has(self, place: str, round_: int, needed: float) -> bool:
        own = self.runs[place].values()
        return bool(own) and all(_measured(one)[round_] <= needed for one in own)

    def lacking(self, needed: float) -> str:
        if not self.rounds:
            return "its runs end in different rounds"
        (end,) = self.rounds
        above = [
            f"{100 * value:.1f} % in seed {seed} at {LEVELS[place]}"
            for place, own in self.runs.items()
            for seed, folder in own.items()
            if (value := _measured(folder)[end]) > needed
        ]
        return f"in round {end:,}, the last, the test error is above {100 * needed:g} %: {', '.join(above)}"

    def judged(self, judge: Callable[[Sequence[int], float], Outcome]) -> Outcome:
        found = super().judged(judge)
        return replace(found, learnt=self.single()) if self.rounds else found

    def single(self) -> str:
        """What the last round alone says of each level, beside what the claim's own rounds and all of them would."""
        (end,) = self.rounds
        said = []
        for place, own in self.runs.items():
            seeds = "; ".join(f"seed {seed} {self.beside(_measured(folder), end)}" for seed, folder in own.items())
            there = "Judged" if self._has(place, end, LEARNT) else "Left out"
            said += [f"{there} is {LEVELS[place]}: {seeds}"] if own else []
        return f"the test error of round {end:,} alone, at most {100 * LEARNT:g} %. {'. '.join(said)}"

    def beside(self, measured: Mapping[int, float], end: int) -> str:
        """Of a seed the last round's test error, and the mean over the rounds that the claim is about."""
        count = (len(measured) + 1) // 2 if self.half else min(LAST, len(measured))
        own = [measured[t] for t in sorted(measured)[-count:]]
        under = sum(value <= LEARNT for value in measured.values())
        return (
            f"{100 * measured[end]:.1f} %, {100 * math.fsum(own) / count:.1f} % on average over the last {count} "
            f"measured rounds, at most {100 * LEARNT:g} % in {under} of {len(measured)}"
        )

    def of_levels(self, of: Callable[[Path], float], needed: float) -> list[Number]:
        """A number of each level that has learnt, over its own seeds."""
        (end,) = self.rounds
        return [
            over_seeds(LEVELS[place], {seed: of(folder) for seed, folder in own.items()})
            for place, own in self.runs.items()
            if self._has(place, end, needed)
        ]


def _measured(folder: Path) -> dict[int, float]:
    own = metrics(folder / f"{RUN}.metrics.csv")
    return {t: row["test_error"] for t, row in own.items() if not math.isnan(row["test_error"])}


def smoother(long: Long) -> Outcome:
    """Figure 1."""
    claim = claim_of(
        long,
        f"WIMA's curves are smoother ({SIZE}; one of 11 methods, alpha 0 and 0.05).",
        "Over the last half of the measured rounds the changes of the accuracy from one to the next deviate less with "
        f"WIMA: the logarithm of the ratio, without over with, is above 0 ({OVER}).",
        tuple(LEVELS),
        half=True,
    )

    def ratio(folder: Path) -> float:
        import numpy as np

        half = (len(_measured(folder)) + 1) // 2
        plain, mean = (
            np.diff(list(last(folder, RUN, column, half).values())).std(ddof=1)
            for column in ("test_error", "averaged_test_error")
        )
        return math.log(float(plain) / float(mean)) if plain and mean else 0.0

    return claim.judged(lambda _, needed: claim.above(claim.of_levels(ratio, needed)))


def gains(long: Long) -> Outcome:
    """Table 2, two of its cells."""
    claim = claim_of(
        long,
        f"Accuracy gains from WIMA ({SIZE}; one of 11 methods, two of 7 columns).",
        f"Over the last {LAST} measured rounds the test error without WIMA minus that with it is above 0 ({OVER}).",
        tuple(LEVELS),
    )

    def gain(folder: Path) -> float:
        plain, mean = (last(folder, RUN, column, LAST) for column in ("test_error", "averaged_test_error"))
        return math.fsum(plain.values()) / len(plain) - math.fsum(mean.values()) / len(mean)

    return claim.judged(lambda _, needed: claim.above(claim.of_levels(gain, needed), percent=True))


def errors(folder: Path) -> Mapping[int, float]:
    """Table 4: by window the mean test error over the measured rounds; of window 1 the global model's."""
    found: dict[int, list[float]] = {}
    for one in loaded("WindowMeans", folder / "table4").rounds:
        for row in one.rows:
            found.setdefault(row.window, []).append(row.error)
    return {window: math.fsum(own) / len(own) for window, own in found.items()}


def any_window(long: Long) -> Outcome:
    """Table 4."""
    claim = claim_of(
        long,
        f"A mean over any of the windows is better than FedAvg's model ({SIZE}, alpha 0).",
        f"For each window the global model's test error minus the mean's is above 0 ({OVER}).",
        ("wima-a0",),
    )

    def gain(window: int, folder: Path) -> float:
        return errors(folder)[1] - errors(folder)[window]

    def judge(*_: object) -> Outcome:
        windows = [w for w in errors(next(iter(claim.folders.values()))) if w > 1]
        return claim.above([claim.over_seeds(f"W {w}", partial(gain, w)) for w in windows], percent=True)

    return claim.judged(judge)


def longer(long: Long) -> Outcome:
    """Table 4."""
    return _windows(long, f"A window of {BEST} is better than one of {SHORT}", BEST, SHORT)


def too_long(long: Long) -> Outcome:
    """Table 4."""
    return _windows(long, f"A window of {LONG} is too long: one of {BEST} is better", BEST, LONG)


def _windows(long: Long, said: str, better: int, worse: int) -> Outcome:
    claim = claim_of(
        long,
        f"{said} ({SIZE}, alpha 0).",
        f"The test error of W {worse} minus that of W {better} is above 0 ({OVER}).",
        ("wima-a0",),
    )

    def gain(folder: Path) -> float:
        own = errors(folder)
        return own[worse] - own[better]

    def judge(*_: object) -> Outcome:
        windows = errors(next(iter(claim.folders.values())))
        if not {better, worse} <= windows.keys():
            return claim.untested(f"windows of {better} and {worse} were not asked")
        return claim.above([claim.over_seeds(f"W {worse} minus W {better}", gain)], percent=True)

    return claim.judged(judge)
