"""IMA (Zhou et al.): its runs here, what is asked of them, and its claims with their rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verdicts import Number, Verdict, above_zero, everywhere, share_difference, within
from work import Asked, Trained

NAME, TITLE = "ima", "Averaging in federated learning, and iterative moving averaging (Zhou et al.)"


@dataclass(frozen=True)
class Scale:
    """How large the runs are: the papers' own settings but for these.

    Attributes:
        data: words of ``train``; rounds: of the cross-device federation; silo: of the cross-silo ones.
        limit: samples of slow questions, as words; grid: points of a plane along each side.
    """

    data: str = "--data npz:cifar10.npz"
    rounds: int = 150
    silo: int = 100
    limit: str = "--limit 2000"
    grid: int = 31

    @property
    def shown(self) -> tuple[int, int, int]:
        """R/20, R/2 and R, as the recipe chooses them."""
        return max(1, self.rounds // 20), self.rounds // 2, self.rounds

    @property
    def start(self) -> int:
        """Where IMA begins: 0.75 R."""
        return int(0.75 * self.rounds)

    @property
    def decomposed(self) -> list[int]:
        """Of a cross-silo federation; the paper's early phase ends at a tenth of its rounds."""
        tenth = max(1, self.silo // 10)
        early = sorted({1, *(max(1, tenth * k // 4) for k in range(1, 5))})
        return sorted({*early, *(tenth * k for k in (2, 4, 6, 8, 10))})


def trained(scale: Scale) -> tuple[Trained, ...]:
    """The federations: cross-device and IMA's branch of it, cross-silo without and with a decay of the rate."""
    recorded = ",".join(map(str, scale.shown))
    device = f"--recipe ima/fig1 {scale.data} --set run.rounds={scale.rounds} --set record.clients=[{recorded}]"
    silo = f"--recipe ima/fig2 {scale.data} --set run.rounds={scale.silo} --set record.clients="
    silo += "[" + ",".join(map(str, scale.decomposed)) + "]"
    quiet = "--set run.evaluate_clients=0"
    branch = (
        f"--from ima/device@{scale.start} --average ima --set average.start={scale.start + 1} --rounds {scale.rounds}"
    )
    return (
        Trained("ima/device", f"{device} {quiet}", scale.rounds),
        Trained("ima/device-ima", branch, scale.rounds),
        Trained("ima/silo", f"{silo} {quiet}", scale.silo),
        Trained("ima/silo-decay", f"{silo} --set client.lr_decay=0.01 {quiet}", scale.silo),
    )


def asked(scale: Scale) -> tuple[Asked, ...]:
    """The commands of Figures 1 to 5."""
    device, silos = ("ima/device",), ("ima/silo", "ima/silo-decay")
    early, late = scale.rounds - scale.rounds // 4, scale.rounds
    middle = (early + late) // 2
    rounds = ",".join(map(str, scale.decomposed))
    some = ",".join(map(str, sorted({1, *scale.decomposed[-5:]})))
    both = " ".join(silos)
    pairs = [f"ima/device@{t}/global" for t in (early, middle, middle, late, early, late)]
    return (
        Asked("fig1", f"plane ima/device --rounds {','.join(map(str, scale.shown))} --grid {scale.grid}", device),
        Asked("fig1-subsets", f"subsets ima/device --rounds {','.join(map(str, scale.shown))} --sizes 1,3", device),
        Asked("fig2", f"explain {both} --rounds {rounds} --draws local:4 {scale.limit}", silos),
        Asked("fig4-subsets", f"subsets {both} --rounds {some}", silos),
        Asked("fig4-cka", f"cka {both} --rounds {some} --panel error {scale.limit}", silos),
        Asked("fig5b", f"line {' '.join(pairs)}", device),
        Asked("fig5c", f"line ima/device-ima@{late}/averaged ima/device@{late}/global", (*device, "ima/device-ima")),
    )


def judged(results: Path, scale: Scale) -> dict[str, list[Verdict]]:
    """The claims of the figures, by figure."""
    from fedscope import Line, Plane, Subsets

    planes = {f"round {t}": Plane.load(results / f"fig1.round-{t}") for t in scale.shown}
    last = Plane.load(results / "fig1.globals")
    alone = {one.round: one.sizes[0] for one in Subsets.load(results / "fig1-subsets").rounds}
    lines, ima = Line.load(results / "fig5b"), Line.load(results / "fig5c")
    return {"fig1": _planes(planes, last, alone), "fig5b": [_inner(lines)], "fig5c": [_centre(ima)]}


def _planes(planes: dict[str, Any], last: Any, alone: dict[int, Any]) -> list[Verdict]:
    from scipy.stats import t as t_

    def models(plane: Any) -> tuple[list[Any], Any]:
        return [m for m in plane.models if m.role == "anchor"], next(m for m in plane.models if m.role == "mean")

    def samples(plane: Any) -> int:
        return int(plane.attrs["samples"])

    better, lower, misses = [], [], []
    for where, plane in planes.items():
        three, mean = models(plane)
        better.append(share_difference(where, min(m.error for m in three), mean.error, samples(plane)))
        lower.append(Number(where, (min(m.loss for m in three) - mean.loss) / mean.loss))
        least = float(plane.loss.min())
        misses.append(Number(where, (mean.loss - least) / mean.loss))
    three, mean = models(last)
    clients = []
    for t, row in alone.items():
        width = t_.ppf(0.975, row.subsets - 1) * (row.error_std or float("nan")) / row.subsets**0.5
        clients.append(Number(f"round {t}", row.error_mean, row.error_mean - width, row.error_mean + width))
    return [
        within(
            "Clients alone have a test error near 80 %.",
            "In each round the 95 % interval over the cohort's clients lies between 75 and 85 %.",
            clients,
            0.75,
            0.85,
            percent=True,
        ),
        above_zero(
            "The mean of three clients has a lower test error than each of them.",
            "In each round the best client's error minus the mean's is above 0 (95 % interval over test samples).",
            better,
            percent=True,
        ),
        everywhere(
            "The mean of three clients has a lower test loss than each of them.",
            "In each round the best client's loss minus the mean's, as a share of it, is above 0. No interval.",
            lower,
            0.0,
        ),
        everywhere(
            "That mean misses the minimum of the plane.",
            "In each round the plane's least loss is at least 1 % below the mean's.",
            misses,
            0.01,
        ),
        everywhere(
            "The mean of the last three global models has a lower test loss than each of them.",
            "The least of the three losses minus the mean's, as a share of it, is above 0. One cohort: no interval.",
            [Number("last round", (min(m.loss for m in three) - mean.loss) / mean.loss)],
            0.0,
        ),
    ]


def _inner(lines: Any) -> Verdict:
    """Figure 5b."""
    depths = []
    for pair, loss in zip(lines.pairs, lines.loss, strict=True):
        ends = [float(loss[lines.beta == end][0]) for end in (0.0, 1.0)]
        inside = loss[(lines.beta > 0) & (lines.beta < 1)]
        depths.append(Number(pair, (min(ends) - float(inside.min())) / min(ends)))
    return everywhere(
        "Between global models of different rounds lies a point with a lower test loss than both.",
        "On each line the least inner loss is below both ends'; shown as a share of the lower end's.",
        depths,
        0.0,
    )


def _centre(line: Any) -> Verdict:
    """Figure 5c; beta is 1 at IMA's model."""
    lowest = float(line.beta[int(line.loss[0].argmin())])
    return everywhere(
        "IMA's model lies near the lowest point of the line to FMA's, FMA's on the wall.",
        "The lowest point of the line is nearer to IMA's model: beta above 0.5 there, of which this is the excess.",
        [Number("last round", lowest - 0.5)],
        0.0,
    )


def pictures(results: Path, scale: Scale) -> dict[str, Callable[[], Any]]:
    """The figures, drawn from what is kept."""
    from fedscope import ClientCKA, Explanation, Line, Plane, Subsets
    from fedscope.decomposition.cka.figure import draw_clients
    from fedscope.landscape.planes.figure import draw_panels

    def planes() -> Any:
        shown = [*(f"round-{t}" for t in scale.shown), "globals"]
        row = [Plane.load(results / f"fig1.{end}") for end in shown]
        return draw_panels([row], [[end.replace("-", " ") for end in shown]], 7.0, None)

    factors = Explanation.load(results / "fig2").decomposition
    similar = [ClientCKA.load(results / f"fig4-cka.{run}") for run in ("silo", "silo-decay")]
    return {
        "fig1": planes,
        "fig2": lambda: factors.figure(panels=["factors", "error"]),
        "fig3": lambda: factors.figure(panels=["distance", "error"]),
        "fig4a": lambda: Subsets.load(results / "fig4-subsets").figure(),
        "fig4b": lambda: draw_clients(similar, panels=["rounds", "error"]),
        "fig5b": lambda: Line.load(results / "fig5b").figure(),
        "fig5c": lambda: Line.load(results / "fig5c").figure(),
    }


#: the answers that a picture and its verdicts are made of
SOURCES = {
    "fig1": ("fig1", "fig1-subsets"),
    "fig2": ("fig2",),
    "fig3": ("fig2",),
    "fig4a": ("fig4-subsets",),
    "fig4b": ("fig4-cka",),
    "fig5b": ("fig5b",),
    "fig5c": ("fig5c",),
}
HEADINGS = {
    "fig1": "Figure 1: planes through clients and global models",
    "fig2": "Figure 2: bias and test error over rounds",
    "fig3": "Figure 3: distance of the clients and test error over rounds",
    "fig4a": "Figure 4, left: test error against the number of averaged models",
    "fig4b": "Figure 4, right: similarity of the clients over rounds, and test error against it",
    "fig5b": "Figure 5b: lines between global models",
    "fig5c": "Figure 5c: the line from IMA's model to FMA's",
}
#: the statements of ``explain`` that a figure is about; what is said of early rounds' greatest part is ours alone, and
#: replays cannot show a covariance
ABOUT = {
    "fig2": ("own-data", "bias-and-error", "greatest-part/middle", "greatest-part/late"),
    "fig3": ("distance-and-error", "locality-adds"),
    "fig4a": ("variance-and-clients", "better-than-clients"),
    "fig4b": ("outputs-differ",),
}


def lead(scale: Scale) -> str:
    """What the page is, and how far it is from the paper's size."""
    return (
        f"The cross-device federation has {scale.rounds} of the paper's 400 rounds, the cross-silo ones {scale.silo}; "
        "all else is the paper's, or stands under `fedscope recipes ima/fig1` as chosen here. Fewer rounds end before "
        "the rate or the average has settled, so late phases are shorter than in the paper. One seed: intervals are "
        "over test samples, clients or draws, as each rule says, and none of them is over seeds."
    )


def setup(name: str, scale: Scale) -> str:
    """A figure's set-up in a sentence."""
    if name in ("fig2", "fig3", "fig4a", "fig4b"):
        return (
            "Ten clients of two shards of 250 samples, all in every round, without and with a decay of the rate of "
            f"0.01 a round; rounds {', '.join(map(str, scale.decomposed))}."
        )
    return f"100 clients of two shards, ten a round; rounds {', '.join(map(str, scale.shown))} of {scale.rounds}."


def statements(results: Path) -> dict[str, list[Any]]:
    """What ``explain`` says of the cross-silo runs, by figure."""
    from fedscope import Explanation

    said = Explanation.load(results / "fig2").statements
    return {name: [one for one in said if one.claim.startswith(begin)] for name, begin in ABOUT.items()}
