"""The claims of IMA's Figures 6 and 7 and Tables 1 to 3, and their rules; fixed before any result was seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ima_rules import nearer_to_ima
from kept import shown
from verdicts import NOT, REPRODUCED, SMALL, Number, Verdict, above_zero, difference, everywhere, within

if TYPE_CHECKING:
    from ima_methods import Comparisons

SAID = {"fma": "FedAvg", "fedprox": "FedProx", "fedasam": "FedASAM", "fedfa": "FedFA", "fednova": "FedNova"}
SAID |= {"fedadam": "FedAdam", "fedyogi": "FedYogi", "fedgma": "FedGMA"}
OVER = "95 % interval, paired over seeds"

Seeds = Mapping[str, float]


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


def varied(results: Path, name: str) -> list[Verdict]:
    """Figure 6, one of its panels."""
    cells, gains = _cells(results, f"fig6-{name}"), _gains(results, f"fig6-{name}")
    most = max(gains)
    if name == "skew":
        return [
            above_zero(
                "IMA gains if labels are skewed (alpha 0.05 and 0.1).",
                f"The gain is above 0 at each alpha except the largest ({OVER}).",
                [gain for value, gain in gains.items() if value != most],
                percent=True,
            ),
            _insignificant(
                f"At alpha {most:g} the gain is insignificant.",
                f"The interval of the gain contains 0 ({OVER}).",
                gains[most],
            ),
        ]
    if name == "participation":
        few, *_, many = sorted({column for _, column in cells}, key=lambda column: float(column.rpartition(" ")[2]))
        of_few, of_many = (
            {seed: cells["ima", own][seed] - cells["no average", own][seed] for seed in cells["ima", own]}
            for own in (few, many)
        )
        return [
            above_zero(
                "IMA gains more if fewer clients take part.",
                f"The gain at the lowest participation minus that at the highest is above 0 ({OVER}).",
                [difference(f"{few} minus {many}:", of_few, of_many)],
                percent=True,
            )
        ]
    return [
        above_zero(
            "IMA gains for any number of local epochs.",
            f"The gain is above 0 for each ({OVER}).",
            list(gains.values()),
            percent=True,
        )
    ]


def _insignificant(claim: str, rule: str, number: Number) -> Verdict:
    """Reproduced where the interval holds 0 and is at most two points wide to each side; wider says nothing."""
    if number.low > 0 or number.high < 0:
        verdict = NOT
    else:
        verdict = REPRODUCED if max(-number.low, number.high) <= 0.02 else SMALL
    return Verdict(claim, f"{rule[:-1]} and reaches at most two points to each side.", verdict, (number,), percent=True)


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


def methods(results: Path, names: Sequence[str]) -> list[Verdict]:
    """Table 1."""
    cells = _cells(results, "table1")
    gains = {name: difference(SAID[name], cells[name, "ima"], cells[name, "no average"]) for name in names}
    return [
        above_zero(
            "Each of the eight methods is more accurate with IMA.",
            f"The accuracy with IMA minus that without is above 0 ({OVER}, not corrected for the eight).",
            list(gains.values()),
            percent=True,
        )
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


def schedules(results: Path) -> list[Verdict]:
    """Table 3."""
    cells = {row.rpartition(" ")[2]: own for (row, _), own in _cells(results, "table3").items()}
    return [
        above_zero(
            "A rate that falls exponentially is the best of the schedules for FedAvg.",
            f"Its accuracy minus that of each other schedule is above 0 ({OVER}, not corrected for their number).",
            [difference(name, cells["exp"], own) for name, own in cells.items() if name != "exp"],
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


def precision(results: Path) -> list[Verdict]:
    """Ours: whether the pages may use it."""
    return [
        within(
            f"Training in bf16 changes the accuracy by less than two points on {data}.",
            f"The interval of the change is between -2 and 2 points ({OVER}).",
            [difference("bf16 minus float32:", *_precisions(results, name)[::-1])],
            -0.02,
            0.02,
            percent=True,
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


def starts(results: Path, scale: Comparisons) -> list[Verdict]:
    """Figure 7a."""
    early, late = (_late(_curves(results, "fig7a", f"fedfa-ima-start{start}"), scale.last) for start in scale.starts)
    return [
        above_zero(
            "With FedFA, IMA started at three quarters of the rounds ends above IMA started at half.",
            f"Over the last {scale.last} measured rounds the accuracy of the later start minus that of the earlier is "
            f"above 0 ({OVER}). The paper shows about 3 points.",
            [difference(f"{scale.starts[1]} minus {scale.starts[0]}:", late, early)],
            percent=True,
        )
    ]


def windows(results: Path, scale: Comparisons) -> list[Verdict]:
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
    return [
        above_zero(
            "A larger window is steadier.",
            f"We take the deviation of the accuracy's changes from one measured round to the next, from IMA's start "
            f"on. The smaller window's minus the larger's is above 0 ({OVER}).",
            [difference(f"start {start}:", rough(small, start), rough(large, start)) for start in scale.starts],
            percent=True,
        ),
        above_zero(
            "The largest window with the earliest start ends below all others.",
            f"Over the last {scale.last} measured rounds the accuracy of each other minus its own is above 0 ({OVER}).",
            [
                difference(f"window {window}, start {start}:", own, ends[large, first])
                for (window, start), own in ends.items()
                if (window, start) != (large, first)
            ],
            percent=True,
        ),
    ]


def lines(results: Path, methods: Sequence[str]) -> list[Verdict]:
    """Figure 7c."""
    from fedscope import Line

    line = Line.load(results / "fig7c")
    flat = {name: float(line.loss[i].max() - line.loss[i].min()) for i, name in enumerate(methods)}
    error = {name: float(line.error[i].min()) for i, name in enumerate(methods)}
    others = [name for name in methods if name != "fedasam"]
    return [
        nearer_to_ima([(SAID[name], line, i) for i, name in enumerate(methods)]),
        everywhere(
            "FedASAM's line is the flattest.",
            "The largest minus the smallest loss on its line is smaller than on each other line: 1 minus the ratio "
            "is above 0. There is one seed, so no interval.",
            [Number(SAID[name], 1 - flat["fedasam"] / flat[name]) for name in others],
            0.0,
        ),
        everywhere(
            "FedASAM's line is the worst.",
            "The lowest error on its line minus that on each other line is above 0. There is one seed, so no interval.",
            [Number(SAID[name], error["fedasam"] - error[name]) for name in others],
            0.0,
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


def rounds(results: Path, scale: Comparisons) -> list[Verdict]:
    """Table 2. A run that never gets there counts as if it did in the round after the last, which favours it."""
    found, saved = _reached(results, scale), []
    for method, own in found.items():
        filled = {
            start: {seed: float(scale.rounds + 1 if one is None else one) for seed, one in by_seed.items()}
            for start, by_seed in own.items()
        }
        for start in map(str, scale.starts):
            saved.append(difference(f"{SAID[method]}, IMA from {start}:", filled[""], filled[start]))
    return [
        above_zero(
            "With IMA the accuracy is reached in fewer rounds.",
            f"The rounds without IMA minus those with it are above 0 ({OVER}). A run that never reaches it counts as "
            "if it did in the round after the last.",
            saved,
        )
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
