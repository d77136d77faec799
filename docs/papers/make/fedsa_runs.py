"""FedSA: what is trained for its page and asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import fedsa_rules as rules
from kept import listed
from work import Asked, Swept, Trained

TABLE = "fedsa/table1-dir0.1-cifar10"
#: as the recipe has them; FedAvg's runs are trained by themselves, as their clients' models are recorded
METHODS = ("fma", "fedprox", "moon", "fedgen", "fedntd", "ditto", "fedbabu", "fedala", "fedsa")
#: of Figure 6: the values that are not the usual one, and how a run of all usual ones is called
GRID = {"cv_threshold": (0.1, 0.3, 0.4), "sim_threshold": (0.1, 0.3, 0.4), "classes": (2, 6, 8), "clusters": (2, 6, 8)}
USUAL = "fedsa-cv_threshold0.2-sim_threshold0.2-classes4-clusters4"
#: of Figures 7 and 8; two classes a client are to CIFAR-10 what ten are to CIFAR-100 in the paper's Table 1
PARTITIONS = {
    "fig7": {"iid": "iid", "path": "pathological:2", "dir": "dirichlet:0.1"},
    "fig8": {"0.01": "dirichlet:0.01", "0.5": "dirichlet:0.5", "1": "dirichlet:1.0"},
}
HOLDERS = 50
#: what Figure 5 draws
LOSS, ACCURACIES = ("train_loss",), ("all_client_deployed_accuracy_mean", "all_client_deployed_accuracy_std")


@dataclass(frozen=True)
class Scale:
    """How large the runs are: the papers' own settings but for these.

    Attributes:
        data, model: as ``data.name`` and ``model.name``; share: of the samples.
        lr, batch: out of the recipe's calibration grid.
        rounds: of all but Figure 6; varied: of that one; every: so many rounds clients are tested; last: so many
            rounds, the last ones, accuracies are the mean of.
        seeds: of all but Figures 2, 7 and 8; many: parameters that Figure 2 is judged by, shown: that it shows.
    """

    data: str = "npz:cifar10.npz"
    model: str = "cnn"
    share: float = 0.1
    lr: float = 0.1
    batch: int = 64
    rounds: int = 30
    varied: int = 12
    every: int = 6
    last: int = 3
    seeds: int = 3
    many: int = 40
    shown: int = 4

    @property
    def ten(self) -> list[int]:
        """Rounds of Figure 1, evenly from the first to the last."""
        return sorted({1 + round((self.rounds - 1) * k / 9) for k in range(10)})

    def words(self, rounds: int, seed: int | None = None) -> str:
        """Of ``train`` and ``sweep``: all in which a run differs from its recipe."""
        tested = sorted({*range(self.every, rounds, self.every), *range(rounds - self.last + 1, rounds + 1)})
        settings: dict[str, Any] = {
            **{"data.name": self.data, "data.share": f"{self.share:g}", "model.name": self.model},
            **{"client.lr": f"{self.lr:g}", "client.batch": self.batch, "run.rounds": rounds, "run.precision": "bf16"},
            **{"run.evaluate_every": self.every, "run.evaluate_all": f"[{listed(tested)}]"},
            **({} if seed is None else {"run.seed": seed, "data.seed": seed}),
        }
        return " ".join(f"--set {key}={value}" for key, value in settings.items())


QUICK = Scale("digits", "mlp", 0.6, 0.1, 64, rounds=4, varied=2, every=2, last=2, seeds=2, many=12, shown=2)


def runs(scale: Scale) -> tuple[Trained | Swept, ...]:
    """FedAvg on IID and on skewed data, its branches of Figure 2, the other methods, and Figure 6."""

    def fedavg(data: str, recipe: str, seed: int) -> Trained:
        # of the further seeds only the first and the last round's clients are looked at
        kept = scale.ten if seed == 0 else [1, scale.rounds]
        partition = " --set data.partition=iid" if data == "iid" else ""
        words = (
            f"--recipe {recipe} --method fma{partition} {scale.words(scale.rounds, seed)} "
            f"--set record.clients=[{listed(kept)}] --set record.globals=all"
        )
        return Trained(f"fedsa/{data}-seed{seed}", words, scale.rounds)

    def branch(method: str, before: int, own: str) -> Trained:
        words = f"--from fedsa/dirichlet-seed0@{scale.rounds - before} --method {method} {own} --rounds {scale.rounds}"
        return Trained(f"fedsa/branches/{method}", words, scale.rounds)

    every, seeds = scale.words(scale.rounds), f"--seeds 0..{scale.seeds - 1}"
    dirichlet = [fedavg("dirichlet", TABLE, seed) for seed in range(scale.seeds)]
    iid = [fedavg("iid", "fedsa/fig1", seed) for seed in range(scale.seeds)]
    equal = [
        Trained(
            f"fedsa/equal-seed{seed}",
            f"--recipe {TABLE} --method fma {scale.words(scale.rounds, seed)} --set server.weighting=uniform",
            scale.rounds,
        )
        for seed in range(scale.seeds)
    ]
    return (
        *dirichlet,
        *iid,
        *equal,
        branch("fedsa", 1, "--set server.similarity=layer"),
        branch("moon", 2, "--set client.temperature=1.0 --set client.mu=1.0"),
        branch("fedala", 2, "--set client.portion=0.8 --set client.layers=1"),
        Swept("fedsa/table1", f"--recipe {TABLE} method={listed(METHODS[1:])} {seeds} {every}"),
        Swept("fedsa/fig6", f"--recipe fedsa/fig6 {seeds} {scale.words(scale.varied)}"),
    )


def asked(scale: Scale) -> tuple[Asked, ...]:
    """The commands of all figures and of the table."""
    seeds = range(scale.seeds)
    dirichlet = [f"fedsa/dirichlet-seed{seed}" for seed in seeds]
    both = [f"fedsa/{data}-seed{seed}" for seed in seeds for data in ("iid", "dirichlet")]
    equal = [f"fedsa/equal-seed{seed}" for seed in seeds]
    others = [f"fedsa/table1/runs/{method}-seed{seed}" for method in METHODS[1:] for seed in seeds]
    branches = [f"fedsa/branches/{method}" for method in ("fedsa", "moon", "fedala")]
    parameters = f"parameters {' '.join([dirichlet[0], *branches])} --round {scale.rounds}"
    curves = " ".join(f"--measure {measure}" for measure in (*LOSS, *ACCURACIES))
    cells = f"--measure {rules.DEPLOYED} --measure {rules.OWN} --last {scale.last}"

    def varied(key: str) -> Asked:
        names = [USUAL, *(f"fedsa-{key}{value}" for value in GRID[key])]
        words = " ".join(f"fedsa/fig6/runs/{name}-seed{seed}" for name in names for seed in seeds)
        settings = f"--rows method --columns server.{key} --measure {rules.DEPLOYED} --last {scale.last}"
        return Asked(f"fig6-{key}", f"table {words} {settings}", ("fedsa/fig6",))

    def held(figure: str, name: str) -> Asked:
        words = f"--data {scale.data} --partition {PARTITIONS[figure][name]} --clients {HOLDERS}"
        # the images that would be kept beside the counts are not looked at here
        least = "--set data.client_test=0.25 --set data.pool=true --shown 1 --samples 1"
        return Asked(f"{figure}-{name}", f"data {words} {least}", ())

    return (
        Asked("fig1", f"disperse {' '.join(both[:2])} --embed tsne --rounds {listed(scale.ten)}", tuple(both[:2])),
        Asked("fig1-seeds", f"disperse {' '.join(both)} --embed tsne --rounds 1,{scale.rounds}", tuple(both)),
        Asked("fig2", f"{parameters} --top {scale.shown}", (dirichlet[0], *branches)),
        Asked("fig2-many", f"{parameters} --top {scale.many}", (dirichlet[0], *branches)),
        Asked("fig5", f"curves {' '.join([*dirichlet, *others])} {curves}", (*dirichlet, "fedsa/table1")),
        *map(varied, GRID),
        *(held(figure, name) for figure, names in PARTITIONS.items() for name in names),
        Asked("table1", f"table {' '.join(dirichlet)} fedsa/table1 {cells}", (*dirichlet, "fedsa/table1")),
        Asked("table1-equal", f"table {' '.join(equal)} {cells}", tuple(equal)),
    )
