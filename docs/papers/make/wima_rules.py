"""The claims of WIMA's figures, judged on one seed of short runs. Those rules that were changed after the results were
seen say so; the others were fixed before, but for a trial of 60 rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from costs import planned
from learnt import CHANGED, Level, where_learnt
from outcomes import Cost, Outcome, above, at_least, inside
from verdicts import Number

#: runs of Figure 1, and what the paper calls them
METHODS: Mapping[str, str] = {"fedavg": "FedAvg"}
#: in the words of a claim
ALONE = f"{', '.join(METHODS.values())} alone"
#: how far apart two accuracies may lie that are about the same
ABOUT = 0.03
#: what the interval of a difference of accuracies is, as the page says once
OVER = (
    "The interval of a difference of accuracies is Student's over the measured rounds, taken as independent. It is "
    "widened in quadrature by the interval over the test samples, taken as independent between models."
)

Accuracies = Mapping[int, float]


def _of(curve: Any, column: str, last: int) -> Accuracies:
    """Accuracy by round, of the last measured ones."""
    import numpy as np

    there = np.flatnonzero(~np.isnan(curve.values[column]))[-last:]
    return {int(curve.round[i]): 1 - float(curve.values[column][i]) for i in there}


def _plain(curve: Any, last: int) -> Accuracies:
    return _of(curve, "test_error", last)


def _wima(curve: Any, last: int) -> Accuracies:
    return _of(curve, "averaged_test_error", last)


def _mean(accuracies: Accuracies) -> float:
    return math.fsum(accuracies.values()) / len(accuracies)


def _curves(results: Path, name: str) -> Mapping[str, Any]:
    from fedscope import Curves

    return {curve.run: curve for curve in Curves.load(results / name).runs}


def _samples(results: Path) -> int:
    """Of the test set, on which all curves were measured."""
    from fedscope import WindowMeans

    return int(WindowMeans.load(results / "table4").attrs["samples"])


def ahead(where: str, a: Accuracies, b: Accuracies, samples: int) -> Number:
    """a − b, means over the same rounds, with the 95 % interval that `OVER` describes.

    >>> ahead("x", {1: 0.75, 2: 0.75}, {1: 0.5, 2: 0.5}, 10_000)
    Number(where='x', value=0.25, low=0.237..., high=0.262...)
    """
    from fedscope.training.tables.statistics import paired_difference

    found = paired_difference(a, b)
    assert found is not None, where
    means = _mean(a), _mean(b)
    reach = math.hypot(
        (found.high - found.low) / 2, 1.96 * math.sqrt(math.fsum(one * (1 - one) for one in means) / samples)
    )
    return Number(where, found.mean, found.mean - reach, found.mean + reach)


def steadier(where: str, smooth: Accuracies, rough: Accuracies) -> Number:
    """By what share the changes from one measured round to the next scatter less; the interval is that of a ratio of
    two normal samples' deviations (F).

    >>> steadier("x", {1: 0.5, 2: 0.51, 3: 0.5}, {1: 0.5, 2: 0.52, 3: 0.5}).value
    0.5
    """
    import numpy as np
    from scipy.stats import f

    changes = [np.diff(list(one.values())) for one in (smooth, rough)]
    deviations = [float(np.std(one, ddof=1)) for one in changes]
    if not deviations[1]:
        return Number(where, 0.0, -math.inf, 1.0)  # accuracy has not moved: nothing to be smoother than
    ratio = deviations[0] / deviations[1]
    free = len(changes[0]) - 1
    reach = math.sqrt(f.ppf(0.975, free, free))
    return Number(where, round(1 - ratio, 12), 1 - ratio * reach, 1 - ratio / reach)


def judged(
    claim: str, rule: str, accuracies: Mapping[str, float], alpha: str, judge: Callable[[], Outcome], *, key: str = ""
) -> Outcome:
    """The outcome where FedAvg has learnt.

    Args:
        accuracies: of FedAvg's runs that are compared, by their words; alpha: of the paper's cell beside them.
    """
    paper = _published(f"wima/table2-cifar10-a{alpha}")["FedAvg", "of global"] / 100
    one = planned({"0": "wima-a0", "0.05": "wima-a0.05"}[alpha])
    cost = Cost(one.seeds, len(accuracies) * one.rounds, len(accuracies) * one.hours)
    reached = {where: Level(own, paper) for where, own in accuracies.items()}
    return replace(where_learnt(claim, rule, reached, lambda _: judge(), cost), changed=CHANGED, key=key)


def _alone(curves: Mapping[str, Any], run: str, last: int) -> dict[str, float]:
    return {"FedAvg": _mean(_plain(curves[run], last))}


def smoother(results: Path) -> list[Outcome]:
    """Figure 1."""
    curves = _curves(results, "fig1")
    half = (len(_plain(curves["fedavg"], len(curves["fedavg"].round))) + 1) // 2
    claim = f"WIMA's curves are smoother ({ALONE}, on CIFAR-10; the paper says so of every level)."
    rule = (
        "We take the changes of the accuracy from one measured round to the next, over the last half of the measured "
        "rounds. Their deviation is smaller with WIMA: 1 minus the ratio is above 0 (95 % interval by F, changes taken "
        "as independent)."
    )

    def judge() -> Outcome:
        return above(claim, rule, [steady(curves, half)], planned("wima-a0"), percent=True)

    return [judged(claim, rule, _alone(curves, "fedavg", 10), "0", judge, key="smoother")]


def steady(curves: Mapping[str, Any], half: int) -> Number:
    """How much steadier WIMA's accuracy is."""
    return steadier("FedAvg", _wima(curves["fedavg"], half), _plain(curves["fedavg"], half))


