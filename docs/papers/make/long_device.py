"""IMA's Figures 1, 5b, 5c, 7c and 10, across devices, at 400 rounds: claims, and the rules by which they are judged.
Written before these runs, and changed after the first seed where that is said."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from long_kept import OVER, POOLED, SAID, Bound, Claim, Long, keyed, last, loaded, metrics, rounds_of
from outcomes import Cost, Outcome, untested

#: bounds of ours, from half of each to its double
NEAR = Bound("within … of 0.8", 0.05, (0.025, 0.05, 0.1), (0.03, 0.05, 0.1))
MISSED = Bound("by more than the share …", 0.01, (0.005, 0.01, 0.02), (0.01, 0.05, 0.1, 0.25))
RIDGE = Bound("a rise by the share …", 0.05, (0.025, 0.05, 0.1), (0.01, 0.05, 0.1, 0.25))
#: measured rounds over which accuracies are meant; what a whole federation must have learnt
LAST, ENDS = 10, "The global model must have learnt in the last round."


def device(long: Long) -> dict[str, list[Outcome]]:
    """By figure, of the federation of 100 clients."""
    return {
        "fig1": keyed(long, alone, three_beat_each, misses_minimum, globals_nearer),
        "fig5b": keyed(long, inner),
        "fig5c": keyed(long, flat_centre, ends_above, later_start),
        "fig7c": [*keyed(long, near_lowest), *unrun_lines(long)],
        "fig10": keyed(long, common_basin),
    }


def planes(long: Long, said: str, rule: str, bound: Bound | None = None, name: str = "fig1") -> Claim:
    """A claim about the planes of some rounds: Figure 1's across devices, ``fig8`` across silos."""
    place = "device" if name == "fig1" else "silo"
    folders = long.of(place)
    rounds = rounds_of(folders, f"{name}.round-*.nc")
    return Claim(said, f"{rule} {SAID}", {place: folders}, rounds, long.cost(place), bound=bound)


def at_the_end(long: Long, said: str, rule: str, ending: str = "", *, ours: bool = False) -> Claim:
    """A claim about the whole federation of devices, or of its branches."""
    folders = long.of("device", ending)
    ends = {max(metrics(folder / "device.metrics.csv")) for folder in folders.values()}
    rounds = tuple(ends) if len(ends) == 1 else ()
    return Claim(said, f"{rule} {ENDS}", {"device": folders}, rounds, long.cost("device", ending), ours)


def alone(long: Long) -> Outcome:
    """Figure 1: what the clients know by themselves."""
    claim = planes(
        long,
        "Clients alone have a test error near 80 % (CIFAR-10, CNN, two shards).",
        "The mean over the cohort's clients, pooled over the rounds, lies within 5 points of 80 %, and "
        f"{POOLED} ({OVER}).",
        NEAR,
    )

    def own(round_: int, folder: Path) -> float:
        (of,) = [one for one in loaded("Subsets", folder / "fig1-subsets").rounds if one.round == round_]
        return float(next(row.error_mean for row in of.sizes if row.m == 1))

    def judge(rounds: Sequence[int], reach: float) -> Outcome:
        found = {"": {f"round {t}": partial(own, t) for t in rounds}}
        return claim.in_general(found, 0.8 - reach, 0.8 + reach, percent=True)

    return claim.judged(judge)


def three_beat_each(long: Long) -> Outcome:
    """Figure 1, and Figure 8 across devices: one claim."""
    return beat_each(long, "fig1", "Across devices the mean of three clients")


def beat_each(long: Long, name: str, words: str) -> Outcome:
    """Of three clients and their mean on planes: error and loss."""
    claim = planes(
        long,
        f"{words} has a lower test loss and a lower test error than each of them.",
        "The best client's error minus the mean's, and the logarithm of the best client's loss over the mean's, each "
        f"pooled over the rounds, are above 0, and {POOLED} ({OVER}).",
        name=name,
    )

    def ahead(of: str, round_: int, folder: Path) -> float:
        three, mean = models(loaded("Plane", folder / f"{name}.round-{round_}"))
        if of == "error":
            return float(min(one.error for one in three) - mean.error)
        return math.log(min(one.loss for one in three) / mean.loss)

    def judge(rounds: Sequence[int], _: float) -> Outcome:
        cases = {of: {f"round {t}": partial(ahead, of, t) for t in rounds} for of in ("error", "loss")}
        return claim.in_general(cases)

    return claim.judged(judge)


