"""The claims of IMA's Figures 2 to 4, judged on one seed of the two federations across silos, without and with a decay
of the rate. Intervals are over draws and samples, and none is over seeds. Rules are new since the results were seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from costs import planned
from outcomes import (
    CONTRADICTED,
    MIXED,
    REPRODUCED,
    UNDECIDED,
    Outcome,
    above,
    in_general,
    inside,
    over_bound,
    over_seeds,
    untested,
)
from verdicts import Number, share_difference

PLAIN, DECAY = "silo", "silo-decay"
BOTH = {PLAIN: "without decay", DECAY: "with decay"}
#: the paper's early phase ends near this round; what a model that has learnt has at most; rounds that a late error is
#: the mean of, to both sides
EARLY, LEARNT, AROUND = 40, 0.7, 5
SAMPLES = 10_000
LATE = f"Judged are the rounds from {EARLY} on in which both have learnt: a test error of at most {100 * LEARNT:g} %."
TOO_FEW = "in too few rounds has it learnt"
DRAWS = "95 % intervals over draws and samples, of one seed"
CHANGED = (
    "`fedscope explain` judged each run by itself, early training ended with a tenth of the rounds that were run, and "
    "models that had not learnt counted"
)
NEW = "it was measured and not judged"


class Silos:
    """The kept numbers of both runs."""

    def __init__(self, results: Path) -> None:
        from fedscope import Explanation

        self.results = results
        self.runs = {run.run: run for run in Explanation.load(results / "fig2").decomposition.runs}
        self.errors = {name: dict(zip(*self._curve(run), strict=True)) for name, run in self.runs.items()}
        self.rounds = [one.round for one in self.runs[PLAIN].rounds]
        self.early = [t for t in self.rounds if t <= EARLY]
        self.late = [t for t in self.rounds if t >= EARLY and all(own[t] <= LEARNT for own in self.errors.values())]

    @staticmethod
    def _curve(run: Any) -> tuple[Sequence[int], Sequence[float]]:
        curve = next(one for one in run.curves if one.label == "global")
        return curve.rounds, curve.error

    def factor(self, name: str, run: str, round_: int) -> Number:
        """A factor, with its interval over draws and samples."""
        from scipy.stats import t

        of = next(one for one in self.runs[run].rounds if one.round == round_)
        rows = {row.estimate: row for row in of.rows if row.factor == name}
        row = next(rows[one] for one in ("unbiased", "measured", "plugin") if one in rows)
        reach = math.hypot(t.ppf(0.975, of.count - 1) * (row.stderr_draws or 0.0), 1.96 * (row.stderr_samples or 0.0))
        value = float(row.value or 0.0)
        return Number(f"{BOTH[run]}, round {round_}", value, value - reach, value + reach)

    def error(self, run: str, round_: int) -> float:
        """A late test error: the mean over the rounds near it."""
        own = self.errors[run]
        near = [own[t] for t in own if abs(t - round_) <= AROUND]
        return math.fsum(near) / len(near)


def minus(where: str, a: Number, b: Number) -> Number:
    """a − b, whose intervals are taken as independent."""
    reach = math.hypot(a.high - a.value, b.high - b.value)
    return Number(where, a.value - b.value, a.value - b.value - reach, a.value - b.value + reach)


def signed(number: Number, sign: int, where: str) -> Number:
    """The number, or its negative."""
    if sign > 0:
        return replace(number, where=where)
    return Number(where, -number.value, -number.high, -number.low)


def biases(results: Path) -> list[Outcome]:
    """Figure 2."""
    silos = Silos(results)
    return [
        replace(training_bias(silos), changed="each client's error on its own data was judged, and not the factor"),
        replace(early(silos, "heter_bias"), changed=CHANGED),
        replace(together(silos), changed=CHANGED),
        replace(dominate(silos), changed=f"either of both was enough; {CHANGED}"),
    ]


def distances(results: Path) -> list[Outcome]:
    """Figure 3."""
    silos = Silos(results)
    return [
        replace(farther(silos), changed=NEW),
        replace(worse(silos), changed=NEW),
        replace(early(silos, "delta_max"), changed=NEW),
        replace(stays(silos), changed=NEW),
        replace(falls_together(silos), changed=CHANGED),
        replace(locality(silos), changed=CHANGED),
    ]


def training_bias(silos: Silos) -> Outcome:
    """The factor itself, as the paper has it."""
    numbers = []
    for run in BOTH:
        for t in silos.rounds:
            part, whole = silos.factor("train_bias", run, t), silos.factor("fma_loss", run, t).value
            numbers.append(Number(part.where, part.value / whole, part.low / whole, part.high / whole))

    def judge(bound: float) -> Outcome:
        return inside(
            "Training bias, the factor, stays almost zero throughout training.",
            f"In each decomposed round of both runs it is below 1 % of the averaged model's loss ({DRAWS}). Ten "
            "clients with disjoint data that know nothing have 1 % already, so only less is evidence.",
            numbers,
            -math.inf,
            bound,
            planned("silo", "silo-decay"),
            percent=True,
        )

    return replace(
        over_bound("below the share … of the loss", 0.01, (0.001, 0.01, 0.05), judge), key="no_training_bias"
    )


def early(silos: Silos, name: str) -> Outcome:
    """The paper's early phase: the error falls although another number rises."""
    what, words, key = {
        "heter_bias": ("heterogeneous bias", "although heterogeneous bias rises", "early_bias"),
        "delta_max": ("Δ", "while the distance of the clients, Δ, rises", "early_distance"),
    }[name]
    first, last = silos.early[0], silos.early[-1]
    numbers = []
    for run, said in BOTH.items():
        own = silos.errors[run]
        numbers.append(share_difference(f"fall of the error {said}", own[first], own[last], SAMPLES))
    for run, said in BOTH.items():
        numbers.append(minus(f"rise of {what} {said}", silos.factor(name, run, last), silos.factor(name, run, first)))
    return replace(
        above(
            f"Until about round {EARLY} the test error falls {words}.",
            f"From round {first} to {last} the error falls and {what} rises, in both runs: each change, so signed, is "
            f"above 0 ({DRAWS}).",
            numbers,
            planned("silo", "silo-decay"),
        ),
        key=key,
    )


