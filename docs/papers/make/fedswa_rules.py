"""The claims of FedSWA's figures, judged on short runs. Those rules that were changed after the results were seen say
so; the others were fixed before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from costs import at_length
from kept import shown
from learnt import CHANGED, Level, where_learnt
from outcomes import Outcome, above
from verdicts import Number, difference

#: methods by the name of their run, and what the paper calls them
CALLED: Mapping[str, str] = {
    "fma": "FedAvg",
    "fedsam": "FedSAM",
    "scaffold": "SCAFFOLD",
    "mofedsam": "MoFedSAM",
    "fedswa": "FedSWA",
    "fedmoswa": "FedMoSWA",
}
#: FedSWA is the paper's own, and no baseline of FedMoSWA's
BASELINES = ("fma", "fedsam", "scaffold", "mofedsam")
#: the paper's best values, and the recipe's grids
BEST: Mapping[str, float] = {"rho": 0.1, "alpha": 1.5, "gamma": 0.2}
GRIDS: Mapping[str, tuple[float, ...]] = {
    "rho": (0.05, 0.1, 0.5, 1.0),
    "alpha": (1.0, 1.25, 1.5, 2.0),
    "gamma": (0.05, 0.1, 0.2, 0.5),
}
#: the row of the ablation in which both are 1
BOTH = "rho = alpha = 1"
#: of a surface, how much of its half side round the model is looked at
INNER = 0.5
#: rounds of the recipes
ROUNDS = 1000

Seeds = Mapping[str, float]


def _row(results: Path, name: str, row: str) -> Seeds:
    """Of a table with one cell a row."""
    from fedscope import Comparison

    return next(cell.values for cell in Comparison.load(results / name).cells if cell.row == row)


def _setting(results: Path, name: str, **changed: float) -> Seeds:
    """FedMoSWA with the paper's values but for those changed."""
    from fedscope import Comparison

    rho, alpha, gamma = ({**BEST, **changed}[key] for key in BEST)
    column = f"lr_floor {rho:g}, gamma {gamma:g}, alpha {alpha:g}"
    cell = Comparison.load(results / name).cell("fedmoswa", column, "test_accuracy")
    assert cell is not None, column
    return cell.values


def accuracies(results: Path) -> Mapping[str, Seeds]:
    """Accuracy in the last round by method and seed; SCAFFOLD and FedMoSWA are rows of the ablation."""
    return {
        "fma": _row(results, "methods", "fma"),
        "fedsam": _row(results, "methods", "fedsam"),
        "scaffold": _row(results, "ablation", "SCAFFOLD"),
        "mofedsam": _row(results, "methods", "mofedsam"),
        "fedswa": _row(results, "methods", "fedswa"),
        "fedmoswa": _setting(results, "ablation"),
    }


def reached(results: Path, names: Sequence[str]) -> dict[str, Level]:
    """By method its accuracy, and that of our notes on the paper."""
    cells, found = _published("fedswa/table2-cifar10-resnet18"), accuracies(results)
    return {
        CALLED[name]: Level(math.fsum(found[name].values()) / len(found[name]), cells[name] / 100) for name in names
    }


def leads(results: Path) -> dict[str, Number]:
    """Table 2: FedMoSWA's accuracy minus each other method's."""
    found = accuracies(results)
    return {
        CALLED[name]: difference(CALLED[name], found["fedmoswa"], found[name]) for name in CALLED if name != "fedmoswa"
    }


def lead_of_fedswa(results: Path) -> Number:
    """Table 2: FedSWA's accuracy minus FedAvg's."""
    found = accuracies(results)
    return difference("FedAvg", found["fedswa"], found["fma"])


def methods(results: Path) -> list[Outcome]:
    """Table 2."""
    rule = "In the last round {}'s accuracy minus {} is above 0 (95 % interval over seeds)."
    most, better = "FedMoSWA is the most accurate of the six.", "FedSWA is more accurate than FedAvg."
    six, two = at_length(6, ROUNDS), at_length(2, ROUNDS)
    first, second = rule.format("FedMoSWA", "each other's"), rule.format("FedSWA", "FedAvg's")

    def judge(there: list[str]) -> Outcome:
        own = [one for name, one in leads(results).items() if name in there]
        return above(most, first, own, six, percent=True)

    def judge_two(_: list[str]) -> Outcome:
        return above(better, second, [lead_of_fedswa(results)], two, percent=True)

    found = (
        where_learnt(most, first, reached(results, list(CALLED)), judge, six, needed=(CALLED["fedmoswa"],)),
        where_learnt(better, second, reached(results, ["fma", "fedswa"]), judge_two, two),
    )
    return [replace(one, changed=CHANGED) for one in found]


def lead_of_both(results: Path) -> Number:
    """The ablation: FedMoSWA's accuracy with rho = alpha = 1 minus SCAFFOLD's."""
    return difference("SCAFFOLD", _row(results, "ablation", BOTH), _row(results, "ablation", "SCAFFOLD"))


