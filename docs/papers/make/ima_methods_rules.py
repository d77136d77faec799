"""The claims of IMA's Figures 6 and 7 and Tables 1 to 3, and their rules. Those that were changed after the results
were seen say so; the others were fixed before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costs import at_length, measured
from kept import shown
from outcomes import (
    CONTRADICTED,
    REPRODUCED,
    UNDECIDED,
    Cost,
    Outcome,
    above,
    in_general,
    inside,
    over_seeds,
    pooled,
    untested,
    would_decide,
)
from verdicts import Number, difference

if TYPE_CHECKING:
    from ima_methods import Comparisons

SAID = {"fma": "FedAvg", "fedprox": "FedProx", "fedasam": "FedASAM", "fedfa": "FedFA", "fednova": "FedNova"}
SAID |= {"fedadam": "FedAdam", "fedyogi": "FedYogi", "fedgma": "FedGMA"}
OVER = "95 % interval, paired over seeds"

Seeds = Mapping[str, float]


def _cost(results: Path, runs: int) -> Cost:
    """Of one more seed of so many runs, at the seconds that FedAvg's took."""
    from fedscope import Curves

    curves = Curves.load(results / "fig7a")
    rounds = max(int(own.round[-1]) for own in curves.runs)
    return measured(curves, "fma", runs, rounds)


def _cells(results: Path, name: str) -> dict[tuple[str, str], Seeds]:
    """Accuracies by row and column."""
    from fedscope import Comparison

    return {(cell.row, cell.column): cell.values for cell in Comparison.load(results / name).cells}


def _points(number: Number) -> str:
    """A gain as a table has it."""
    return f"{100 * number.value:+.2f} ({100 * number.low:+.2f} to {100 * number.high:+.2f})"


def _gains(results: Path, name: str) -> dict[float, Number]:
    """Figure 6: IMA's gain by setting, ascending."""
    cells, found = _cells(results, name), {}
    for row, column in cells:
        if row != "ima":
            continue
        value = float(column.rpartition(":")[2].rpartition(" ")[2])
        found[value] = difference(f"{value:g}:", cells["ima", column], cells["no average", column])
    return dict(sorted(found.items()))


def varied_table(results: Path, name: str) -> str:
    """Figure 6 as a table."""
    rows = ["| | without | with IMA | gain in points (95 %) |", "| --- | --- | --- | --- |"]
    cells, gains = _cells(results, f"fig6-{name}"), _gains(results, f"fig6-{name}")
    columns = sorted(
        {column for _, column in cells}, key=lambda column: float(column.rpartition(":")[2].rpartition(" ")[2])
    )
    for column, gain in zip(columns, gains.values(), strict=True):
        own = [shown(cells[row, column]) for row in ("no average", "ima")]
        rows.append(f"| {column} | {' | '.join(own)} | {_points(gain)} |")
    return "\n".join(rows)


def varied(results: Path, name: str) -> list[Outcome]:
    """Figure 6, one of its panels."""
    cells, gains = _cells(results, f"fig6-{name}"), _gains(results, f"fig6-{name}")
    most, cost = max(gains), _cost(results, 2)
    if name == "skew":
        skewed = [gain for value, gain in gains.items() if value != most]
        return [
            _in_general(
                "IMA gains if labels are skewed (FedAvg on MNIST, alpha 0.05 and 0.1).",
                "The gain at each alpha but the largest",
                skewed,
                replace(cost, rounds=2 * cost.rounds, hours=2 * cost.hours),
            ),
            _insignificant(
                f"At alpha {most:g} the gain is insignificant (FedAvg on MNIST).",
                f"The interval of the gain contains 0 ({OVER}).",
                gains[most],
                cost,
            ),
        ]
    if name == "participation":
        few, *_, many = sorted({column for _, column in cells}, key=lambda column: float(column.rpartition(" ")[2]))
        of_few, of_many = (
            {seed: cells["ima", own][seed] - cells["no average", own][seed] for seed in cells["ima", own]}
            for own in (few, many)
        )
        return [
            above(
                "IMA gains more if fewer clients take part (FedAvg on MNIST).",
                f"The gain at the lowest participation minus that at the highest is above 0 ({OVER}).",
                [difference(f"{few} minus {many}:", of_few, of_many)],
                replace(cost, rounds=2 * cost.rounds, hours=2 * cost.hours),
                percent=True,
            )
        ]
    return [
        _in_general(
            "IMA gains for any number of local epochs (FedAvg on MNIST, 3 to 10).",
            "The gain at each number",
            list(gains.values()),
            replace(cost, rounds=3 * cost.rounds, hours=3 * cost.hours),
        )
    ]


