"""The claims of FedSA's figures and table, and the rules by which they are judged; fixed before any result was seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verdicts import Number, Verdict, above_zero, difference, within

#: accuracy on all clients' own test parts: of the global model, and of the models that clients use
DEPLOYED, OWN = "all_client_deployed_accuracy_mean", "all_client_test_accuracy_mean"
SAID = {"fma": "FedAvg", "fedprox": "FedProx", "moon": "MOON", "fedgen": "FedGen", "fedntd": "FedNTD"}
SAID |= {"ditto": "Ditto", "fedbabu": "FedBABU", "fedala": "FedALA", "fedsa": "FedSA"}
#: the settings of Figure 6, in its order
VARIED = ("cv_threshold", "sim_threshold", "classes", "clusters")
#: the methods of Figure 2 beside FedSA, as their models are called in its results
OTHERS = {"FedAvg": "fma", "MOON": "moon/global", "FedALA": "fedala/global"}
#: our bounds: what is left of a spread that has gathered, an accuracy that hardly changes, what lies at a peak (s.d.)
LEFT, LITTLE, AT_PEAK = 0.5, 0.01, 0.1


def gathers(results: Path, seeds: int) -> list[Verdict]:
    """Figure 1."""

    def left(data: str) -> Number:
        ratios = {}
        for seed in range(seeds):
            found = spreads(results / "fig1-seeds", f"{data}-seed{seed}")
            ratios[seed] = found[max(found)] / found[min(found)]
        return interval({"iid": "IID", "dirichlet": "dirichlet:0.1"}[data], ratios)

    measured = "The mean distance of the clients' models to their round's mean, last round over first round, is"
    ending = f"(95 % interval over seeds). {LEFT:g} is our bound, and the t-SNE itself is not judged."
    return [
        within(
            "On IID data the clients' models gather while they train.",
            f"{measured} below {LEFT:g} {ending}",
            [left("iid")],
            -math.inf,
            LEFT,
        ),
        within(
            "On skewed data the clients' models stay scattered.",
            f"{measured} above {LEFT:g} {ending}",
            [left("dirichlet")],
            LEFT,
            math.inf,
        ),
    ]


def peaks(results: Path) -> list[Verdict]:
    """Figure 2."""
    missed = distances(results)
    own = missed["FedSA"]
    many = (
        "The 95 % interval is by Clopper and Pearson, for one round of one seed; it takes parameters as independent, "
        "so it may be too narrow."
    )
    alone = 1 / (clients(results) - 1) ** 0.5
    nearer = []
    for name in OTHERS:
        wins = sum(mine < other for mine, other in zip(own, missed[name], strict=True))
        nearer.append(share(f"than {name}'s", wins, len(own), less=0.5))
    return [
        above_zero(
            "FedSA's global value lies at the main peak of the clients' density.",
            f"Of the {len(own)} skewed parameters more than half have it within {AT_PEAK:g} standard deviations of the "
            f"highest peak. The number is their share minus one half. {many} The bound of {AT_PEAK:g} is ours; if one "
            f"client differs from all others, a plain mean is off by more, {alone:.2f}.",
            [share("parameters", sum(one <= AT_PEAK for one in own), len(own), less=0.5)],
            percent=True,
        ),
        above_zero(
            "The values of FedAvg, MOON and FedALA are off the peak.",
            f"Of the {len(own)} skewed parameters more than half have FedSA's value nearer to the highest peak than "
            f"the other method's. The number is their share minus one half. {many}",
            nearer,
            percent=True,
        ),
    ]


def best(results: Path) -> list[Verdict]:
    """Table 1."""
    from fedscope import Comparison

    table = Comparison.load(results / "table1")
    others = [name for name in table.rows_named if name != "fedsa"]
    rule = "is above 0 (95 % intervals, paired over seeds, not corrected for their number)."
    return [
        above_zero(
            "FedSA is the best of the column if accuracy is the global model's, as the paper states.",
            f"Its accuracy minus every other method's {rule}",
            [ahead(table, name, DEPLOYED) for name in others],
            percent=True,
        ),
        above_zero(
            "Our claim, not the paper's: FedSA is also better than FedBABU's fine-tuned models. To us the paper's "
            "numbers for FedBABU look like those.",
            f"The accuracy of FedSA's global model minus that of FedBABU's fine-tuned models {rule}",
            [ahead(table, "fedbabu", OWN)],
            percent=True,
        ),
    ]


def ahead(table: Any, name: str, measure: str) -> Number:
    """The accuracy of FedSA's global model minus another method's."""
    return difference(SAID[name], accuracies(table, "fedsa", DEPLOYED), accuracies(table, name, measure))


def ahead_of_equal(results: Path) -> Number:
    """The same minus that of FedAvg which weights all clients alike, as FedSA's mean does."""
    from fedscope import Comparison

    table, equal = (Comparison.load(results / name) for name in ("table1", "table1-equal"))
    return difference("FedAvg, equal weights", accuracies(table, "fedsa", DEPLOYED), accuracies(equal, "fma", DEPLOYED))


