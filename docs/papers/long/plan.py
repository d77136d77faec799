"""The plan of long runs: units that each fit about two hours of two idle cores, in the order in which they are done."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from outcomes import Cost
from work import Asked, Trained

#: globals that IMA's average takes, and one more
WINDOW = 6


@dataclass(frozen=True)
class Unit:
    """What is trained and asked together, and counts as soon as all of its numbers are there.

    Attributes:
        name: of its numbers; place: of the folder of its runs, which several units may share.
        shown: the figures that it is for, and the seed; runs: in the order in which they need each other; asked: in
            order, of these runs; hours: of two idle cores, estimated.
    """

    name: str
    place: str
    shown: str
    runs: tuple[Trained, ...]
    asked: tuple[Asked, ...]
    hours: float


@dataclass(frozen=True)
class Scale:
    """How large the runs are.

    Attributes:
        data: words of ``train`` for IMA's and FedAvg's federations; wima: of WIMA's.
        rounds: of IMA's federations; starts: of its branches, the later first; long: rounds of WIMA's.
        decomposed: rounds of Figures 2, 3 and 4 right; subsets: of Figure 4 left; planes: of Figure 8 across silos,
            which has 200 rounds in the paper; all are among the first.
        seeds: of every federation.
        limit: samples of slow questions; seen: of planes, as words; grid: points of a plane along each side.
        every: how often WIMA's models are tested; windows: of Table 4, over the last `means` measured rounds.
    """

    data: str = "--data npz:../../../cifar10.npz"
    wima: str = "--data npz:../../../cifar10.npz --set run.precision=bf16"
    rounds: int = 400
    starts: tuple[int, int] = (300, 200)
    long: int = 1000
    every: int = 10
    decomposed: tuple[int, ...] = (1, 10, 20, 40, 75, 100, 150, 200, 250, 300, 350, 400)
    subsets: tuple[int, ...] = (1, 40, 75, 200, 400)
    planes: tuple[int, ...] = (10, 100, 200)
    seeds: tuple[int, ...] = (0, 1, 2)
    limit: str = "--limit 2000"
    seen: str = "--adaptive --limit 5000"
    grid: int = 41
    windows: tuple[int, ...] = (5, 10, 50, 100, 200)
    means: int = 10

    @property
    def shown(self) -> tuple[int, int, int]:
        """Of planes: R/20, R/2 and R, as the recipe chooses them."""
        return max(1, self.rounds // 20), self.rounds // 2, self.rounds

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Figure 5b's: 300 and 350, 350 and 400, 300 and 400 of the paper's 400 rounds."""
        early, late = self.rounds - self.rounds // 4, self.rounds
        middle = (early + late) // 2
        return (early, middle), (middle, late), (early, late)


#: small runs on the embedded digits, to try the driver
QUICK = Scale(
    data="--data digits --model mlp --set data.partition=shards:2",
    wima="--data digits --model mlp --set data.augment=none --clients 40",
    rounds=12,
    starts=(9, 8),
    long=10,
    decomposed=(1, 2, 6, 8, 10, 12),
    subsets=(1, 12),
    planes=(1, 6, 12),
    seeds=(0, 1),
    limit="--limit 200",
    seen="--limit 200",
    grid=5,
    every=1,
    windows=(2, 4),
    means=3,
)


def units(scale: Scale) -> tuple[Unit, ...]:
    """One seed of everything first, so that each figure exists early; then the other seeds."""
    of_seeds = [(across_devices(scale, k), across_silos(scale, k), averaged(scale, k)) for k in scale.seeds]
    return tuple(unit for seed in of_seeds for part in seed for unit in part)


def across_devices(scale: Scale, seed: int) -> tuple[Unit, ...]:
    """IMA's federation of 100 clients, and its branches with IMA."""
    place = f"device-{seed}"
    late = scale.rounds
    before = range(1, WINDOW + 1)  # a branch works out its first average from the globals before it
    kept = {*scale.shown, late - 2, late - 1, *(start - k for start in scale.starts for k in before)}
    kept |= {round_ for pair in scale.pairs for round_ in pair}
    device = Trained(
        "device",
        f"--recipe ima/fig1 {scale.data} {_seeded(seed)} --set run.rounds={late} --set run.evaluate_clients=0 "
        f"--set record.clients=[{_listed(scale.shown)}] --set record.globals=[{_listed(sorted(kept))}]",
        late,
    )
    branches = tuple(
        Trained(
            f"ima-{start}",
            f"--from device@{start - 1} --average ima --set average.start={start} --rounds {late} "
            "--set record.clients=none --set record.globals=last:1",
            late,
        )
        for start in scale.starts
    )
    rounds = _listed(scale.shown)
    lines = " ".join(f"device@{a}/global device@{b}/global" for a, b in scale.pairs)
    own = (
        Asked("fig1", f"plane device --rounds {rounds} --grid {scale.grid} {scale.seen}", ("device",)),
        Asked("fig1-subsets", f"subsets device --rounds {rounds} --sizes 1,3", ("device",)),
        Asked("fig5b", f"line {lines} {scale.limit}", ("device",)),
    )
    branched = tuple(
        Asked(f"fig5c-{start}", f"line ima-{start}@{late}/averaged device@{late}/global {scale.limit}", (run.name,))
        for start, run in zip(scale.starts, branches, strict=True)
    )
    return (
        Unit(place, place, f"IMA, Figures 1, 5b, 8 and 10 across devices, seed {seed}", (device,), own, 1.8),
        Unit(f"{place}-ima", place, f"IMA, Figures 5c and 7c, seed {seed}", (device, *branches), branched, 0.8),
    )