def pairs(silos: Silos, name: str, run: str) -> tuple[int, int, int]:
    """Of the late rounds' pairs: how many have both numbers apart and ordered alike, how many otherwise, the rest."""
    yes = no = rest = 0
    for s, t in combinations(silos.late, 2):
        change = minus("", silos.factor(name, run, t), silos.factor(name, run, s))
        error = share_difference("", silos.errors[run][t], silos.errors[run][s], SAMPLES)
        signs = [(one.low > 0) - (one.high < 0) for one in (change, error)]
        product = signs[0] * signs[1]
        yes, no, rest = yes + (product > 0), no + (product < 0), rest + (product == 0)
    return yes, no, rest


def ordered(silos: Silos, name: str, claim: str, key: str) -> Outcome:
    """Whether a number and the error are ordered alike, by pairs of late rounds."""
    rule = (
        "Of the pairs of later rounds in which both are apart, most are ordered alike in both runs, and hardly one "
        f"otherwise; undecided where in most pairs one of both is not apart ({DRAWS}). The numbers are Kendall's τ. "
        f"{LATE}"
    )
    if len(silos.late) < 3:
        return replace(untested(claim, rule, TOO_FEW, planned("silo", "silo-decay")), key=key)
    from scipy.stats import kendalltau

    numbers, kinds, said = [], [], []
    for run, words in BOTH.items():
        yes, no, rest = pairs(silos, name, run)
        values = [silos.factor(name, run, t).value for t in silos.late]
        found = kendalltau(values, [silos.errors[run][t] for t in silos.late]).statistic
        numbers.append(Number(f"τ {words}", float(found)))
        said.append(f"{words} {yes} pairs as claimed, {no} the other way and {rest} not apart")
        kinds.append(of_pairs(yes, no, rest))
    kind = kinds[0] if len(set(kinds)) == 1 else MIXED if set(kinds) != {UNDECIDED} else UNDECIDED
    if UNDECIDED in kinds and MIXED not in kinds:
        kind = UNDECIDED
    why = "; ".join(said)
    if kind == UNDECIDED:
        cost = planned("silo", "silo-decay")
        why += f"; {cost.seeds} seeds are planned, of {cost.said}"
    return Outcome(claim, rule, kind, why, tuple(numbers), key=key)


def of_pairs(yes: int, no: int, rest: int) -> str:
    """Of one run.

    >>> [of_pairs(*one) for one in ((5, 0, 1), (0, 5, 1), (5, 5, 5), (12, 2, 1), (1, 0, 14), (0, 0, 0))]
    ['reproduced', 'contradicted', 'mixed', 'mixed', 'undecided', 'undecided']
    """
    if yes + no <= rest:
        return UNDECIDED
    if yes and no:
        return MIXED
    return REPRODUCED if yes else CONTRADICTED