def measured_steady(results: Path) -> Number:
    """The same, of the kept results."""
    curves = _curves(results, "fig1")
    return steady(curves, (len(_plain(curves["fedavg"], len(curves["fedavg"].round))) + 1) // 2)


def gain(results: Path) -> Number:
    """Table 2: what WIMA gains."""
    curves, samples = _curves(results, "fig1"), _samples(results)
    return ahead("FedAvg", _wima(curves["fedavg"], 10), _plain(curves["fedavg"], 10), samples)


def level(results: Path) -> float:
    """FedAvg's own accuracy there."""
    return _mean(_plain(_curves(results, "fig1")["fedavg"], 10))


def gains(results: Path) -> list[Outcome]:
    """Table 2."""
    claim = f"Accuracy gains from WIMA ({ALONE} of 11 methods, one of 7 columns)."
    rule = "Over the last 10 measured rounds the accuracy with WIMA minus that without is above 0 (95 % interval)."

    def judge() -> Outcome:
        return above(claim, rule, [gain(results)], planned("wima-a0"), percent=True)

    return [judged(claim, rule, _alone(_curves(results, "fig1"), "fedavg", 10), "0", judge, key="gains")]


def starts(results: Path, early: str, late: str) -> list[Outcome]:
    """Figure 2.

    Args:
        early, late: the runs with SWA's first and last start.
    """
    curves, samples = _curves(results, "fig2"), _samples(results)
    first, last = (_wima(curves[Path(run).name], 5) for run in (early, late))
    cost = planned("wima-a0")
    said = "Over the last 5 measured rounds"

    def early_below(claim: str, rule: str) -> Outcome:
        found = [ahead(Path(early).name, _plain(curves["fedavg"], 5), first, samples)]
        return above(claim, rule, found, cost, percent=True)

    def near(claim: str, rule: str) -> Outcome:
        found = [ahead(Path(late).name, _wima(curves["fedavg"], 5), last, samples)]
        return inside(claim, rule, found, -ABOUT, ABOUT, cost, percent=True)

    claims = (
        (
            "SWA from an early start ends below FedAvg (on CIFAR-10).",
            f"{said} FedAvg's accuracy minus SWA's with the earliest start is above 0 (95 % interval).",
            early_below,
        ),
        (
            "SWA from a late start ends near WIMA (FedAvg, on CIFAR-10).",
            f"{said} WIMA's accuracy minus SWA's, of the latest start, lies within {100 * ABOUT:g} points (95 % "
            "interval).",
            near,
        ),
    )
    own = _alone(curves, "fedavg", 5)
    return [judged(claim, rule, own, "0", partial(judge, claim, rule)) for claim, rule, judge in claims]


def _beside(curves: Mapping[str, Any], samples: int, names: Mapping[float, str], few: float, many: float) -> Number:
    """Of the last 5 measured rounds: few clients with WIMA minus many without."""
    a, b = _wima(curves[names[few]], 5), _plain(curves[names[many]], 5)
    return ahead(f"{100 * few:g} % with WIMA minus {100 * many:g} % without", a, b, samples)


@dataclass(frozen=True)
class Shares:
    """Claims that compare few clients with WIMA with many without.

    Attributes:
        curves: of Figure 3a or 3b; samples: of the test set; names: the runs by their participation.
        alpha: of the partition.
    """

    curves: Mapping[str, Any]
    samples: int
    names: Mapping[float, str]
    alpha: str

    def compared(self, claim: str, few: float, many: float, how: str) -> Outcome:
        """One of them.

        Args:
            how: ``better``, ``at least`` as good or ``about`` as good.
        """
        words = {
            "better": "is above 0",
            "at least": f"is above -{100 * ABOUT:g} points",
            "about": f"lies within {100 * ABOUT:g} points",
        }
        rule = f"Over the last 5 measured rounds the difference of the accuracies {words[how]} (95 % interval)."
        own = {
            f"FedAvg at {100 * share:g} % participation": _mean(_plain(self.curves[self.names[share]], 5))
            for share in (few, many)
        }
        number = _beside(self.curves, self.samples, self.names, few, many)
        one = planned("wima-a0" if self.alpha == "0" else "wima-a0.05")
        cost = Cost(one.seeds, 2 * one.rounds, 2 * one.hours)

        def judge() -> Outcome:
            if how == "better":
                return above(claim, rule, [number], cost, percent=True)
            if how == "at least":
                return at_least(claim, rule, [number], ABOUT, cost, percent=True)
            return inside(claim, rule, [number], -ABOUT, ABOUT, cost, percent=True)

        found = judged(claim, rule, own, self.alpha, judge)
        if how == "at least":
            return replace(found, changed=f"at least as good was asked to be better; {CHANGED}")
        return found


def participations(results: Path, names: Mapping[float, str]) -> list[Outcome]:
    """Figure 3a.

    Args:
        names: the runs by their participation.
    """
    shares = Shares(_curves(results, "fig3a"), _samples(results), names, "0")
    return [
        shares.compared("WIMA at 10 % participation is at least as good as FedAvg at 15 %.", 0.1, 0.15, "at least"),
        shares.compared("WIMA at 20 % participation is about as good as FedAvg at 50 %.", 0.2, 0.5, "about"),
    ]


def skewed(results: Path, names: Mapping[float, str]) -> list[Outcome]:
    """Figure 3b.

    Args:
        names: the runs by their participation.
    """
    shares = Shares(_curves(results, "fig3b"), _samples(results), names, "0.05")
    at = "At alpha 0.05 WIMA at"
    return [
        shares.compared(f"{at} 10 % participation is at least as good as FedAvg at 20 % (text).", 0.1, 0.2, "at least"),
        shares.compared(f"{at} 20 % participation is better than FedAvg at 50 % (text).", 0.2, 0.5, "better"),
        shares.compared(f"{at} 10 % participation is about as good as FedAvg at 50 % (caption).", 0.1, 0.5, "about"),
    ]


def _means(results: Path, name: str) -> Mapping[int, Accuracies]:
    """Accuracy by window and round; of window 1 that of the global model."""
    from fedscope import WindowMeans

    found: dict[int, dict[int, float]] = {}
    for one in WindowMeans.load(results / name).rounds:
        for row in one.rows:
            found.setdefault(row.window, {})[one.round] = 1 - row.error
    return found


def window_gains(results: Path) -> list[Number]:
    """Table 4: of each window what its mean gains over the global model."""
    means, samples = _means(results, "table4"), _samples(results)
    return [ahead(f"W {w}", own, means[1], samples) for w, own in means.items() if w > 1]


def windows(results: Path, compared: Sequence[int]) -> list[Outcome]:
    """Table 4.

    Args:
        compared: a short, a middle and a long window.
    """
    means, samples = _means(results, "table4"), _samples(results)
    short, middle, long = compared
    against = "Over the measured rounds the accuracy of W {} minus that of W {} is above 0."
    plain = {"FedAvg": _mean(means[1])}
    cost = planned("wima-a0")

    def told_apart(claim: str, worse: int, key: str) -> Outcome:
        rule = against.format(middle, worse)
        number = ahead(f"W {middle} minus W {worse}", means[middle], means[worse], samples)
        judge = partial(above, claim, rule, [number], cost, percent=True)
        return judged(claim, rule, plain, "0", judge, key=key)

    any_claim = "A mean over any of the windows is better than FedAvg's model (CIFAR-10, alpha 0)."
    any_rule = "For each window, the accuracy minus the global model's is above 0 (95 % interval)."
    judge = partial(above, any_claim, any_rule, window_gains(results), cost, percent=True)
    return [
        judged(any_claim, any_rule, plain, "0", judge, key="any_window"),
        told_apart(f"A window of {middle} is better than one of {short} (CIFAR-10, alpha 0).", short, "longer"),
        told_apart(f"A window of {long} is too long: one of {middle} is better (CIFAR-10, alpha 0).", long, "too_long"),
    ]


def _parts(results: Path, window: int) -> Mapping[str, Accuracies]:
    names = {"classifier": "table5-classifier", "features": "table5-features", "all": "table4"}
    return {part: _means(results, name)[window] for part, name in names.items()}


def parts(results: Path, window: int) -> list[Outcome]:
    """Table 5."""
    means, samples = _parts(results, window), _samples(results)
    rule = "Over the measured rounds the accuracy of the first minus that of the second is above 0."
    plain = {"FedAvg": _mean(_means(results, "table4")[1])}

    def better(claim: str, one: str, other: str) -> Outcome:
        number = ahead(f"{one} minus {other}", means[one], means[other], samples)
        judge = partial(above, claim, rule, [number], planned("wima-a0"), percent=True)
        return judged(claim, rule, plain, "0", judge)

    return [
        better("Averaging the features is better than averaging the classifier (CIFAR-10).", "features", "classifier"),
        better("Averaging all is better than averaging the features (CIFAR-10).", "all", "features"),
    ]


def _published(recipe: str) -> Mapping[tuple[str, str], float]:
    import fedscope

    return {(one.row, one.column): one.value for one in fedscope.recipe(recipe).published}


def methods_table(results: Path) -> str:
    """Table 2: ours beside the paper's cells."""
    curves, cells = _curves(results, "fig1"), _published("wima/table2-cifar10-a0")
    rows = [
        "| accuracy, % | here: without | with WIMA | paper: without | with WIMA |",
        "| --- | --- | --- | --- | --- |",
    ]
    for run, name in METHODS.items():
        ours = [f"{100 * _mean(of(curves[run], 10)):.2f}" for of in (_plain, _wima)]
        theirs = [f"{cells[name, column]:.2f}" for column in ("of global", "of averaged")]
        rows.append(f"| {name} | {' | '.join((*ours, *theirs))} |")
    return "\n".join(rows)


def windows_table(results: Path) -> str:
    """Table 4: ours beside the paper's cells; its cell without WIMA is Table 2's."""
    means, cells = _means(results, "table4"), _published("wima/table4-cifar10")
    plain = _published("wima/table2-cifar10-a0")["FedAvg", "of global"]
    theirs = [cells.get(("fma", f"average.window={w}")) if w > 1 else plain for w in means]
    return "\n".join(
        [
            "| accuracy, % | " + " | ".join("without (paper: Table 2)" if w == 1 else f"W {w}" for w in means) + " |",
            "| --- |" + " --- |" * len(means),
            "| here | " + " | ".join(f"{100 * _mean(own):.2f}" for own in means.values()) + " |",
            "| paper | " + " | ".join("–" if one is None else f"{one:.2f}" for one in theirs) + " |",
        ]
    )


def parts_table(results: Path, window: int) -> str:
    """Table 5: ours beside the paper's cells, of which none is without WIMA."""
    means, cells = _parts(results, window), _published("wima/table5-cifar10-a0")
    ours = [f"{100 * _mean(own):.2f}" for own in (_means(results, "table4")[1], *means.values())]
    theirs = ["–", *(f"{cells['fma', f'average.parts={part}']:.2f}" for part in means)]
    return "\n".join(
        [
            f"| accuracy, % | without | {' | '.join(means)} |",
            "| --- |" + " --- |" * (len(means) + 1),
            f"| here | {' | '.join(ours)} |",
            f"| paper | {' | '.join(theirs)} |",
        ]
    )