def _in_general(claim: str, words: str, gains: Sequence[Number], cost: Cost) -> Outcome:
    """A claim of several settings or methods: their pooled effect decides."""
    effect = pooled("all of them", {one.where: dict(enumerate(one.seeds)) for one in gains})
    rule = f"{words}, pooled over them by seed, is above 0, and in none is it apart below ({OVER})."
    found = in_general(claim, rule, effect, gains, cost, percent=True)
    return replace(found, changed="each had to be apart from 0 by itself")


def _insignificant(claim: str, rule: str, number: Number, cost: Cost) -> Outcome:
    """Reproduced where the interval holds 0 and is at most two points wide to each side; wider says nothing."""
    why = ""
    if number.low > 0 or number.high < 0:
        kind = CONTRADICTED
    elif max(-number.low, number.high) <= 0.02:
        kind = REPRODUCED
    else:
        kind, why = UNDECIDED, would_decide([number], -0.02, 0.02, cost)
    return Outcome(
        claim, f"{rule[:-1]} and reaches at most two points to each side.", kind, why, (number,), percent=True
    )


def methods_table(results: Path, recipe: str, methods: Sequence[str]) -> str:
    """Table 1's row beside the paper's."""
    import fedscope

    cells = _cells(results, "table1")
    paper = {(one.row, one.column): one.value for one in fedscope.recipe(recipe).published}
    rows = ["| | the paper | with IMA | here | with IMA | gain in points (95 %) |"]
    rows += ["| --- | --- | --- | --- | --- | --- |"]
    for name in methods:
        theirs = [f"{paper[name, f'average.method={average}']:.2f}" for average in ("none", "ima")]
        ours = [shown(cells[name, average]) for average in ("no average", "ima")]
        gain = difference("", cells[name, "ima"], cells[name, "no average"])
        rows.append(f"| {SAID[name]} | {' | '.join([*theirs, *ours])} | {_points(gain)} |")
    return "\n".join(rows)


def gains(results: Path, names: Sequence[str]) -> dict[str, Number]:
    """Table 1: by method the accuracy with IMA minus that without."""
    cells = _cells(results, "table1")
    return {name: difference(SAID[name], cells[name, "ima"], cells[name, "no average"]) for name in names}


def methods(results: Path, names: Sequence[str]) -> list[Outcome]:
    """Table 1."""
    return [
        _in_general(
            "Methods are more accurate with IMA (eight of them, one row of Table 1, on MNIST).",
            "The accuracy with IMA minus that without",
            list(gains(results, names).values()),
            _cost(results, 2 * len(names)),
        ),
        untested(
            "Over all data sets IMA gains more where labels are more skewed.",
            "",
            "one data set was compared",
            at_length(4 * len(names), 400),
        ),
    ]


def schedules_table(results: Path) -> str:
    """Table 3's column beside the paper's."""
    import fedscope

    paper = {one.column: one.value for one in fedscope.recipe("ima/table3").published if one.row == "fma"}
    rows = ["| exploration | the paper | here |", "| --- | --- | --- |"]
    for (row, _), own in _cells(results, "table3").items():
        name = row.rpartition(" ")[2]
        rows.append(f"| {name} | {paper[f'average.explore={name}']:.2f} | {shown(own)} |")
    return "\n".join(rows)


