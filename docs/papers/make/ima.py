"""IMA (Zhou et al.): its runs here, what is asked of them, and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ima_methods
import ima_rules as rules
import ima_silo_rules as silos
import long_figures
from ima_left import READINGS, contradictions, left
from kept import drawn, federation, listed
from paper import Figure, Paper
from work import Asked, Trained

#: of the rate, a round, in the second cross-silo federation
DECAY = 0.01


@dataclass(frozen=True)
class Scale:
    """How large the runs are: the papers' own settings but for these.

    Attributes:
        data: words of ``train``; rounds: of the cross-device federation; silo: of the cross-silo ones; further: of
            those that Figure 10 needs besides.
        rest: words of Figure 10's other data set.
        limit: samples of slow questions, seen: of planes, as words; grid: points of a plane along each side.
    """

    data: str = "--data npz:cifar10.npz"
    rest: str = "--data npz:mnist.npz"
    rounds: int = 150
    silo: int = 100
    further: int = 60
    limit: str = "--limit 2000"
    seen: str = "--adaptive --limit 5000"
    grid: int = 41

    @property
    def start(self) -> int:
        """Where IMA begins: 0.75 R."""
        return int(0.75 * self.rounds)

    @property
    def decomposed(self) -> list[int]:
        """Of a cross-silo federation; the paper's early phase ends at a tenth of its rounds."""
        tenth = max(1, self.silo // 10)
        early = {1, *(max(1, tenth * k // 4) for k in range(1, 5))}
        return sorted({*early, *shown(self.silo), *(tenth * k for k in (2, 4, 6, 8, 10))})


QUICK = Scale(
    "--data digits --model mlp --set data.partition=shards:2",
    "--data digits --model mlp --set data.partition=dirichlet:0.5",
    rounds=12,
    silo=12,
    further=6,
    limit="--limit 200",
    seen="--limit 200",
    grid=7,
)


def shown(rounds: int) -> tuple[int, int, int]:
    """R/20, R/2 and R, as the recipe chooses them."""
    return max(1, rounds // 20), rounds // 2, rounds


def order(figure: Figure) -> tuple[int, int, str]:
    """Figures by number, then tables, then what is ours."""
    kind = next((i for i, word in enumerate(("fig", "table")) if figure.name.startswith(word)), 2)
    digits = "".join(sign for sign in figure.name if sign.isdigit())
    return kind, int(digits or 0), figure.name


def runs(scale: Scale) -> tuple[Trained, ...]:
    """The federations: cross-device and IMA's branch of it, cross-silo without and with a decay of the rate, and two
    more for Figure 10."""

    def federation(recipe: str, data: str, rounds: int, recorded: Sequence[int]) -> str:
        """Words of ``train``; clients' models are recorded where they are looked at, and not measured meanwhile."""
        return (
            f"--recipe ima/{recipe} {data} --set run.rounds={rounds} --set record.clients=[{listed(recorded)}] "
            "--set run.evaluate_clients=0"
        )

    device = federation("fig1", scale.data, scale.rounds, shown(scale.rounds))
    silo = federation("fig2", scale.data, scale.silo, scale.decomposed)
    branch = (
        f"--from ima/device@{scale.start} --average ima --set average.start={scale.start + 1} --rounds {scale.rounds}"
    )
    rest = federation("fig1", scale.rest, scale.further, shown(scale.further))
    skewed = federation("fig1", scale.data, scale.further, shown(scale.further))
    return (
        Trained("ima/device", device, scale.rounds),
        Trained("ima/device-ima", branch, scale.rounds),
        Trained("ima/silo", silo, scale.silo),
        Trained("ima/silo-decay", f"{silo} --set client.lr_decay={DECAY:g}", scale.silo),
        Trained("ima/mnist", rest, scale.further),
        Trained("ima/dirichlet", f"{skewed} --set data.partition=dirichlet:0.1", scale.further),
    )


def asked(scale: Scale) -> tuple[Asked, ...]:
    """The commands of Figures 1 to 5 and 8 to 10."""
    device, silos = ("ima/device",), ("ima/silo", "ima/silo-decay")
    early, late = scale.rounds - scale.rounds // 4, scale.rounds
    middle = (early + late) // 2
    rounds = listed(scale.decomposed)
    some = listed(sorted({1, *scale.decomposed[-5:]}))
    both = " ".join(silos)
    pairs = [f"ima/device@{t}/global" for t in (early, middle, middle, late, early, late)]

    def planes(name: str, run: str, rounds: int) -> Asked:
        return Asked(name, f"plane {run} --rounds {listed(shown(rounds))} --grid {scale.grid} {scale.seen}", (run,))

    return (
        planes("fig1", "ima/device", scale.rounds),
        Asked("fig1-subsets", f"subsets ima/device --rounds {listed(shown(scale.rounds))} --sizes 1,3", device),
        Asked("fig5b", f"line {' '.join(pairs)}", device),
        Asked("fig5c", f"line ima/device-ima@{late}/averaged ima/device@{late}/global", (*device, "ima/device-ima")),
        Asked("fig2", f"explain {both} --rounds {rounds} --draws local:4 {scale.limit}", silos),
        Asked("fig4-subsets", f"subsets {both} --rounds {some}", silos),
        Asked("fig4-cka", f"cka {both} --rounds {some} --panel error {scale.limit}", silos),
        planes("fig8-silo", "ima/silo", scale.silo),
        planes("fig10-mnist", "ima/mnist", scale.further),
        planes("fig10-dirichlet", "ima/dirichlet", scale.further),
    )


def drawn_planes(results: Path, names: Sequence[tuple[str, str, int]]) -> Any:
    """Rows of planes: of each its name, what is written above it, and its rounds."""
    from fedscope import Plane
    from fedscope.landscape.planes.figure import draw_panels

    ends = [[*(f"round-{t}" for t in shown(rounds)), "globals"] for _, _, rounds in names]
    rows = [
        [Plane.load(results / f"{name}.{end}") for end in own] for (name, _, _), own in zip(names, ends, strict=True)
    ]
    heads = [[end.replace("-", " ") for end in own] for own in ends]
    return draw_panels(rows, heads, 7.0, None, rows=[words for _, words, _ in names] if len(names) > 1 else ())


def drawn_factors(panels: Sequence[str], results: Path) -> Any:
    """Figures 2 and 3."""
    from fedscope import Explanation

    return Explanation.load(results / "fig2").decomposition.figure(panels=list(panels))


def drawn_similarity(results: Path) -> Any:
    """Figure 4, right."""
    from fedscope import ClientCKA
    from fedscope.decomposition.cka.figure import draw_clients

    similar = [ClientCKA.load(results / f"fig4-cka.{run}") for run in ("silo", "silo-decay")]
    return draw_clients(similar, panels=["rounds", "error"])


def figures(scale: Scale) -> tuple[Figure, ...]:
    """In the paper's order."""
    of_device, of_silo = shown(scale.rounds), shown(scale.silo)
    device = f"{federation('ima/fig1')}; rounds {listed(of_device)} of {scale.rounds}."
    silo = (
        f"{federation('ima/fig2')}, without and with a decay of the rate of {DECAY:g} per round. "
        f"Rounds {', '.join(map(str, scale.decomposed))}."
    )
    cohorts = [("fig1", "across devices", scale.rounds), ("fig8-silo", "across silos", scale.silo)]
    others = [
        ("fig1", "CIFAR-10, two shards", scale.rounds),
        ("fig10-mnist", "MNIST in place of Fashion-MNIST, two shards", scale.further),
        ("fig10-dirichlet", "CIFAR-10, dirichlet:0.1", scale.further),
    ]
    return (
        Figure(
            "fig1",
            "Figure 1: planes through clients and global models",
            device,
            ("fig1", "fig1-subsets"),
            partial(drawn_planes, names=[("fig1", "", scale.rounds)]),
            partial(rules.left_out, rounds=of_device),
            judged=partial(rules.planes, rounds=of_device),
            long=partial(long_figures.planes, place="device", name="fig1"),
        ),
        Figure(
            "fig2",
            "Figure 2: bias and test error over rounds",
            silo,
            ("fig2",),
            partial(drawn_factors, ("factors", "error")),
            judged=silos.biases,
            long=partial(long_figures.factors, panels=("factors", "error")),
        ),
        Figure(
            "fig3",
            "Figure 3: distance of the clients and test error over rounds",
            silo,
            ("fig2",),
            partial(drawn_factors, ("distance", "error")),
            judged=silos.distances,
            long=partial(long_figures.factors, panels=("distance", "error")),
        ),
        Figure(
            "fig4a",
            "Figure 4, left: test error against the number of averaged models",
            silo,
            ("fig4-subsets", "fig2"),
            partial(drawn, "Subsets", "fig4-subsets"),
            judged=silos.numbers_of_clients,
            long=long_figures.subsets,
        ),
        Figure(
            "fig4b",
            "Figure 4, right: similarity of the clients over rounds, and test error against it",
            silo,
            ("fig4-cka", "fig2"),
            drawn_similarity,
            judged=silos.similarities,
            long=long_figures.similarities,
        ),
        Figure(
            "fig5b",
            "Figure 5b: lines between global models",
            device,
            ("fig5b",),
            partial(drawn, "Line", "fig5b"),
            judged=rules.inner,
            long=partial(long_figures.lines, place="device", name="fig5b"),
        ),
        Figure(
            "fig5c",
            "Figure 5c: the line from IMA's model to FMA's",
            f"IMA, window 5, from round {scale.start + 1} on, as a branch of the federation of Figure 1.",
            ("fig5c",),
            partial(drawn, "Line", "fig5c"),
            judged=rules.centre,
            long=partial(long_figures.lines, place="device-{}-ima", name="fig5c"),
        ),
        Figure(
            "fig8",
            "Figures 8 and 9: planes across devices and across silos, loss above error",
            f"Across devices as in Figure 1; across silos {federation('ima/fig2')}, rounds {listed(of_silo)}.",
            ("fig1", "fig8-silo"),
            partial(drawn_planes, names=cohorts),
            partial(rules.misses, device=of_device, silo=of_silo),
            partial(rules.cohorts, silo=of_silo),
            long=partial(long_figures.planes, place="silo", name="fig8"),
        ),
        Figure(
            "fig10",
            "Figure 10: planes of other federations",
            f"Rounds {listed(shown(scale.further))} of {scale.further} in the second and third row. The paper's row of "
            "ResNet-18 was not run.",
            ("fig1", "fig10-mnist", "fig10-dirichlet"),
            partial(drawn_planes, names=others),
            judged=partial(rules.common_basin, names=others, rounds=shown),
        ),
    )


def paper(quick: bool = False) -> Paper:
    """The page."""
    scale = QUICK if quick else Scale()
    more = ima_methods.QUICK if quick else ima_methods.Comparisons()
    lead = (
        "Long runs have the paper's 400 rounds and stand under headings of their own, with their seeds. Of the short "
        f"ones the cross-device federation has {scale.rounds} rounds, the cross-silo ones {scale.silo}. "
        "All other settings are the paper's, or our choices, which `fedscope recipes ima/fig1` lists. With fewer "
        "rounds, runs end before the rate or the average has settled, so late phases are shorter than in the paper. "
        "They have one seed. Their intervals are over test samples, clients or draws, as each rule says; none is over "
        "seeds.\n\n"
        f"Figures 6 and 7 and the tables compare methods on MNIST, with {100 * more.share:g} % of its training samples "
        f"and {more.rounds} rounds. Clients and participation are the paper's, with {more.seeds} seeds. Products in "
        "training are in bf16; the end of the page shows the effect. MNIST is easier than the paper's data, so levels "
        "are higher and gains may be smaller in points. Fewer rounds end at a higher rate, where models fluctuate "
        "more, which favours averages over rounds. On CIFAR-10, FedAvg alone had learnt too little at the size that "
        "two cores allow. MNIST was chosen by FedAvg's level before any run with IMA. The paper's choice of the best "
        "of a grid is left out.\n\n"
        "The images of CIFAR-10 were stored as JPEG once, so accuracies are close to those on the original pixels, but "
        "not equal. Differences of accuracies are in percentage points. The paper exists in two versions; [we follow "
        "the later one](../methods.md#zhou-et-al-two-versions-and-the-print)."
    )
    title = "Averaging in federated learning, and iterative moving averaging (Zhou et al.)"
    every = (*figures(scale), *ima_methods.figures(more))
    return Paper(
        "ima",
        title,
        lead,
        (*runs(scale), *ima_methods.runs(more)),
        (*asked(scale), *ima_methods.asked(more)),
        tuple(sorted(every, key=order)),
        contradictions(),
        left(),
        READINGS,
    )
