"""Findings from IMA's results: three sentences each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ima_methods
import ima_methods_rules as methods
import ima_rules as rules
from long_kept import Long as Kept
from long_kept import loaded
from long_pages import groups
from long_silo import factor
from verdicts import Number, borne, points, said

SILO, DECAY = "silo", "silo-decay"


@dataclass(frozen=True)
class Long:
    """What the long runs say of a claim.

    Attributes:
        numbers: behind it, without those that are pooled over others; kind: what became of it.
    """

    numbers: tuple[Number, ...]
    kind: str

    @property
    def seeds(self) -> int:
        """Of how many seeds all numbers are."""
        return min(len(one.seeds) for one in self.numbers)

    @property
    def runs(self) -> str:
        """How many runs that is, in a sentence."""
        return "one run" if self.seeds == 1 else f"{self.seeds} runs"

    @property
    def span(self) -> str:
        """From the least of the numbers to the greatest."""
        low, high = (said(pick(one.value for one in self.numbers), percent=True) for pick in (min, max))
        return f"{low} to {high}"

    @property
    def above(self) -> str:
        """How many numbers of how many lie above 0, those of each seed counted by themselves."""
        own = [value for one in self.numbers for value in one.seeds]
        return f"{sum(value > 0 for value in own)} of {len(own)}"


def _long(results: Path, key: str) -> Long:
    own = groups(results.parent / "long", "ima")
    (found,) = (one for of in own[0].outcomes.values() for one in of if one.key == key)
    return Long(found.numbers[found.effects :], found.kind)


def _interval(number: Number) -> str:
    """Return ``-0.34``, or with several seeds ``-0.34 (-0.40 to -0.28)``."""
    return f"{number.value:.2f}" + ("" if math.isnan(number.low) else f" ({number.low:.2f} to {number.high:.2f})")


def _reading(results: Path, claim: str, run: str, name: str, round: int) -> Any:
    """A number behind a statement of ``fedscope explain``; the first round for 0, the last for -1."""
    from fedscope import Explanation

    (statement,) = (
        one for one in Explanation.load(results / "fig2").statements if (one.claim, one.run) == (claim, run)
    )
    own = [one for one in statement.readings if one.name == name]
    return own[round]


def locality(results: Path) -> tuple[str, str, str]:
    """The signed locality."""
    from fedscope.decomposition.explanation.wording import list_words, spell

    first, last, decayed = (
        _reading(results, "locality-adds", run, "locality", at) for run, at in ((SILO, 0), (SILO, -1), (DECAY, -1))
    )
    long = _long(results, "locality_adds")
    below = max(value for one in long.numbers for value in one.seeds) < 0
    borne(first.low > 0 > last.high and decayed.high < 0 and below, "locality is above 0 at first and below 0 at last")
    return (
        "Locality is the loss of the averaged weights minus that of the averaged outputs. In a cross-silo federation "
        f"it is {spell(first)} in round {first.round} and {spell(last)} in round {last.round}, or {spell(decayed)} "
        "with a decaying rate.",
        "Below 0, the averaged model is better than the ensemble of its clients.",
        "The theorem bounds this difference by O(Δ²) and leaves its sign open. The paper reads it as a loss that is "
        f"added. The sign is our addition, on one run each. At the paper's 400 rounds, {long.runs} each, it is "
        f"{list_words([_interval(one) for one in long.numbers])} on average after early training.",
    )


def bias(results: Path) -> tuple[str, str, str]:
    """Heterogeneous bias, and own data."""
    from fedscope.decomposition.explanation.wording import list_words, spell

    part, whole = (_reading(results, "greatest-part/late", SILO, name, -1) for name in ("heter_bias", "ensemble_loss"))
    own, others = (_reading(results, "own-data", SILO, f"client_{name}", -1) for name in ("train_bias", "heter_bias"))
    share, nothing = part.value / whole.value, 0.81 * 0.9
    borne(
        share > 0.9 and own.value < 0.01 * others.value and part.low > nothing,
        "heterogeneous bias is nearly all of the ensemble's loss, and above that of clients that know nothing",
    )
    late = {run: _last_bias(results, run) for run in (SILO, DECAY)}
    least = min(one / all_ for own_ in late.values() for _, one, all_ in own_)
    (last,) = {round_ for own_ in late.values() for round_, _, _ in own_}
    borne(
        least > 0.9 and all(one < nothing for own_ in late.values() for _, one, _ in own_),
        "in long runs heterogeneous bias is below that of clients that know nothing, and nearly all of the loss",
    )
    plain, decayed = (list_words([f"{one:.3f}" for _, one, _ in late[run]]) for run in (SILO, DECAY))
    return (
        f"In round {part.round}, heterogeneous bias is {spell(part)} of the ensemble's {whole.value:.3f}, or "
        f"{100 * share:.1f} %, as the paper says of the rounds after the early ones.",
        f"But ten clients with uniform outputs would have {nothing:.3f} already. We took it for evidence before; of "
        f"these runs it is none. In round {last} of the long runs, each seed by itself, it is {plain} without decay "
        f"and {decayed} with it. That is below {nothing:.3f}, and still over {math.floor(100 * least)} % of the "
        "ensemble's loss.",
        f"In round {part.round} each client fits its own samples ({spell(own)}) and fails on the others' "
        f"({spell(others)}).",
    )


def _last_bias(results: Path, run: str) -> list[tuple[int, float, float]]:
    """Of each seed of the long runs: the last round, its heterogeneous bias and the ensemble's loss."""
    found = []
    for folder in Kept(groups(results.parent / "long", "ima")[0].folders, {}).of(run).values():
        rounds = loaded("Explanation", folder / "fig2").decomposition.runs[0].rounds
        last = max(one.round for one in rounds)
        found.append((last, factor("heter_bias", last, folder), factor("ensemble_loss", last, folder)))
    return found