def schedules(results: Path) -> list[Outcome]:
    """Table 3."""
    cells = {row.rpartition(" ")[2]: own for (row, _), own in _cells(results, "table3").items()}
    return [
        above(
            "A rate that falls exponentially is the best of the schedules (FedAvg on MNIST).",
            f"Its accuracy minus that of each other schedule is above 0 ({OVER}; what says the contrary is corrected "
            "for how many there are).",
            [difference(name, cells["exp"], own) for name, own in cells.items() if name != "exp"],
            _cost(results, len(cells)),
            percent=True,
        )
    ]


#: answers by what they are of
PRECISE = {"precise": "MNIST", "precision": "CIFAR-10"}


def _precisions(results: Path, name: str) -> tuple[Seeds, Seeds]:
    """float32's and bf16's."""
    cells = {row.rpartition(" ")[2]: own for (row, _), own in _cells(results, name).items()}
    return cells["float32"], cells["bf16"]


def precision_table(results: Path) -> str:
    """What bf16 does."""
    rows = ["| | float32 | bf16 | change in points (95 %) |", "| --- | --- | --- | --- |"]
    for name, data in PRECISE.items():
        wide, narrow = _precisions(results, name)
        rows.append(f"| {data} | {shown(wide)} | {shown(narrow)} | {_points(difference('', narrow, wide))} |")
    return "\n".join(rows)


def precision(results: Path) -> list[Outcome]:
    """Ours: whether the pages may use it."""
    return [
        inside(
            f"Training in bf16 changes the accuracy by less than two points on {data}.",
            f"The interval of the change is between -2 and 2 points ({OVER}).",
            [difference("bf16 minus float32:", *_precisions(results, name)[::-1])],
            -0.02,
            0.02,
            at_length(2, 20) if data == "CIFAR-10" else _cost(results, 2),
            percent=True,
            ours=True,
        )
        for name, data in PRECISE.items()
    ]


def accuracies(curve: Any) -> dict[int, float]:
    """By measured round, of the model that a user would deploy: the averaged one where there is one."""
    found = {}
    averaged = curve.values.get("averaged_test_error")
    for i, number in enumerate(curve.round):
        own = float(curve.values["test_error"][i])
        if averaged is not None and not math.isnan(averaged[i]):
            own = float(averaged[i])
        if not math.isnan(own):
            found[int(number)] = 1 - own
    return found


def _curves(results: Path, name: str, begins: str) -> dict[str, dict[int, float]]:
    """By seed the accuracies of the runs whose names begin so."""
    from fedscope import Curves

    return {
        curve.run.rpartition("seed")[2]: accuracies(curve)
        for curve in Curves.load(results / name).runs
        if curve.run.startswith(f"{begins}-seed")
    }


def _late(curves: Mapping[str, Mapping[int, float]], last: int) -> Seeds:
    """By seed the mean over the last measured rounds."""
    return {seed: math.fsum(list(own.values())[-last:]) / last for seed, own in curves.items()}


def starts(results: Path, scale: Comparisons) -> list[Outcome]:
    """Figure 7a."""
    early, late = (_late(_curves(results, "fig7a", f"fedfa-ima-start{start}"), scale.last) for start in scale.starts)
    return [
        above(
            "With FedFA, IMA started at three quarters of the rounds ends above IMA started at half (on MNIST).",
            f"Over the last {scale.last} measured rounds the accuracy of the later start minus that of the earlier is "
            f"above 0 ({OVER}). The paper shows about 3 points.",
            [difference(f"{scale.starts[1]} minus {scale.starts[0]}:", late, early)],
            _cost(results, 2),
            percent=True,
        )
    ]


