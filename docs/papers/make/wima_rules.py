"""The claims of WIMA's figures, and the rules by which they are judged; fixed before any result was seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from verdicts import Number, Verdict, above_zero, within

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
    from fedscope.training.tables.statistics import paired

    found = paired(a, b)
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


def smoother(results: Path) -> list[Verdict]:
    """Figure 1."""
    curves = _curves(results, "fig1")
    steady = []
    for run, name in METHODS.items():
        half = (len(_plain(curves[run], len(curves[run].round))) + 1) // 2
        steady.append(steadier(name, _wima(curves[run], half), _plain(curves[run], half)))
    return [
        above_zero(
            f"WIMA's curves are smoother; judged on {ALONE}, while the paper says so of every level.",
            "We take the changes of the accuracy from one measured round to the next, over the last half of the "
            "measured rounds. For each method their deviation is smaller with WIMA: 1 minus the ratio is above 0 (95 "
            "% interval by F, changes taken as independent).",
            steady,
            percent=True,
        ),
    ]


def gains(results: Path) -> list[Verdict]:
    """Table 2."""
    curves, samples = _curves(results, "fig1"), _samples(results)
    gained = [ahead(name, _wima(curves[run], 10), _plain(curves[run], 10), samples) for run, name in METHODS.items()]
    return [
        above_zero(
            f"Accuracy gains from WIMA; judged on {ALONE} and one data set, of the paper's 11 methods and 7 columns.",
            "Over the last 10 measured rounds the accuracy with WIMA minus that without is above 0 (95 % interval).",
            gained,
            percent=True,
        )
    ]


def starts(results: Path, early: str, late: str) -> list[Verdict]:
    """Figure 2.

    Args:
        early, late: the runs with SWA's first and last start.
    """
    curves, samples = _curves(results, "fig2"), _samples(results)
    first, last = (_wima(curves[Path(run).name], 5) for run in (early, late))
    return [
        above_zero(
            "SWA from an early start ends below FedAvg.",
            "Over the last 5 measured rounds FedAvg's accuracy minus SWA's with the earliest start is above 0 (95 % "
            "interval).",
            [ahead(Path(early).name, _plain(curves["fedavg"], 5), first, samples)],
            percent=True,
        ),
        above_zero(
            "SWA from a late start comes nearer to WIMA than SWA from an early one.",
            "Over the last 5 measured rounds SWA's accuracy with the latest start minus that with the earliest is "
            "above 0 "
            "(95 % interval).",
            [ahead(f"{Path(late).name} minus {Path(early).name}", last, first, samples)],
            percent=True,
        ),
        within(
            "SWA from a late start ends near WIMA.",
            f"Over the last 5 measured rounds WIMA's accuracy minus SWA's, of the latest start, lies within "
            f"{100 * ABOUT:g} points (95 % interval).",
            [ahead(Path(late).name, _wima(curves["fedavg"], 5), last, samples)],
            -ABOUT,
            ABOUT,
            percent=True,
        ),
    ]


def _beside(curves: Mapping[str, Any], samples: int, names: Mapping[float, str], few: float, many: float) -> Number:
    """Of the last 5 measured rounds: few clients with WIMA minus many without."""
    a, b = _wima(curves[names[few]], 5), _plain(curves[names[many]], 5)
    return ahead(f"{100 * few:g} % with WIMA minus {100 * many:g} % without", a, b, samples)


def participations(results: Path, names: Mapping[float, str]) -> list[Verdict]:
    """Figure 3a.

    Args:
        names: the runs by their participation.
    """
    beside = partial(_beside, _curves(results, "fig3a"), _samples(results), names)
    return [
        above_zero(
            "WIMA at 10 % participation is at least as good as FedAvg at 15 %.",
            "Over the last 5 measured rounds the difference of the accuracies is above 0 (95 % interval). If both "
            "are equal, it is too small to say.",
            [beside(0.1, 0.15)],
            percent=True,
        ),
        within(
            "WIMA at 20 % participation is about as good as FedAvg at 50 %.",
            f"Over the last 5 measured rounds the difference of the accuracies lies within {100 * ABOUT:g} points (95 "
            "% interval).",
            [beside(0.2, 0.5)],
            -ABOUT,
            ABOUT,
            percent=True,
        ),
    ]


def skewed(results: Path, names: Mapping[float, str]) -> list[Verdict]:
    """Figure 3b.

    Args:
        names: the runs by their participation.
    """
    beside = partial(_beside, _curves(results, "fig3b"), _samples(results), names)
    above = "Over the last 5 measured rounds the difference of the accuracies is above 0 (95 % interval)"
    return [
        above_zero(
            "At alpha 0.05 WIMA at 10 % participation is at least as good as FedAvg at 20 % (text).",
            f"{above}. If both are equal, it is too small to say.",
            [beside(0.1, 0.2)],
            percent=True,
        ),
        above_zero(
            "At alpha 0.05 WIMA at 20 % participation is better than FedAvg at 50 % (text).",
            f"{above}.",
            [beside(0.2, 0.5)],
            percent=True,
        ),
        within(
            "At alpha 0.05 WIMA at 10 % participation is about as good as FedAvg at 50 % (caption).",
            f"Over the last 5 measured rounds the difference of the accuracies lies within {100 * ABOUT:g} points (95 "
            "% interval).",
            [beside(0.1, 0.5)],
            -ABOUT,
            ABOUT,
            percent=True,
        ),
    ]


def _means(results: Path, name: str) -> Mapping[int, Accuracies]:
    """Accuracy by window and round; of window 1 that of the global model."""
    from fedscope import WindowMeans

    found: dict[int, dict[int, float]] = {}
    for one in WindowMeans.load(results / name).rounds:
        for row in one.rows:
            found.setdefault(row.window, {})[one.round] = 1 - row.error
    return found


def windows(results: Path, compared: Sequence[int]) -> list[Verdict]:
    """Table 4.

    Args:
        compared: a short, a middle and a long window.
    """
    means, samples = _means(results, "table4"), _samples(results)
    short, middle, long = compared
    against = "Over the measured rounds the accuracy of W {} minus that of W {} is above 0."
    return [
        above_zero(
            "A mean over any of the windows is better than FedAvg's model.",
            "For each window, the accuracy minus the global model's is above 0 (95 % interval).",
            [ahead(f"W {w}", own, means[1], samples) for w, own in means.items() if w > 1],
            percent=True,
        ),
        above_zero(
            f"A window of {middle} is better than one of {short}.",
            against.format(middle, short),
            [ahead(f"W {middle} minus W {short}", means[middle], means[short], samples)],
            percent=True,
        ),
        above_zero(
            f"A window of {long} is too long: one of {middle} is better.",
            against.format(middle, long),
            [ahead(f"W {middle} minus W {long}", means[middle], means[long], samples)],
            percent=True,
        ),
    ]


def _parts(results: Path, window: int) -> Mapping[str, Accuracies]:
    names = {"classifier": "table5-classifier", "features": "table5-features", "all": "table4"}
    return {part: _means(results, name)[window] for part, name in names.items()}


def parts(results: Path, window: int) -> list[Verdict]:
    """Table 5."""
    means, samples = _parts(results, window), _samples(results)
    rule = "Over the measured rounds the accuracy of the first minus that of the second is above 0."

    def better(claim: str, one: str, other: str) -> Verdict:
        return above_zero(claim, rule, [ahead(f"{one} minus {other}", means[one], means[other], samples)], percent=True)

    return [
        better("Averaging the features is better than averaging the classifier.", "features", "classifier"),
        better("Averaging all is better than averaging the classifier.", "all", "classifier"),
        better("Averaging all is better than averaging the features.", "all", "features"),
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