def three(results: Path, rounds: tuple[int, int, int] = (7, 75, 150)) -> tuple[str, str, str]:
    """The mean of three clients against each of them, and of all ten."""
    from fedscope.decomposition.explanation.result import Explanation

    numbers = rules.planes(results, rounds)[1].numbers
    devices, silos = _long(results, "three_beat_each"), _long(results, "three_across_silos")
    better = [one for one in numbers if one.where.startswith("error")]
    losses = [one.value for one in numbers if one.where.startswith("loss")]
    worse, best = [one for one in better if one.high < 0], [one for one in better if one.low > 0]
    borne(
        bool(worse and best) and min(losses) > 0,
        "the mean of three clients has a lower loss, and a lower error in one round and a higher one in another",
    )
    statements = Explanation.load(results / "fig2").statements
    ten = next(one.sentence for one in statements if (one.claim, one.run) == ("better-than-clients", SILO))
    rounds_ = next(part for part in ten.split(". ") if part.startswith("Both are lower than every client's"))

    def list_words(numbers: list[Any], sign: int) -> str:
        return " and ".join(
            f"{100 * sign * one.value:.1f} points ({one.where.removeprefix('error, ')})" for one in numbers
        )

    return (
        f"Across devices, the best of three clients has a lower test error than their mean by {list_words(worse, -1)}. "
        f"The mean is better by {list_words(best, 1)}, and its loss is lower in both.",
        "Across silos, the mean of all ten clients has lower test loss and error than each of them (intervals apart) "
        f"{rounds_.rpartition('apart, ')[2].rstrip('.')}.",
        "The paper says that the mean of three is better on each of its planes. "
        f"In {devices.runs} of its 400 rounds, {devices.above} comparisons of losses and errors across devices say so. "
        f"In {silos.runs} across silos, {silos.above} do.",
    )


def basin(results: Path, rounds: tuple[int, int, int] = (7, 75, 150)) -> tuple[str, str, str]:
    """Where the means lie."""
    found = {one.key: one for one in rules.planes(results, rounds)}
    misses = [one.value for one in found["misses_minimum"].numbers]
    globals_ = found["globals_nearer"].numbers[0].value
    depths = [one.value for one in rules.depths(results)]
    long, lines = _long(results, "misses_minimum"), _long(results, "inner")
    both = (*long.numbers, *lines.numbers)
    inner = min(min(depths), *(one.value for one in lines.numbers))
    borne(min(misses) > 0.01 and globals_ > 0 and inner > 0, "means over rounds lie lower than each round")
    shorter = _mean(misses) > _mean(one.value for one in long.numbers)
    shorter &= _mean(depths) > _mean(one.value for one in lines.numbers)
    borne(shorter and {len(one.seeds) for one in both} == {long.seeds}, "long runs of as many seeds have less of both")
    low, high = (said(value, percent=True) for value in (min(misses), max(misses)))
    return (
        f"The lowest loss of a plane through three clients is {low} to {high} below their mean's.",
        f"The best of the last three global models is {said(globals_, percent=True)} above their mean. Also, "
        f"every line between two global models has a point that is {said(min(depths), percent=True)} to "
        f"{said(max(depths), percent=True)} below both ends.",
        f"In {long.runs} of the paper's 400 rounds these are {long.span} and {lines.span}, so less. "
        + (
            "Each is of one seed, so neither counts as reproduced yet."
            if long.seeds == 1
            else f"The first claim is {long.kind} there, the second is {lines.kind}."
        ),
    )


def _mean(values: Iterable[float]) -> float:
    own = list(values)
    return math.fsum(own) / len(own)


def gain(results: Path) -> tuple[str, str, str]:
    """IMA's gain, and what exploration adds."""
    import fedscope
    from fedscope.decomposition.explanation.wording import list_words

    effect, *gains = methods.methods(results, ima_methods.METHODS)[0].numbers
    clear, under = [one.where for one in gains if one.low > 0], [one.where for one in gains if one.high < 0]
    plain = next(one for one in methods.schedules(results)[0].numbers if one.where == "none")
    borne(
        effect.low > 0 and bool(clear) and not under and abs(plain.value) < 0.002,
        "IMA gains over methods, loses with none, and exploration adds less than 0.2 points",
    )
    paper = {one.column: one.value for one in fedscope.recipe("ima/table3").published if one.row == "fma"}
    theirs = paper["average.explore=exp"] - paper["average.explore=none"]
    values = [100 * one.value for one in gains]
    return (
        f"On MNIST, IMA gains {points(effect)} over eight methods together, and {min(values):.1f} to "
        f"{max(values):.1f} points with each. By itself the interval over seeds is above 0 for {list_words(clear)} "
        "alone, and below 0 for none.",
        f"The exponentially falling rate adds {points(plain)} to the average with the usual rate; the paper has "
        f"{theirs:.2f}.",
        "So what gains here is the average, and not the exploration.",
    )