def misses_minimum(long: Long) -> Outcome:
    """Figure 1: there is something below the mean."""
    claim = planes(
        long,
        "The mean of three clients misses the minimum of their plane (across devices).",
        f"The share by which the plane's lowest loss lies below the mean's, pooled over the rounds, is more than "
        f"{100 * MISSED.nominal:g} %, and {POOLED} ({OVER}).",
        MISSED,
    )

    def missed(round_: int, folder: Path) -> float:
        plane = loaded("Plane", folder / f"fig1.round-{round_}")
        mean = models(plane)[1]
        return float((mean.loss - plane.loss.min()) / mean.loss)

    def judge(rounds: Sequence[int], bound: float) -> Outcome:
        return claim.in_general({"": {f"round {t}": partial(missed, t) for t in rounds}}, bound, percent=True)

    return claim.judged(judge)


def globals_nearer(long: Long) -> Outcome:
    """Figure 1, last column."""
    claim = at_the_end(
        long,
        "The mean of the last three global models is nearer to the minimum of their plane than each of them.",
        "The nearest global model's distance to the plane's lowest point minus its own, as a share of their mean "
        f"distance, is above 0 ({OVER}).",
    )

    def nearer(folder: Path) -> float:
        with (folder / "fig1.globals.basin.csv").open(encoding="utf-8", newline="") as file:
            far = {row["model"]: float(row["distance"]) for row in csv.DictReader(file)}
        mean, _ = far.pop("mean"), far.pop("minimum")
        return (min(far.values()) - mean) * len(far) / math.fsum(far.values())

    return claim.judged(lambda *_: claim.above([claim.over_seeds("last round", nearer)], percent=True))


def common_basin(long: Long) -> Outcome:
    """Figure 10, its first row."""
    claim = planes(
        long,
        "Clients and their mean are in a common basin (one of the figure's four rows: CIFAR-10, CNN, two shards).",
        "On the straight line from each of three clients to their mean the interpolated loss never rises more than "
        f"{100 * RIDGE.nominal:g} % above the client's: of the largest rises of each round the mean over rounds, and "
        f"{POOLED} ({OVER}).",
        RIDGE,
    )

    def rise(round_: int, folder: Path) -> float:
        return ridge(loaded("Plane", folder / f"fig1.round-{round_}"))

    def judge(rounds: Sequence[int], bound: float) -> Outcome:
        found = {"": {f"round {t}": partial(rise, t) for t in rounds}}
        return claim.in_general(found, -math.inf, bound, percent=True)

    return claim.judged(judge)


def inner(long: Long) -> Outcome:
    """Figure 5b."""
    claim = at_the_end(
        long,
        "Between global models of different rounds there is a point with a lower test loss than both.",
        "The lowest loss between a line's ends lies below both: the share by which it does, of the lower end's, pooled "
        f"over the pairs of rounds, is above 0, and no single pair, corrected for their number (Holm), lies below "
        f"({OVER}). The pairs are our choice.",
    )

    def depth(pair: int, folder: Path) -> float:
        line = loaded("Line", folder / "fig5b")
        lower = min(_at(line, pair, 0.0), _at(line, pair, 1.0))
        return (lower - float(line.loss[pair][(line.beta > 0) & (line.beta < 1)].min())) / lower

    def judge(*_: Any) -> Outcome:
        ends = loaded("Line", next(iter(claim.folders.values())) / "fig5b").ends
        pairs = [" to ".join(one.partition("@")[2].partition("/")[0] for one in pair) for pair in ends]
        found = {"": {f"rounds {words}": partial(depth, i) for i, words in enumerate(pairs)}}
        return claim.in_general(found, percent=True)

    return claim.judged(judge)


def flat_centre(long: Long) -> Outcome:
    """Figure 5c, IMA from three quarters of the rounds."""

    def flatter(base: Path) -> float:
        line = loaded("Line", base)
        ima, fma = (abs(_at(line, 0, end + 0.1) - _at(line, 0, end - 0.1)) for end in (1.0, 0.0))
        return (fma - ima) / fma if fma else 0.0

    return _of_line(
        long,
        "IMA's model lies where its line to FMA's is flat, and FMA's where it is steep (FedAvg).",
        "The change of the loss over a fifth of the line, its middle FMA's model, minus that around IMA's, as a share "
        f"of the former, is above 0 ({OVER}).",
        flatter,
    )


