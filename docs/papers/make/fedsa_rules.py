"""The claims of FedSA's figures and tables, judged on short runs. Those rules that were changed after the results were
seen say so; the others were fixed before."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from costs import measured
from kept import shown
from learnt import CHANGED, Level, where_learnt
from outcomes import CONTRADICTED, Cost, Outcome, above, inside, over_bound, thinnest, untested
from verdicts import Number, difference

#: accuracy on all clients' own test parts: of the global model, and of the models that clients use
DEPLOYED, OWN = "all_client_deployed_accuracy_mean", "all_client_test_accuracy_mean"
SAID = {"fma": "FedAvg", "fedprox": "FedProx", "moon": "MOON", "fedgen": "FedGen", "fedntd": "FedNTD"}
SAID |= {"ditto": "Ditto", "fedbabu": "FedBABU", "fedala": "FedALA", "fedsa": "FedSA"}
#: the settings of Figure 6, in its order
VARIED = ("cv_threshold", "sim_threshold", "classes", "clusters")
#: the methods of Figure 2 beside FedSA, as their models are called in its results
OTHERS = {"FedAvg": "fma", "MOON": "moon/global", "FedALA": "fedala/global"}
#: our bounds: what is left of a spread that has gathered, an accuracy that hardly changes, what lies at a peak (s.d.),
#: seconds that hardly differ; then others, to show whether they matter
LEFT, LITTLE, AT_PEAK, HARDLY = 0.5, 0.01, 0.1, 0.05
LEFTS, PEAKS, HARDLIES = (0.25, 0.5, 0.75, 1.0), (0.1, 0.15, 0.2, 0.25, 0.3), (0.02, 0.05, 0.1, 0.2)
#: of the paper
ROUNDS, TABLE = 1000, "fedsa/table1-dir0.1-cifar10"


def cost_of(results: Path, runs: int) -> Cost:
    """Of one more seed of so many runs of the paper's rounds, on as many samples as here, at FedAvg's seconds."""
    from fedscope import Curves

    return measured(Curves.load(results / "fig5"), "dirichlet", runs, ROUNDS)


def reached(results: Path, names: Sequence[str]) -> dict[str, Level]:
    """By method the accuracy of the global model, and the paper's; FedSA's, which is not legible, as FedAvg's."""
    import fedscope

    table = fedscope.Comparison.load(results / "table1")
    paper = {one.row: one.value / 100 for one in fedscope.recipe(TABLE).published}
    found = {}
    for name in names:
        own = accuracies(table, name, DEPLOYED).values()
        mean = math.fsum(own) / len(own)
        found[SAID[name]] = Level(mean, paper[name]) if name in paper else Level(mean, paper["fma"], SAID["fma"])
    return found


def scattered(results: Path, seeds: int) -> dict[str, Number]:
    """Figure 1: the mean distance of the clients' models to their round's mean, last round over first round."""
    found = {}
    for data, where in (("iid", "IID"), ("dirichlet", "dirichlet:0.1")):
        ratios = {}
        for seed in range(seeds):
            own = spreads(results / "fig1-seeds", f"{data}-seed{seed}")
            ratios[seed] = own[max(own)] / own[min(own)]
        found[data] = interval(where, ratios)
    return found


def gathers(results: Path, seeds: int) -> list[Outcome]:
    """Figure 1."""
    found = scattered(results, seeds)
    cost = cost_of(results, 1)

    def judged(claim: str, data: str, words: str, ends: Callable[[float], tuple[float, float]]) -> Outcome:
        rule = (
            f"The mean distance of the clients' models to their round's mean, last round over first round, is {words} "
            f"{LEFT:g} (95 % interval over seeds). {LEFT:g} is our bound, and the t-SNE itself is not judged."
        )

        def judge(_: list[str]) -> Outcome:
            return over_bound(
                "left: …", LEFT, LEFTS, lambda bound: inside(claim, rule, [found[data]], *ends(bound), cost)
            )

        return replace(where_learnt(claim, rule, reached(results, ["fma"]), judge, cost), changed=CHANGED)

    return [
        judged(
            "On IID data the clients' models gather while they train.", "iid", "below", lambda bound: (-math.inf, bound)
        ),
        judged(
            "On skewed data the clients' models stay scattered.",
            "dirichlet",
            "above",
            lambda bound: (bound, math.inf),
        ),
    ]