def threshold(results: Path, key: str) -> list[Verdict]:
    """Figure 6, one of its panels."""
    found = accuracy_by(results, key)
    if key == "cv_threshold":
        others = [value for value in found if value != 0.2]
        return [
            above_zero(
                "cv_t is best at 0.2.",
                "Accuracy at 0.2 minus that at each other value is above 0 (95 % intervals, paired over seeds).",
                [difference(f"against {value:g}:", found[0.2], found[value]) for value in others],
                percent=True,
            )
        ]
    if key == "sim_threshold":
        own = ranges(found)
        return [
            above_zero(
                "A sim_t of 0.3 is worse than 0.2.",
                "Accuracy at 0.2 minus that at 0.3 is above 0 (95 % interval, paired over seeds).",
                [difference("0.2 minus 0.3:", found[0.2], found[0.3])],
                percent=True,
            ),
            above_zero(
                "Of the four settings sim_t matters most.",
                "The largest minus the smallest accuracy over its values, minus the same for each other setting, is "
                "above 0 (95 % intervals, paired over seeds; every setting has as many values).",
                [
                    difference(f"than {other}:", own, ranges(accuracy_by(results, other)))
                    for other in VARIED
                    if other != key
                ],
                percent=True,
            ),
        ]
    name = {"classes": "C", "clusters": "S"}[key]
    return [
        within(
            f"{name} matters little.",
            f"The largest minus the smallest accuracy over its values is at most {100 * LITTLE:g} point (95 % interval "
            "over seeds; the bound is ours).",
            [interval("range", ranges(found))],
            -math.inf,
            LITTLE,
            percent=True,
        )
    ]


def spreads(answer: Path, run: str) -> dict[int, float]:
    """Of a run, by round: the mean distance of the clients' models to their round's mean."""
    from fedscope import Embedding

    return {number: mean for name, number, mean in Embedding.load(answer).spreads if name == run}


def distances(results: Path) -> dict[str, list[float]]:
    """Of each method how far its values lie from the highest peak, in standard deviations of the clients."""
    from fedscope import Parameters

    names = {**OTHERS, "FedSA": "fedsa/global"}
    known = [one for one in Parameters.load(results / "fig2-many").summaries if one.mode is not None]
    kept = [one for one in known if all(which in one.to_mode for which in names.values())]
    return {name: [abs(one.to_mode[which]) for one in kept] for name, which in names.items()}


def clients(results: Path) -> int:
    """Of the densities of Figure 2."""
    from fedscope import Parameters

    return len(Parameters.load(results / "fig2-many").runs[0].client_ids)


def plain(results: Path) -> tuple[list[float], int, int]:
    """Of Figure 2's parameters: how far the clients' plain mean lies from the highest peak, in their standard
    deviations; of how many FedSA's value is another than that mean; and in how many one client stands alone."""
    import numpy as np

    from fedscope import Parameters

    made = Parameters.load(results / "fig2-many")
    values, own = made.runs[0].clients, next(run for run in made.runs if run.run == "fedsa")
    mean, deviation, count = values.mean(axis=0), values.std(axis=0), len(values)
    missed = [abs(mean[i] - one.mode) / deviation[i] for i, one in enumerate(made.summaries) if one.mode is not None]
    # the server's mean is stored in single precision
    another = int((np.abs(own.models["global"] - mean) > 1e-3 * deviation).sum())
    most = (count - 2) / (count - 1) ** 0.5
    alone = sum(one.skewness is not None and abs(one.skewness) > 0.99 * most for one in made.summaries)
    return missed, another, alone


def accuracies(table: Any, row: str, measure: str) -> Mapping[str, float]:
    """By seed."""
    (column,) = {column for column, _ in table.columns_named}
    values: Mapping[str, float] = table.cell(row, column, measure).values
    return values


def accuracy_by(results: Path, key: str) -> dict[float, Mapping[str, float]]:
    """Of a setting of Figure 6: by its value the accuracy by seed, values ascending."""
    from fedscope import Comparison

    table = Comparison.load(results / f"fig6-{key}")
    places = {column: float(value) for column, (value, _) in table.attrs["places"].items()}
    found = {places[cell.column]: cell.values for cell in table.cells if cell.measure == DEPLOYED}
    return dict(sorted(found.items()))


def ranges(found: Mapping[float, Mapping[str, float]]) -> dict[str, float]:
    """By seed the greatest minus the least accuracy."""
    seeds = next(iter(found.values()))
    return {seed: max(own[seed] for own in found.values()) - min(own[seed] for own in found.values()) for seed in seeds}


def interval(where: str, values: Mapping[Any, float]) -> Number:
    """A mean over seeds."""
    return difference(where, values, dict.fromkeys(values, 0.0))


def share(where: str, hits: int, count: int, less: float = 0.0) -> Number:
    """Hits over count, minus a number.

    >>> share("x", 9, 10, less=0.5)
    Number(where='x', value=0.4, low=0.05..., high=0.49...)
    """
    from scipy.stats import binomtest

    found = binomtest(hits, count).proportion_ci(0.95, method="exact")
    return Number(where, hits / count - less, float(found.low) - less, float(found.high) - less)


def median(values: Sequence[float]) -> float:
    """Of numbers."""
    import numpy as np

    return float(np.median(values))