def together(silos: Silos) -> Outcome:
    """Figure 2, later."""
    claim = f"After about round {EARLY} heterogeneous bias and the test error move together."
    return ordered(silos, "heter_bias", claim, "together")


def falls_together(silos: Silos) -> Outcome:
    """Figure 3, later."""
    claim = f"After about round {EARLY} the test error falls as the distance of the clients, Δ, does."
    return ordered(silos, "delta_max", claim, "falls_with_distance")


def dominate(silos: Silos) -> Outcome:
    """Section 5.3.5: both."""
    numbers = []
    for name, words in (("heter_bias", "heterogeneous bias"), ("locality", "locality")):
        for run in BOTH:
            for t in silos.late:
                own = silos.factor(name, run, t)
                others = [silos.factor(other, run, t) for other in ("train_bias", "variance", "covariance")]
                greatest = max(others, key=lambda one: one.value)
                numbers.append(minus(f"{words} {own.where}", own, greatest))
    return replace(
        above(
            "After early training heterogeneous bias and the locality term O(Δ²) both dominate the loss.",
            "In each later round each of both minus the greatest of training bias, variance and covariance is above 0 "
            f"({DRAWS}). Heterogeneous bias is no evidence by itself in these runs: clients that know nothing have "
            "0.73, or 81 % of the loss. The theorem bounds the locality and leaves its sign open; read as the paper "
            "does, it adds. "
            f"{LATE}",
            numbers,
            planned("silo", "silo-decay"),
        ),
        key="dominate",
    )


def locality(silos: Silos) -> Outcome:
    """Ours: a sign that the theorem leaves open."""
    return replace(
        above(
            "After early training locality, signed, adds to the loss.",
            f"In each later round of both runs it is above 0 ({DRAWS}). The paper reads O(Δ²) as adding to the loss, "
            f"and says nothing of a sign. {LATE}",
            [silos.factor("locality", run, t) for run in BOTH for t in silos.late],
            planned("silo", "silo-decay"),
            ours=True,
        ),
        key="locality_adds",
    )


def over_rounds(claim: str, rule: str, numbers: Sequence[Number]) -> Outcome:
    """A claim of the later rounds in general: their mean decides, unless a round lies apart on the other side."""
    cost = planned("silo", "silo-decay")
    if not numbers:
        return untested(claim, rule, TOO_FEW, cost)
    mean = math.fsum(one.value for one in numbers) / len(numbers)
    reach = math.hypot(*(one.high - one.value for one in numbers)) / len(numbers)
    effect = Number(f"{len(numbers)} rounds", mean, mean - reach, mean + reach)
    return in_general(claim, rule, effect, numbers, cost)


def farther(silos: Silos) -> Outcome:
    """Figure 3's comparison."""
    numbers = [
        minus(f"round {t}", silos.factor("delta_max", PLAIN, t), silos.factor("delta_max", DECAY, t))
        for t in silos.late
    ]
    return replace(
        over_rounds(
            "The distance of the clients, Δ, is greater without decay than with it, after early training.",
            f"The difference, its mean over the later rounds, is above 0, and in no round below ({DRAWS}). {LATE}",
            numbers,
        ),
        key="greater_distance",
    )


def worse(silos: Silos) -> Outcome:
    """Figure 3's comparison."""
    cost = planned("silo", "silo-decay")
    cases = {t: silos.error(PLAIN, t) - silos.error(DECAY, t) for t in silos.late}
    rule = (
        f"The difference, its mean over the later rounds, is above 0 (95 % interval over them). Errors are means over "
        f"the rounds within {AROUND}. {LATE}"
    )
    claim = "The test error is greater without decay than with it, after early training."
    if not cases:
        return replace(untested(claim, rule, TOO_FEW, cost), key="greater_error")
    effect = replace(over_seeds(f"{len(cases)} rounds", cases), seeds=())
    parts = [Number(f"round {t}", value) for t, value in cases.items()]
    return replace(in_general(claim, rule, effect, parts, cost, percent=True), key="greater_error")