def peaks(results: Path) -> list[Outcome]:
    """Figure 2."""
    missed, cost = distances(results), cost_of(results, 4)
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

    def at_peak(bound: float) -> Outcome:
        return above(
            "FedSA's global value lies at the main peak of the clients' density.",
            f"Of the {len(own)} skewed parameters more than half have it within {AT_PEAK:g} standard deviations of the "
            f"highest peak. The number is their share minus one half. {many} The bound is ours; if one client differs "
            f"from all others, a plain mean is off by {alone:.2f}.",
            [share("parameters", sum(one <= bound for one in own), len(own), less=0.5)],
            cost,
            percent=True,
        )

    off = above(
        "The values of FedAvg, MOON and FedALA are off the peak, where FedSA's is.",
        f"Of the {len(own)} skewed parameters more than half have FedSA's value nearer to the highest peak than the "
        f"other method's. The number is their share minus one half. What says the contrary is corrected for how many "
        f"there are, by exact binomial tests. {many}",
        nearer,
        cost,
        percent=True,
    )
    thin = thinnest(nearer, 0.0, math.inf)
    if off.kind == CONTRADICTED and thin:
        off = replace(off, why=f"{off.why}; {thin}; parameters of one network are not independent")
    return [
        replace(
            over_bound("within … s.d.", AT_PEAK, PEAKS, at_peak),
            changed="the bound alone decided, and whether another would turn the outcome was not said",
        ),
        replace(
            off,
            changed="numbers on the other side were not corrected for how many there are, and two contradicted it; "
            "then the correction took their intervals as normal, and it was undecided",
        ),
    ]


def best(results: Path) -> list[Outcome]:
    """Table 1, and the tables of more clients."""
    from fedscope import Comparison

    table = Comparison.load(results / "table1")
    others = {SAID[name]: name for name in table.rows_named if name != "fedsa"}
    claim = "FedSA is the best of the column (accuracy of the global model, as the paper states)."
    rule = (
        "Its accuracy minus every other method's is above 0 (95 % intervals, paired over seeds; what says the "
        "contrary is corrected for how many there are)."
    )
    cost = cost_of(results, len(others) + 1)

    def judge(there: list[str]) -> Outcome:
        found = [ahead(table, name, DEPLOYED) for said, name in others.items() if said in there]
        return above(claim, rule, found, cost, percent=True)

    return [
        replace(
            where_learnt(claim, rule, reached(results, table.rows_named), judge, cost, needed=(SAID["fedsa"],)),
            changed=f"{CHANGED}; a claim against FedBABU's fine-tuned models, which the paper has not, is dropped",
        ),
        untested(
            "FedSA is the best with 50 and 100 clients, too (Tables 2 and 5, five of six columns).",
            "",
            "not run",
            Cost(cost.seeds, 6 * cost.rounds, 6 * cost.hours),
        ),
    ]


def deviations(results: Path) -> list[Outcome]:
    """Figure 5, its third panel; what the paper says of it we know as stability alone, so the sentence is ours."""
    spread = f"{DEPLOYED.removesuffix('mean')}std".replace("accuracy", "error")
    found = _ends(results, spread)
    claim = "FedSA's accuracy deviates less over clients than FedAvg's."
    rule = (
        "In the last round the deviation over clients with FedAvg minus that with FedSA is above 0 (95 % interval, "
        "paired over seeds). A model that knows little deviates little, too."
    )
    number = difference("FedAvg minus FedSA", found["fma"], found["fedsa"])
    cost = cost_of(results, 2)

    def judge(_: list[str]) -> Outcome:
        return above(claim, rule, [number], cost, percent=True)

    outcome = where_learnt(claim, rule, reached(results, ["fma", "fedsa"]), judge, cost)
    return [replace(outcome, ours=True, changed="it was measured and not judged")]


