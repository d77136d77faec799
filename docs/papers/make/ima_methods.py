"""IMA: its comparisons of methods, Figures 6 and 7 and Tables 1 to 3; what is trained for them and asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import ima_methods_rules as rules
from paper import Figure
from work import Asked, Swept

RECIPE = "ima/table1-fmnist-cnn-dir0.1"
#: FedAvg alone on CIFAR-10, where the size that two cores allow teaches too little to compare methods
HARD = (
    "--recipe ima/table1-cifar10-cnn-dir0.1 method=fma run.precision=float32,bf16 --scale 0.2 "
    "--set data.name=npz:cifar10.npz --set data.clients=20 --set run.rounds=20 --set run.evaluate_every=4 "
    "--set run.evaluate_clients=0 --set record.globals=last:1 --seeds 0..2"
)
METHODS = ("fma", "fedprox", "fedasam", "fedfa", "fednova", "fedadam", "fedyogi", "fedgma")
#: FedAvg as it stands among the methods
USUAL = "ima/methods/runs/fma"


@dataclass(frozen=True)
class Comparisons:
    """How large the runs are: the recipe's settings but for these.

    Attributes:
        data: settings of ``sweep``; share: of the training samples; rounds: R; every: how often models are tested;
            last: of how many measured rounds accuracies are the mean; seeds: of each setting; precise: rounds in which
            bf16 is compared with float32; hard: words of the sweep that shows what CIFAR-10 gives.
        alphas, participations, epochs: of Figure 6, beside the usual ones; windows: of Figure 7b.
    """

    data: str = "--set data.name=npz:mnist.npz"
    share: float = 0.1
    rounds: int = 100
    every: int = 4
    last: int = 3
    seeds: int = 3
    precise: int = 60
    hard: str = HARD
    alphas: tuple[float, ...] = (0.05, 0.8)
    participations: tuple[float, ...] = (0.05, 0.2)
    epochs: tuple[int, ...] = (3, 10)
    windows: tuple[int, ...] = (3, 9)

    @property
    def starts(self) -> tuple[int, int]:
        """R/2 and 3R/4, as 200 and 300 of the paper's 400."""
        return self.rounds // 2, 3 * self.rounds // 4

    @property
    def since(self) -> int:
        """The first round of figures over rounds: four tenths of R, a while before IMA."""
        return 2 * self.rounds // 5

    @property
    def period(self) -> int:
        """Of a schedule, R/20, as 20 of the paper's 400."""
        return max(2, self.rounds // 20)

    def words(self, rounds: int | None = None) -> str:
        """Of all sweeps."""
        return (
            f"{self.data} --set data.share={self.share:g} --set run.rounds={rounds or self.rounds} "
            f"--set run.evaluate_every={self.every} --set run.evaluate_clients=0 --set record.globals=last:1"
        )


QUICK = Comparisons(
    "--set data.name=digits --set model.name=mlp --set data.clients=20",
    share=1.0,
    rounds=20,
    every=2,
    seeds=2,
    precise=4,
    hard="--recipe ima/table1-cifar10-cnn-dir0.1 method=fma run.precision=float32,bf16 --set data.name=digits "
    "--set model.name=mlp --set data.clients=20 --set run.rounds=4 --set run.evaluate_every=2 "
    "--set run.evaluate_clients=0 --set record.globals=last:1 --seeds 0..1",
)


def usual(average: str, scale: Comparisons) -> list[str]:
    """FedAvg's runs of the recipe itself."""
    return [f"{USUAL}{average}-seed{seed}" for seed in range(scale.seeds)]


def runs(scale: Comparisons) -> tuple[Swept, ...]:
    """The effect of bf16 first, then all else in bf16."""
    seeds, early = f"--seeds 0..{scale.seeds - 1}", ",".join(map(str, scale.starts))
    both = "method=fma average.method=none,ima"

    def swept(name: str, recipe: str, keys: str) -> Swept:
        words = f"--recipe {recipe} {keys} {scale.words()} --set run.precision=bf16 {seeds}"
        return Swept(f"ima/{name}", " ".join(words.split()))

    windows, epochs, participations = (
        ",".join(map(str, own)) for own in (scale.windows, scale.epochs, scale.participations)
    )
    alphas = ",".join(f"dirichlet:{alpha:g}" for alpha in scale.alphas)
    ima = "average.method=ima"
    schedules = "average.explore=exp,const,cyclic,epochs,none"
    return (
        Swept("ima/precision", scale.hard),
        Swept(
            "ima/precise",
            f"--recipe {RECIPE} method=fma run.precision=float32,bf16 {scale.words(scale.precise)} {seeds}",
        ),
        swept("methods", RECIPE, ""),
        swept("explore", "ima/table3", f"method=fma {ima} {schedules} --set average.explore_period={scale.period}"),
        swept("starts", "ima/fig7a", f"method=fma,fedfa {ima} average.start={early}"),
        swept("windows", "ima/fig7b", f"method=fma {ima} average.window={windows} average.start={early}"),
        swept("skew", "ima/fig6a", f"{both} data.partition={alphas}"),
        swept("participation", "ima/fig6b", f"{both} run.participation={participations}"),
        swept("epochs", "ima/fig6c", f"{both} client.epochs={epochs}"),
    )


def asked(scale: Comparisons) -> tuple[Asked, ...]:
    """Tables, curves and lines of these sweeps."""
    plain, moving = usual("", scale), usual("-ima", scale)
    fedfa = [run.replace("fma", "fedfa") for run in plain]
    last, late = f"--last {scale.last}", scale.rounds
    seeds = range(scale.seeds)
    started = [
        f"ima/starts/runs/{method}-ima-start{start}-seed{seed}"
        for method in ("fma", "fedfa")
        for start in scale.starts
        for seed in seeds
    ]
    widths = [
        f"ima/windows/runs/fma-ima-window{window}-start{start}-seed{seed}"
        for window in scale.windows
        for start in scale.starts
        for seed in seeds
    ]
    # an average that is taken before the server's step makes no model of its own: what leaves the server is IMA's
    inside = ("fedadam", "fedyogi")
    pairs = [
        f"ima/methods/runs/{method}-ima-seed0@{late}/{'global' if method in inside else 'averaged'} "
        f"ima/methods/runs/{method}-seed0@{late}/global"
        for method in METHODS
    ]

    def varied(name: str, key: str) -> Asked:
        words = f"table {' '.join([*plain, *moving])} ima/{name} --rows average.method --columns {key} {last}"
        return Asked(f"fig6-{name}", words, ("ima/methods", f"ima/{name}"))

    def curves(name: str, of: Sequence[str], needs: Sequence[str]) -> Asked:
        return Asked(name, f"curves {' '.join(of)} --measure test_accuracy {last}", tuple(needs))

    return (
        Asked("precision", f"table ima/precision --rows run.precision {last}", ("ima/precision",)),
        Asked("precise", f"table ima/precise --rows run.precision {last}", ("ima/precise",)),
        Asked("table1", f"table ima/methods --rows method --columns average.method {last}", ("ima/methods",)),
        Asked("fig7c", f"line {' '.join(pairs)}", ("ima/methods",)),
        Asked("table3", f"table ima/explore --rows average.explore {last}", ("ima/explore",)),
        curves("fig7a", [*started, *plain, *fedfa], ("ima/starts", "ima/methods")),
        varied("skew", "data.partition"),
        varied("epochs", "client.epochs"),
        varied("participation", "run.participation"),
        curves("fig7b", widths, ("ima/windows",)),
    )


def figures(scale: Comparisons) -> tuple[Figure, ...]:
    """In the paper's order, the tables after the figures."""
    seeds = f"mean over the last {scale.last} measured rounds, ± deviation over {scale.seeds} seeds"
    six = (
        ("skew", "a", "the skew of the labels"),
        ("participation", "b", "participation"),
        ("epochs", "c", "local epochs"),
    )
    return (
        *(
            Figure(
                f"fig6{part}",
                f"Figure 6{part}: accuracy against {words}, FedAvg without and with IMA",
                f"{seeds[0].upper()}{seeds[1:]}. Only FedAvg of the paper's eight methods.",
                (f"fig6-{name}",),
                table=partial(rules.varied_table, name=name),
                judged=partial(rules.varied, name=name),
            )
            for name, part, words in six
        ),
        Figure(
            "fig7a",
            "Figure 7a: accuracy over rounds for several starts of IMA",
            f"FedAvg and FedFA, IMA from rounds {scale.starts[0]} and {scale.starts[1]} of {scale.rounds} on; means "
            f"over {scale.seeds} seeds, not smoothed, from round {scale.since} on.",
            ("fig7a",),
            partial(rules.drawn_starts, since=scale.since),
            judged=partial(rules.starts, scale=scale),
        ),
        Figure(
            "fig7b",
            "Figure 7b: accuracy over rounds for several windows of IMA",
            f"FedAvg, windows {' and '.join(map(str, scale.windows))}; means over {scale.seeds} seeds, not smoothed, "
            f"from round {scale.since} on.",
            ("fig7b",),
            partial(rules.drawn_windows, since=scale.since),
            judged=partial(rules.windows, scale=scale),
        ),
        Figure(
            "fig7c",
            "Figure 7c: lines from FMA's model to IMA's, eight methods",
            f"The last round of seed 0, round {scale.rounds}.",
            ("fig7c",),
            rules.drawn_lines,
            judged=partial(rules.lines, methods=METHODS),
        ),
        Figure(
            "table1",
            "Table 1, the row of Fashion-MNIST, CNN and dirichlet:0.1, on MNIST",
            f"{seeds[0].upper()}{seeds[1:]}. The paper's columns are its Fashion-MNIST.",
            ("table1",),
            table=partial(rules.methods_table, recipe=RECIPE, methods=METHODS),
            judged=partial(rules.methods, names=METHODS),
        ),
        Figure(
            "table2",
            "Table 2: rounds to an accuracy, its columns of FedAvg and FedFA",
            "The accuracy to reach is FedAdam's without IMA in Table 1, as in the paper. The table has the first "
            f"measured round that reaches it, tested every {scale.every} rounds.",
            ("table1", "fig7a"),
            table=partial(rules.rounds_table, scale=scale),
            judged=partial(rules.rounds, scale=scale),
        ),
        Figure(
            "table3",
            "Table 3, its column of FedAvg: schedules of IMA's exploration",
            f"Schedules with a period have one of {scale.period} rounds; {seeds}. The paper's column is CIFAR-10's.",
            ("table3",),
            table=rules.schedules_table,
            judged=rules.schedules,
        ),
        Figure(
            "precision",
            "What bf16 changes, and why not CIFAR-10",
            "Not in the paper. We train FedAvg with products in float32 and in bf16. On MNIST this has the set-up of "
            f"Table 1 and {scale.precise} rounds, on CIFAR-10 the smaller set-up of the second command. CIFAR-10 was "
            "measured first, with FedAvg alone. Its level is why methods are compared on MNIST. "
            f"{seeds[0].upper()}{seeds[1:]}.",
            ("precise", "precision"),
            table=rules.precision_table,
            judged=rules.precision,
        ),
    )