def stays(silos: Silos) -> Outcome:
    """Section 5.3.2."""
    numbers = []
    for run, words in BOTH.items():
        every = [silos.factor("delta_max", run, t) for t in silos.late]
        if not every:
            continue
        first = every[0].value
        most = max(every, key=lambda one: one.value)
        numbers.append(Number(words, most.value / first, most.low / first, most.high / first))

    def judge(bound: float) -> Outcome:
        return inside(
            "After early training the distance of the clients stays bounded.",
            "The greatest Δ of the later rounds is at most 1.25 times that of the first of them, in both runs "
            f"({DRAWS}). {LATE}",
            numbers,
            -math.inf,
            bound,
            planned("silo", "silo-decay"),
        )

    return replace(over_bound("at most … times as great", 1.25, (1.1, 1.25, 1.5), judge), key="stays")


def _sizes(results: Path, silos: Silos) -> Mapping[tuple[str, int], Mapping[int, Any]]:
    from fedscope import Subsets

    found = {
        (one.run, one.round): {row.m: row for row in one.sizes} for one in Subsets.load(results / "fig4-subsets").rounds
    }
    return {(run, t): own for (run, t), own in found.items() if t in silos.late}


def _error(row: Any, where: str = "") -> Number:
    """A mean error of averages of m clients: over test samples, and over the subsets where not all were taken."""
    own, stderr = row.error_mean, row.error_stderr or 0.0
    reach = 1.96 * math.hypot(math.sqrt(own * (1 - own) / SAMPLES), stderr)
    return Number(where, own, own - reach, own + reach)


def numbers_of_clients(results: Path) -> list[Outcome]:
    """Figure 4, left."""
    silos = Silos(results)
    sizes = _sizes(results, silos)
    falls, bends, better = [], [], []
    for (run, t), own in sizes.items():
        where, all_, half = f"{BOTH[run]}, round {t}", max(own), max(own) // 2
        for few in (1, 2, half):
            falls.append(minus(f"from {few}, {where}", _error(own[few]), _error(own[all_])))
        first = minus("", _error(own[1]), _error(own[half]))
        bends.append(minus(where, first, minus("", _error(own[half]), _error(own[all_]))))
        better.append(share_difference(where, own[1].error_min, own[all_].error_mean, SAMPLES))
    cost, interval = planned("silo", "silo-decay"), "95 % intervals over test samples and subsets, of one seed"
    found = [
        replace(
            above(
                "The test error falls with the number of averaged clients.",
                "In each later round, without and with decay, the mean error of averages of one, two and five clients "
                f"minus that of the average of all ten is above 0 ({interval}). {LATE}",
                falls,
                cost,
                percent=True,
            ),
            key="falls_with_number",
        ),
        replace(
            above(
                "Averaging more clients helps ever less.",
                "In each later round, without and with decay, the fall of the error from one client to five minus the "
                f"fall from five to ten is above 0 ({interval}). {LATE}",
                bends,
                cost,
                percent=True,
            ),
            key="ever_less",
        ),
        above(
            "The average of all ten clients has a lower test error than each of them. The paper says it of three.",
            f"In each later round the best client's error minus the average's is above 0 ({interval}). {LATE}",
            better,
            cost,
            percent=True,
            ours=True,
        ),
    ]
    return [replace(one, changed=NEW) for one in found]


def similarities(results: Path) -> list[Outcome]:
    """Figure 4, right."""
    from scipy.stats import norm

    from fedscope import ClientCKA

    silos = Silos(results)
    width = float(norm.ppf(0.975))
    found: dict[str, dict[int, Number]] = {}
    for run, words in BOTH.items():
        for one in ClientCKA.load(results / f"fig4-cka.{run}").rounds:
            if one.round in silos.late:
                reach = width * one.mean_stderr
                own = Number(f"{words}, round {one.round}", one.mean, one.mean - reach, one.mean + reach)
                found.setdefault(run, {})[one.round] = own
    cost, interval = planned("silo", "silo-decay"), "95 % intervals over minibatches of test samples, of one seed"

    def small(bound: float) -> Outcome:
        return inside(
            "The clients' outputs have little in common.",
            f"In each later round of both runs the mean CKA of two clients' outputs is below one half ({interval}). "
            f"{LATE}",
            [one for own in found.values() for one in own.values()],
            -math.inf,
            bound,
            cost,
        )

    least = over_rounds(
        "The clients' outputs are least similar without decay.",
        "Their mean CKA with decay minus that without, its mean over the later rounds, is above 0, and in no round "
        f"below ({interval}). {LATE}",
        [minus(f"round {t}", found[DECAY][t], found[PLAIN][t]) for t in found[PLAIN]] if found else [],
    )
    return [
        replace(over_bound("below …", 0.5, (0.4, 0.5, 0.6), small), key="similar", changed=CHANGED),
        replace(least, key="least_similar_without", changed=NEW),
    ]