def costs(results: Path) -> list[Outcome]:
    """Table 4: seconds of a round, and parameters that are moved."""
    seconds = _means(results, "seconds")
    own = seconds["fedsa"]
    ratio = {seed: own[seed] / seconds["fma"][seed] - 1 for seed in own}
    cost = cost_of(results, len(seconds))
    number = interval("FedSA over FedAvg, minus 1", ratio)
    slower = {
        SAID[name]: {seed: seconds[name][seed] / own[seed] - 1 for seed in own}
        for name in ("fedprox", "moon", "fedgen", "fedntd", "ditto")
    }
    moved = [_means(results, column) for column in ("parameters_down", "parameters_up")]
    same = [
        interval(words, {seed: of["fedsa"][seed] / of["fma"][seed] - 1 for seed in of["fedsa"]})
        for words, of in zip(("to clients", "from clients"), moved, strict=True)
    ]
    less = [
        interval("FedBABU", {seed: 1 - of["fedbabu"][seed] / of["fma"][seed] for seed in of["fedbabu"]}) for of in moved
    ]
    new = "it was measured and not judged"

    def near(bound: float) -> Outcome:
        return inside(
            "A round of FedSA takes hardly longer than one of FedAvg (0.248 and 0.246 minutes in the paper).",
            f"The mean seconds of FedSA's rounds are within {100 * HARDLY:g} % of FedAvg's (95 % interval over seeds; "
            "runs were made one after the other, on a machine with other work).",
            [number],
            -bound,
            bound,
            cost,
            percent=True,
        )

    return [
        replace(over_bound("within …", HARDLY, HARDLIES, near), changed=new),
        replace(
            above(
                "A round of FedProx, MOON, FedGen, FedNTD and Ditto takes longer than one of FedSA.",
                "The ratio of the mean seconds, minus 1, is above 0 for each (95 % intervals over seeds; what says "
                "the contrary is corrected for how many there are).",
                [interval(name, values) for name, values in slower.items()],
                cost,
                percent=True,
            ),
            changed=new,
        ),
        replace(
            inside(
                "FedSA moves as many parameters as FedAvg, and FedBABU fewer.",
                "Counted: FedSA's over FedAvg's, minus 1, is 0, and 1 minus FedBABU's over FedAvg's is above 0.",
                [Number(one.where, float(one.value == 0), 1, 1) for one in same]
                + [Number(one.where, float(one.value > 0), 1, 1) for one in less],
                0.5,
                math.inf,
                cost,
            ),
            changed=new,
            numbers=(*same, *less),
            percent=True,
        ),
    ]


def cost_table(results: Path) -> str:
    """Table 4: seconds of a round and parameters that are moved, beside the paper's minutes."""
    import fedscope

    paper = {one.row: one.value for one in fedscope.recipe("fedsa/table4").published if one.column == "a round"}
    seconds, down, up = (_means(results, column) for column in ("seconds", "parameters_down", "parameters_up"))
    rows = ["| method | the paper, minutes a round | here, seconds a round | parameters a round, millions |"]
    rows += ["| --- | --- | --- | --- |"]
    for name in SAID:
        moved = [math.fsum(of[name].values()) / len(of[name]) for of in (down, up)]
        rows.append(f"| {SAID[name]} | {paper[name]:.3f} | {shown(seconds[name], 1)} | {math.fsum(moved) / 1e6:.2f} |")
    return "\n".join(rows)


def _means(results: Path, column: str) -> dict[str, dict[str, float]]:
    """By method and seed the mean of a column of its curves."""
    import numpy as np

    return {name: {seed: float(np.nanmean(own)) for seed, own in of.items()} for name, of in _columns(results, column)}