def near_lowest(long: Long) -> Outcome:
    """Figure 7c, of its eight methods the one that was run."""

    def place(base: Path) -> float:
        line = loaded("Line", base)
        return 0.5 - abs(float(line.beta[int(line.loss[0].argmin())]) - 1)

    return _of_line(
        long,
        "IMA's model is near the lowest point of its line to FMA's, which is on the wall (FedAvg, of eight methods).",
        "The lowest point is less than half of the way to FMA's model away from IMA's, on either side: a half minus "
        f"its distance, as a share of the line, is above 0 ({OVER}).",
        place,
    )


def _of_line(long: Long, said: str, rule: str, of: Callable[[Path], float]) -> Outcome:
    claim = at_the_end(long, said, rule, "-ima")

    def judge(*_: Any) -> Outcome:
        name = f"fig5c-{starts_of(claim.folders)[-1]}"
        return claim.above([claim.over_seeds("last round", lambda folder: of(folder / name))], percent=True)

    return claim.judged(judge)


def starts_of(folders: Mapping[int, Path]) -> list[int]:
    """Rounds from which branches have IMA, ascending."""
    found = [{int(path.stem.partition("-")[2]) for path in folder.glob("fig5c-*.nc")} for folder in folders.values()]
    return sorted(set.intersection(*found)) if found else []


def ends_above(long: Long) -> Outcome:
    """Ours: the paper's Table 1 has a decay of the rate, which this federation has not."""
    claim = at_the_end(
        long,
        "IMA ends more accurate than FMA on the federation of Figure 1, from each of its starts.",
        f"Over the last {LAST} measured rounds FMA's test error minus IMA's is above 0 ({OVER}).",
        "-ima",
        ours=True,
    )

    def gain(start: int, folder: Path) -> float:
        return _end(folder, "device", "test_error") - _end(folder, f"ima-{start}", "averaged_test_error")

    def judge(*_: Any) -> Outcome:
        starts = starts_of(claim.folders)
        return claim.above([claim.over_seeds(f"IMA from {one}", partial(gain, one)) for one in starts], percent=True)

    return claim.judged(judge)


def later_start(long: Long) -> Outcome:
    """Ours: the paper shows it of FedFA (Figure 7a), which is not run here."""
    claim = at_the_end(
        long,
        "With FedAvg, IMA from three quarters of the rounds ends more accurate than IMA from a half.",
        f"Over the last {LAST} measured rounds the earlier start's test error minus the later's is above 0 ({OVER}). "
        "The paper shows it of FedFA.",
        "-ima",
        ours=True,
    )

    def judge(*_: Any) -> Outcome:
        starts = starts_of(claim.folders)

        def gain(folder: Path) -> float:
            early, late = (_end(folder, f"ima-{starts[i]}", "averaged_test_error") for i in (0, -1))
            return early - late

        return claim.above([claim.over_seeds("earlier minus later", gain)], percent=True)

    return claim.judged(judge)


def unrun_lines(long: Long) -> list[Outcome]:
    """Figure 7c's claims of a method that was not run at this length."""
    cost = Cost(3, 400, 2 * long.cost("device").hours)
    why = "FedASAM was not run at this length"
    return [
        replace(untested(f"FedASAM's line from FMA's model to IMA's is the {word} of eight.", "", why, cost), key=word)
        for word in ("flattest", "worst")
    ]


def _end(folder: Path, run: str, column: str) -> float:
    own = last(folder, run, column, LAST)
    return math.fsum(own.values()) / len(own)


def _at(line: Any, pair: int, beta: float) -> float:
    """The loss at a point of a line."""
    import numpy as np

    return float(np.interp(beta, line.beta, line.loss[pair]))


def ridge(plane: Any, steps: int = 21) -> float:
    """The greatest rise of the loss above a client's on the ways from the clients to their mean, as a share of it."""
    import numpy as np
    from scipy.interpolate import RegularGridInterpolator

    three, mean = models(plane)
    surface = RegularGridInterpolator((plane.b, plane.a), plane.loss)  # loss is [b, a]
    rises = [0.0]
    for one in three:
        way = np.linspace((one.b, one.a), (mean.b, mean.a), steps)
        rises.append(float(surface(way).max()) / one.loss - 1)
    return max(rises)


def models(plane: Any) -> tuple[list[Any], Any]:
    """The three models of a plane, and their mean."""
    return [one for one in plane.models if one.role == "anchor"], next(
        one for one in plane.models if one.role == "mean"
    )
