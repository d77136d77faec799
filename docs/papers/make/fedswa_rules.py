"""The claims of FedSWA's figures, and the rules by which they are judged; fixed before any result was seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kept import shown
from verdicts import SMALL, Number, Verdict, above_zero, difference, everywhere

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

#: of chance, ln 10: a model whose training loss is above has learnt too little for its flatness to say anything
LEARNT = 0.95 * math.log(10)

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


def methods(results: Path) -> list[Verdict]:
    """Table 2."""
    found = accuracies(results)
    rule = "In the last round {}'s accuracy minus {} is above 0 (95 % interval over seeds)."
    others = [name for name in CALLED if name != "fedmoswa"]
    return [
        above_zero(
            "FedMoSWA is the most accurate of the six.",
            rule.format("FedMoSWA", "each other's"),
            [difference(CALLED[name], found["fedmoswa"], found[name]) for name in others],
            percent=True,
        ),
        above_zero(
            "FedSWA is more accurate than FedAvg.",
            rule.format("FedSWA", "FedAvg's"),
            [difference("FedAvg", found["fedswa"], found["fma"])],
            percent=True,
        ),
    ]


def ablation(results: Path) -> list[Verdict]:
    """The ablation."""
    base = _setting(results, "ablation")
    verdicts = []
    for key, grid in GRIDS.items():
        others = [value for value in grid if value != BEST[key]]
        found = [difference(f"{key} {v:g}", base, _setting(results, "ablation", **{key: v})) for v in others]
        verdicts.append(
            above_zero(
                f"The best {key} is {BEST[key]:g}.",
                "In the last round its accuracy minus that of each other value of the grid is above 0 (95 % interval "
                "over seeds).",
                found,
                percent=True,
            )
        )
    slow, usual = (_setting(results, "ablation-all", gamma=value) for value in (GRIDS["gamma"][0], BEST["gamma"]))
    return [
        *verdicts,
        above_zero(
            f"With gamma {GRIDS['gamma'][0]:g} training is very slow.",
            f"The mean accuracy over all measured rounds with gamma {BEST['gamma']:g} minus that with "
            f"{GRIDS['gamma'][0]:g} is above 0 (95 % interval over seeds).",
            [difference("all measured rounds", usual, slow)],
            percent=True,
        ),
        above_zero(
            "FedMoSWA with rho = alpha = 1 is still more accurate than SCAFFOLD.",
            "In the last round the difference of the accuracies is above 0 (95 % interval over seeds).",
            [difference("SCAFFOLD", _row(results, "ablation", BOTH), _row(results, "ablation", "SCAFFOLD"))],
            percent=True,
        ),
    ]


@dataclass(frozen=True)
class Rise:
    """How far the training loss rises round a method's models.

    Attributes:
        rise: mean rise by seed, in nats; loss: the models' own.
    """

    rise: Seeds
    loss: Seeds

    @property
    def has_learnt(self) -> bool:
        """Whether all of its models have."""
        return max(self.loss.values()) < LEARNT


def _judged(claim: str, rule: str, found: Mapping[str, Rise], judge: Callable[[list[str]], Verdict]) -> Verdict:
    """The verdict on the baselines that have learnt; too small to say where FedMoSWA, or none of them, has."""
    learnt = [name for name in BASELINES if found[name].has_learnt]
    if learnt and found["fedmoswa"].has_learnt:
        return judge(learnt)
    losses = [Number(f"loss of {CALLED[name]}", max(own.loss.values())) for name, own in found.items()]
    return Verdict(claim, rule, SMALL, tuple(losses))


AMONG = (
    f"Only models whose training loss is below {LEARNT:.3g} nats, 95 % of chance, are compared; FedSWA, the paper's "
    "own method, is not a baseline."
)


def _rise(plane: Any) -> Rise:
    """Of a surface, over the points that are at most `INNER` of the half side away along each axis."""
    import numpy as np

    near = [np.abs(axis) <= INNER * np.abs(axis).max() for axis in (plane.b, plane.a)]
    origin = next(model for model in plane.models if model.role == "origin")
    return Rise({"0": float(plane.loss[np.ix_(*near)].mean()) - float(origin.loss)}, {"0": float(origin.loss)})


def _surfaces(results: Path) -> Mapping[str, Rise]:
    from fedscope import Plane

    return {name: _rise(Plane.load(results / f"surface-{name}")) for name in CALLED}


def surfaces(results: Path) -> list[Verdict]:
    """The surface."""
    found = _surfaces(results)
    claim = "FedMoSWA's training loss is visibly flatter than all baselines'."
    rule = (
        "The mean rise of the loss above the model's own, over the inner quarter of the surface, is smaller than each "
        f"baseline's: 1 minus the ratio is above 0. {AMONG} There is one surface each, so no interval."
    )

    def judge(baselines: list[str]) -> Verdict:
        ours = found["fedmoswa"].rise["0"]
        shares = [Number(CALLED[name], 1 - ours / found[name].rise["0"]) for name in baselines]
        return everywhere(claim, rule, shares, 0.0)

    return [_judged(claim, rule, found, judge)]


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


def rises(results: Path, names: Sequence[str]) -> list[Verdict]:
    """The rise in a ball, over seeds.

    Args:
        names: of the answers, one a seed.
    """
    found = rises_of(results, names)
    claim = "FedMoSWA's training loss is flatter than all baselines'."
    rule = f"Each baseline's mean rise minus FedMoSWA's, in nats, is above 0 (95 % interval over seeds). {AMONG}"

    def judge(baselines: list[str]) -> Verdict:
        ours = found["fedmoswa"].rise
        return above_zero(claim, rule, [difference(CALLED[name], found[name].rise, ours) for name in baselines])

    return [_judged(claim, rule, found, judge)]


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