def windows(results: Path, scale: Comparisons) -> list[Outcome]:
    """Figure 7b."""
    import numpy as np

    def rough(window: int, start: int) -> Seeds:
        """The deviation of the accuracy's changes from one measured round to the next, after IMA's start."""
        curves = _curves(results, "fig7b", f"fma-ima-window{window}-start{start}")
        return {
            seed: float(np.diff([value for number, value in own.items() if number >= start]).std(ddof=1))
            for seed, own in curves.items()
        }

    small, large = scale.windows
    first = scale.starts[0]
    ends = {
        (window, start): _late(_curves(results, "fig7b", f"fma-ima-window{window}-start{start}"), scale.last)
        for window in scale.windows
        for start in scale.starts
    }
    steadier = _in_general(
        "A larger window is steadier (FedAvg on MNIST, windows 3 and 9).",
        "We take the deviation of the accuracy's changes from one measured round to the next, from IMA's start on. The "
        "smaller window's minus the larger's",
        [difference(f"start {start}:", rough(small, start), rough(large, start)) for start in scale.starts],
        _cost(results, 4),
    )
    return [
        steadier,
        above(
            "The largest window with the earliest start ends below all others (FedAvg on MNIST).",
            f"Over the last {scale.last} measured rounds the accuracy of each other minus its own is above 0 ({OVER}).",
            [
                difference(f"window {window}, start {start}:", own, ends[large, first])
                for (window, start), own in ends.items()
                if (window, start) != (large, first)
            ],
            _cost(results, 4),
            percent=True,
        ),
    ]


def lines(results: Path, methods: Sequence[str]) -> list[Outcome]:
    """Figure 7c."""
    from fedscope import Line

    line = Line.load(results / "fig7c")
    flat = {name: float(line.loss[i].max() - line.loss[i].min()) for i, name in enumerate(methods)}
    error = {name: float(line.error[i].min()) for i, name in enumerate(methods)}
    others = [name for name in methods if name != "fedasam"]
    places = {SAID[name]: float(line.beta[int(line.loss[i].argmin())]) - 0.5 for i, name in enumerate(methods)}
    effect = replace(over_seeds("all of them", places), seeds=())
    cost, one = _cost(results, 2 * len(methods)), "There is one seed, so no interval."
    near = in_general(
        "IMA's model is near the lowest point of its line to the model without IMA, which is on the wall (eight "
        "methods, on MNIST).",
        "The lowest point is nearer to IMA's model: its beta, 1 there and 0 at the other, minus 0.5, the mean over the "
        f"methods, is above 0 (95 % interval over methods). {one}",
        effect,
        [Number(name, value) for name, value in places.items()],
        cost,
        percent=True,
    )
    return [
        replace(near, key="near_lowest", changed="each method's number had to be above 0, without an interval"),
        replace(
            above(
                "FedASAM's line is the flattest (of eight, on MNIST).",
                "The largest minus the smallest loss on its line is smaller than on each other line: 1 minus the ratio "
                f"is above 0. Lines differ in length, so this is no curvature. {one}",
                [Number(SAID[name], 1 - flat["fedasam"] / flat[name]) for name in others],
                cost,
                percent=True,
            ),
            changed="numbers without an interval decided",
            key="flattest",
        ),
        replace(
            above(
                "FedASAM's line is the worst (of eight, on MNIST).",
                f"The lowest error on its line minus that on each other line is above 0. {one}",
                [Number(SAID[name], error["fedasam"] - error[name]) for name in others],
                cost,
                percent=True,
            ),
            changed="numbers without an interval decided",
            key="worst",
        ),
    ]


def _target(results: Path) -> float:
    """FedAdam's accuracy without IMA in Table 1, the mean over seeds."""
    own = list(_cells(results, "table1")["fedadam", "no average"].values())
    return math.fsum(own) / len(own)


def _reached(results: Path, scale: Comparisons) -> dict[str, dict[str, dict[str, int | None]]]:
    """By method, and by start of IMA ("" without), and by seed the first measured round with the target."""
    target, found = _target(results), {}
    for method in ("fma", "fedfa"):
        runs = {"": method, **{str(start): f"{method}-ima-start{start}" for start in scale.starts}}
        found[method] = {
            start: {
                seed: next((number for number, value in own.items() if value >= target), None)
                for seed, own in _curves(results, "fig7a", name).items()
            }
            for start, name in runs.items()
        }
    return found


def rounds_table(results: Path, scale: Comparisons) -> str:
    """Table 2's columns: rounds by seed."""
    found = _reached(results, scale)
    rows = [f"First measured round with {100 * _target(results):.2f} %, by seed:", ""]
    rows += ["| | FedAvg | FedFA |", "| --- | --- | --- |"]
    for start in ("", *map(str, scale.starts)):
        words = f"IMA from {start}" if start else "without IMA"
        own = [", ".join("never" if one is None else str(one) for one in found[m][start].values()) for m in found]
        rows.append(f"| {words} | {' | '.join(own)} |")
    return "\n".join(rows)