def _ends(results: Path, column: str) -> dict[str, dict[str, float]]:
    """By method and seed the last measured value of a column of its curves."""
    import numpy as np

    return {
        name: {seed: float(own[~np.isnan(own)][-1]) for seed, own in of.items()}
        for name, of in _columns(results, column)
    }


def _columns(results: Path, column: str) -> list[tuple[str, dict[str, Any]]]:
    from fedscope import Curves

    found: dict[str, dict[str, Any]] = {}
    for curve in Curves.load(results / "fig5").runs:
        begins, _, seed = curve.run.rpartition("-seed")
        found.setdefault("fma" if begins == "dirichlet" else begins, {})[seed] = curve.values[column]
    return list(found.items())


def ahead(table: Any, name: str, measure: str) -> Number:
    """The accuracy of FedSA's global model minus another method's."""
    return difference(SAID[name], accuracies(table, "fedsa", DEPLOYED), accuracies(table, name, measure))


def ahead_of_equal(results: Path) -> Number:
    """The same minus that of FedAvg which weights all clients alike, as FedSA's mean does."""
    from fedscope import Comparison

    table, equal = (Comparison.load(results / name) for name in ("table1", "table1-equal"))
    return difference("FedAvg, equal weights", accuracies(table, "fedsa", DEPLOYED), accuracies(equal, "fma", DEPLOYED))


def threshold(results: Path, key: str) -> list[Outcome]:
    """Figure 6, one of its panels."""
    found = accuracy_by(results, key)
    usual = found[{"cv_threshold": 0.2, "sim_threshold": 0.2, "classes": 4, "clusters": 4}[key]].values()
    published = reached(results, ["fma"])[SAID["fma"]].paper
    level = {"FedSA": Level(math.fsum(usual) / len(usual), published, SAID["fma"])}
    cost = cost_of(results, len(found))

    def judged(claim: str, rule: str, judge: Callable[[str, str], Outcome]) -> Outcome:
        outcome = where_learnt(claim, rule, level, lambda _: judge(claim, rule), cost)
        return replace(outcome, changed=CHANGED)

    if key == "cv_threshold":
        leads = [difference(f"against {value:g}:", found[0.2], own) for value, own in found.items() if value != 0.2]
        return [
            judged(
                "cv_t is best at 0.2.",
                "Accuracy at 0.2 minus that at each other value is above 0 (95 % intervals, paired over seeds).",
                lambda claim, rule: above(claim, rule, leads, cost, percent=True),
            )
        ]
    if key == "sim_threshold":
        own = ranges(found)
        lead = difference("0.2 minus 0.3:", found[0.2], found[0.3])
        more = [
            difference(f"than {other}:", own, ranges(accuracy_by(results, other))) for other in VARIED if other != key
        ]
        return [
            judged(
                "A sim_t of 0.3 is worse than 0.2.",
                "Accuracy at 0.2 minus that at 0.3 is above 0 (95 % interval, paired over seeds).",
                lambda claim, rule: above(claim, rule, [lead], cost, percent=True),
            ),
            judged(
                "Of the four settings sim_t matters most.",
                "The largest minus the smallest accuracy over its values, minus the same for each other setting, is "
                "above 0 (95 % intervals, paired over seeds; every setting has as many values).",
                lambda claim, rule: above(claim, rule, more, cost, percent=True),
            ),
        ]
    name = {"classes": "C", "clusters": "S"}[key]
    spread = interval("range", ranges(found))
    return [
        judged(
            f"{name} matters little.",
            f"The largest minus the smallest accuracy over its values is at most {100 * LITTLE:g} point (95 % interval "
            "over seeds; the bound is ours).",
            lambda claim, rule: inside(claim, rule, [spread], -math.inf, LITTLE, cost, percent=True),
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
    ends = float(found.low) - less, float(found.high) - less
    return Number(where, hits / count - less, *ends, counted=(hits, count, less))


def median(values: Sequence[float]) -> float:
    """Of numbers."""
    import numpy as np

    return float(np.median(values))