def ablation(results: Path) -> list[Outcome]:
    """The ablation."""
    base = _setting(results, "ablation")
    level = reached(results, ["fedmoswa"])
    found = []

    def judged(claim: str, rule: str, numbers: Sequence[Number], runs: int) -> None:
        cost = at_length(runs, ROUNDS)
        outcome = where_learnt(claim, rule, level, lambda _: above(claim, rule, numbers, cost, percent=True), cost)
        found.append(replace(outcome, changed=CHANGED))

    for key, grid in GRIDS.items():
        others = [value for value in grid if value != BEST[key]]
        judged(
            f"The best {key} is {BEST[key]:g}.",
            "In the last round its accuracy minus that of each other value of the grid is above 0 (95 % interval over "
            "seeds).",
            [difference(f"{key} {v:g}", base, _setting(results, "ablation", **{key: v})) for v in others],
            len(grid),
        )
    slow, usual = (_setting(results, "ablation-all", gamma=value) for value in (GRIDS["gamma"][0], BEST["gamma"]))
    judged(
        f"With gamma {GRIDS['gamma'][0]:g} training is very slow.",
        f"The mean accuracy over all measured rounds with gamma {BEST['gamma']:g} minus that with "
        f"{GRIDS['gamma'][0]:g} is above 0 (95 % interval over seeds).",
        [difference("all measured rounds", usual, slow)],
        2,
    )
    judged(
        "FedMoSWA with rho = alpha = 1 is still more accurate than SCAFFOLD.",
        "In the last round the difference of the accuracies is above 0 (95 % interval over seeds).",
        [lead_of_both(results)],
        2,
    )
    return found


@dataclass(frozen=True)
class Rise:
    """How far the training loss rises round a method's models.

    Attributes:
        rise: mean rise by seed, in nats; loss: the models' own.
    """

    rise: Seeds
    loss: Seeds


def _rise(plane: Any) -> Rise:
    """Of a surface, over the points that are at most `INNER` of the half side away along each axis."""
    import numpy as np

    near = [np.abs(axis) <= INNER * np.abs(axis).max() for axis in (plane.b, plane.a)]
    origin = next(model for model in plane.models if model.role == "origin")
    return Rise({"0": float(plane.loss[np.ix_(*near)].mean()) - float(origin.loss)}, {"0": float(origin.loss)})


def _surfaces(results: Path) -> Mapping[str, Rise]:
    from fedscope import Plane

    return {name: _rise(Plane.load(results / f"surface-{name}")) for name in CALLED}


def rises_of(results: Path, names: Sequence[str]) -> Mapping[str, Rise]:
    """The mean rise in a ball; runs stand in the order of `CALLED`."""
    from fedscope import Sharpness

    answers = [Sharpness.load(results / name).models for name in names]

    def measured(place: int, method: str, measure: str) -> Seeds:
        values = {}
        for seed, models in enumerate(answers):
            one = models[place].measure(measure)
            assert models[place].run.startswith(method), (models[place].run, method)
            assert one is not None, measure
            values[str(seed)] = math.nan if one.value is None else one.value
        return values

    return {
        method: Rise(measured(i, method, "filter_mean"), measured(i, method, "loss")) for i, method in enumerate(CALLED)
    }


def rises(results: Path, names: Sequence[str]) -> list[Outcome]:
    """The rise in a ball, over seeds.

    Args:
        names: of the answers, one a seed.
    """
    found, cost = rises_of(results, names), at_length(5, ROUNDS)
    claim = "FedMoSWA's training loss is flatter than all baselines'."
    rule = (
        "Each baseline's mean rise minus FedMoSWA's, in nats, is above 0 (95 % interval over seeds). FedSWA, the "
        "paper's own method, is not a baseline."
    )

    def judge(there: list[str]) -> Outcome:
        ours = found["fedmoswa"].rise
        own = [difference(CALLED[name], found[name].rise, ours) for name in BASELINES if CALLED[name] in there]
        return above(claim, rule, own, cost)

    reach = reached(results, [*BASELINES, "fedmoswa"])
    outcome = where_learnt(claim, rule, reach, judge, cost, needed=(CALLED["fedmoswa"],))
    return [
        replace(
            outcome,
            changed="one surface decided the same claim again, without an interval; what has learnt was 95 % of "
            "chance's training loss",
        )
    ]


def _published(recipe: str) -> Mapping[str, float]:
    import fedscope

    return {one.row: one.value for one in fedscope.recipe(recipe).published}


def methods_table(results: Path) -> str:
    """Table 2: ours beside the paper's cells."""
    cells = _published("fedswa/table2-cifar10-resnet18")
    rows = ["| accuracy, % | here | paper |", "| --- | --- | --- |"]
    rows += [f"| {CALLED[name]} | {shown(own)} | {cells[name]:.1f} |" for name, own in accuracies(results).items()]
    return "\n".join(rows)


def ablation_table(results: Path) -> str:
    """Our numbers; of the paper's our notes have the last two."""
    cells = _published("fedswa/ablation")
    rows = ["| FedMoSWA, all else at the paper's best | accuracy, % | all measured rounds | paper |"]
    rows += ["| --- | --- | --- | --- |"]
    for key, grid in GRIDS.items():
        for value in grid:
            last, every = (_setting(results, name, **{key: value}) for name in ("ablation", "ablation-all"))
            best = "stated as best" if value == BEST[key] else ""
            rows.append(f"| {key} {value:g} | {shown(last)} | {shown(every)} | {best} |")
    for row in (BOTH, "SCAFFOLD"):
        last, every = (_row(results, name, row) for name in ("ablation", "ablation-all"))
        rows.append(f"| {row} | {shown(last)} | {shown(every)} | {cells[row]:.1f} (CIFAR-100) |")
    return "\n".join(rows)


def surfaces_table(results: Path) -> str:
    """The mean rises of the surfaces."""
    return _risen(_surfaces(results))


def rises_table(results: Path, names: Sequence[str]) -> str:
    """The mean rises in the ball."""
    return _risen(rises_of(results, names))


def _risen(found: Mapping[str, Rise]) -> str:
    rows = [f"| {' | '.join(('', *(CALLED[name] for name in found)))} |", "| --- |" + " --- |" * len(found)]
    for words, of in (("mean rise, nats", "rise"), ("training loss of the model", "loss")):
        rows.append(f"| {words} | {' | '.join(shown(getattr(own, of), 1, '.3g') for own in found.values())} |")
    return "\n".join(rows)