def rounds(results: Path, scale: Comparisons) -> list[Outcome]:
    """Table 2. Where neither a run nor its branches with IMA get there, they say nothing."""
    found, saved = _reached(results, scale), []
    claim = "With IMA the accuracy is reached in fewer rounds (FedAvg and FedFA, on MNIST)."
    rule = (
        f"The rounds without IMA minus those with it are above 0 ({OVER}). A run that never reaches it counts as if it "
        "did in the round after the last; a method in which fewer than two seeds reach it without or with IMA says "
        "nothing."
    )
    for method, own in found.items():
        filled = {
            start: {seed: float(scale.rounds + 1 if one is None else one) for seed, one in by_seed.items()}
            for start, by_seed in own.items()
        }
        for start in map(str, scale.starts):
            there = [seed for seed in own[""] if own[""][seed] is not None or own[start][seed] is not None]
            if len(there) > 1:
                saved.append(difference(f"{SAID[method]}, IMA from {start}:", filled[""], filled[start]))
    cost = _cost(results, 6)
    changed = "runs that never reached the accuracy counted as no gain"
    if not saved:
        why = f"fewer than two seeds of any method reach the accuracy in {scale.rounds} rounds; the paper has 400"
        longer = replace(cost, rounds=4 * cost.rounds, hours=4 * cost.hours)
        return [
            replace(untested(claim, rule, why, longer), changed=changed),
            untested("An earlier start of IMA reaches the accuracy in fewer rounds.", "", why, longer),
        ]
    early, late = map(str, scale.starts)
    sooner = [
        difference(
            SAID[method], *({s: float(own[one][s] or scale.rounds + 1) for s in own[one]} for one in (late, early))
        )
        for method, own in found.items()
    ]
    return [
        replace(above(claim, rule, saved, cost), changed=changed),
        above(
            "An earlier start of IMA reaches the accuracy in fewer rounds.",
            f"The rounds with the later start minus those with the earlier are above 0 ({OVER}).",
            sooner,
            cost,
        ),
    ]


def _drawn(results: Path, name: str, lines: Mapping[str, str], since: int) -> Any:
    """Curves, a line a setting: its mean over seeds, from a round on: earlier ones are all alike, and far below."""
    from dataclasses import replace

    from fedscope import Curves
    from fedscope.training.curves.bands import Band

    made = Curves.load(results / name)
    bands = [
        Band(words, tuple(curve for curve in made.runs if curve.run.startswith(f"{begins}-seed"))).curve
        for begins, words in lines.items()
    ]
    late = tuple(
        replace(one, round=one.round[kept], values={key: own[kept] for key, own in one.values.items()})
        for one in bands
        for kept in (one.round >= since,)
    )
    figure = replace(made, runs=late, measures=("test_accuracy",)).figure()
    figure.axes[0].set_xlim(left=since)
    return figure


def drawn_starts(results: Path, since: int) -> Any:
    """Figure 7a."""
    return _drawn(results, "fig7a", _names(results, "fig7a"), since)


def drawn_windows(results: Path, since: int) -> Any:
    """Figure 7b."""
    return _drawn(results, "fig7b", _names(results, "fig7b"), since)


def _names(results: Path, name: str) -> dict[str, str]:
    """Of each setting how its runs begin, and what it is called."""
    from fedscope import Curves

    begins = dict.fromkeys(curve.run.rpartition("-seed")[0] for curve in Curves.load(results / name).runs)
    said = {}
    for one in begins:
        words = one.replace("-ima", "").replace("-window", ", W ").replace("-start", ", IMA from ")
        method, _, rest = words.partition(",")
        said[one] = SAID[method] + ("," + rest if rest else "")
    return said


def drawn_lines(results: Path) -> Any:
    """Figure 7c."""
    from fedscope import Line

    return Line.load(results / "fig7c").figure()