def across_silos(scale: Scale, seed: int) -> tuple[Unit, ...]:
    """IMA's federation of 10 clients, without and with a decay of the rate."""
    rounds = _listed(scale.decomposed)
    made = []
    for name, decay in (("silo", 0.0), ("silo-decay", 0.01)):
        place = f"{name}-{seed}"
        run = Trained(
            name,
            f"--recipe ima/fig2 {scale.data} {_seeded(seed)} --set run.rounds={scale.rounds} "
            f"--set run.evaluate_clients=0 --set record.clients=[{rounds}] --set record.globals=[{rounds}]"
            + (f" --set client.lr_decay={decay:g}" if decay else ""),
            scale.rounds,
        )
        asked = [
            Asked("fig2", f"explain {name} --rounds {rounds} --draws local:4 {scale.limit}", (name,)),
            Asked("fig4-subsets", f"subsets {name} --rounds {_listed(scale.subsets)} {scale.limit}", (name,)),
            Asked("fig4-cka", f"cka {name} --rounds {rounds} --panel error {scale.limit}", (name,)),
        ]
        if not decay:  # as in the paper
            words = f"plane {name} --rounds {_listed(scale.planes)} --grid {scale.grid} {scale.seen}"
            asked.append(Asked("fig8", words, (name,)))
        words = f"IMA, Figures 2 to 4{'' if decay else ' and 8'} across silos, decay {decay:g}, seed {seed}"
        made.append(Unit(place, place, words, (run,), tuple(asked), 2.0))
    return tuple(made)


def averaged(scale: Scale, seed: int) -> tuple[Unit, ...]:
    """WIMA's federation: FedAvg at two levels of skew, with the global models that the windows of its end need. WIMA's
    own mean is formed meanwhile, with the paper's window, and stands in the metrics."""
    made = []
    late, widest = scale.long, max(scale.windows)
    for name, recipe in (("a0", "wima/table2-cifar10-a0"), ("a0.05", "wima/table2-cifar10-a0.05")):
        place = f"wima-{name}-{seed}"
        measured = [late - k * scale.every for k in range(scale.means)][::-1]
        kept = late - max(1, measured[0] - widest + 1) + 1
        run = Trained(
            "fedavg",
            f"--recipe {recipe} {scale.wima} --method fma {_seeded(seed)} --rounds {late} "
            f"--set run.evaluate_clients=0 --set record.clients=none --set record.globals=last:{kept} "
            f"--set run.evaluate_every={scale.every}",
            late,
        )
        asked = (
            Asked("fig1", "curves fedavg --measure test_accuracy --last 10", ("fedavg",)),
            Asked(
                "table4",
                f"wima fedavg --windows {_listed(scale.windows)} --rounds {_listed(measured)}",
                ("fedavg",),
            ),
        )
        made.append(Unit(place, place, f"WIMA, Figure 1 and Table 4, {name}, seed {seed}", (run,), asked, 1.8))
    return tuple(made)


def costs(scale: Scale) -> dict[str, Cost]:
    """Of one seed of each kind of unit, by the unit's name without it."""
    (first, *_) = scale.seeds
    return {
        re.sub(rf"-{first}(-ima)?$", r"\1", unit.name): Cost(
            len(scale.seeds), max(run.rounds for run in unit.runs), unit.hours
        )
        for unit in of_seed(units(scale), first)
    }


def of_seed(found: Sequence[Unit], seed: int) -> tuple[Unit, ...]:
    """The units of one seed."""
    return tuple(unit for unit in found if unit.name.removesuffix("-ima").endswith(f"-{seed}"))


def at_data(unit: Unit, data: str) -> Unit:
    """The same on another data file, named as ``train`` takes it."""
    runs = tuple(replace(run, words=run.words.replace("npz:../../../cifar10.npz", data)) for run in unit.runs)
    return replace(unit, runs=runs)


def on_device(unit: Unit, device: str) -> Unit:
    """The same computed on an accelerator, as ``cuda``."""
    if device == "cpu":
        return unit
    runs = tuple(replace(run, words=f"{run.words} --device {device}") for run in unit.runs)
    # curves computes nothing
    asked = tuple(
        one if one.words.startswith("curves ") else replace(one, words=f"{one.words} --device {device}")
        for one in unit.asked
    )
    return replace(unit, runs=runs, asked=asked)


def _seeded(seed: int) -> str:
    """A seed of training, partition and cohorts alike, so that seeds are independent federations."""
    return f"--seed {seed} --set data.seed={seed}"


def _listed(values: Sequence[int]) -> str:
    return ",".join(map(str, values))
