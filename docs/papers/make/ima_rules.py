"""The claims of IMA's figures, and the rules by which they are judged; fixed before any result was seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from verdicts import Number, Verdict, above_zero, everywhere, share_difference, within


def planes(results: Path, rounds: Sequence[int]) -> list[Verdict]:
    """Figure 1."""
    from scipy.stats import t as t_

    from fedscope import Plane, Subsets

    better, lower, misses = [], [], []
    for where, plane in {f"round {t}": Plane.load(results / f"fig1.round-{t}") for t in rounds}.items():
        three, mean = _models(plane)
        samples = int(plane.attrs["samples"])
        better.append(share_difference(where, min(m.error for m in three), mean.error, samples))
        lower.append(Number(where, (min(m.loss for m in three) - mean.loss) / mean.loss))
        misses.append(Number(where, _above_least(plane)))
    last = Plane.load(results / "fig1.globals")
    three, mean = _models(last)
    clients = []
    for one in Subsets.load(results / "fig1-subsets").rounds:
        row = one.sizes[0]
        width = t_.ppf(0.975, row.subsets - 1) * (row.error_std or float("nan")) / row.subsets**0.5
        clients.append(Number(f"round {one.round}", row.error_mean, row.error_mean - width, row.error_mean + width))
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
            "Their mean misses the minimum of the plane.",
            "In each round the plane's lowest loss is at least 1 % below the mean's.",
            misses,
            0.01,
        ),
        everywhere(
            "The mean of the last three global models has a lower test loss than each of them.",
            "The lowest of the three losses minus the mean's, as a share of it, is above 0. There is one cohort, so "
            "no interval.",
            [Number("last round", (min(m.loss for m in three) - mean.loss) / mean.loss)],
            0.0,
        ),
    ]


def cohorts(results: Path, device: Sequence[int], silo: Sequence[int]) -> list[Verdict]:
    """Figures 8 and 9. Whether participation brings the mean nearer to the minimum is measured and not judged: the
    paper's figures and its text disagree."""
    from fedscope import Plane

    basins = []
    for words, name, rounds in (("across devices", "fig1", device), ("across silos", "fig8-silo", silo)):
        for t in rounds:
            three, mean = _models(Plane.load(results / f"{name}.round-{t}"))
            basins.append(Number(f"{words}, round {t}", (min(m.loss for m in three) - mean.loss) / mean.loss))
    return [
        everywhere(
            "Across devices and across silos the mean of three clients has a lower test loss than each of them.",
            "On each plane the best client's loss minus the mean's, as a share of it, is above 0. No interval.",
            basins,
            0.0,
        )
    ]


def common_basin(
    results: Path, names: Sequence[tuple[str, str, int]], rounds: Callable[[int], Sequence[int]]
) -> list[Verdict]:
    """Figure 10: whether a ridge parts the three clients from their mean.

    Args:
        names: the planes' name, their words, and the rounds of their run; rounds: which of these are shown.
    """
    from fedscope import Plane

    walls = []
    for name, words, count in names:
        for t in rounds(count):
            walls.append(Number(f"{words}, round {t}", _ridge(Plane.load(results / f"{name}.round-{t}"))))
    return [
        everywhere(
            "The clients' models are in a common basin.",
            "On the straight line from each of the three clients to their mean, the interpolated loss never rises more "
            "than 5 % above the client's. The number is 5 % minus the largest rise.",
            [Number(one.where, 0.05 - one.value) for one in walls],
            0.0,
        )
    ]


def _ridge(plane: Any, steps: int = 21) -> float:
    """The greatest rise of the loss above a client's on the ways from the clients to their mean, as a share of it."""
    import numpy as np
    from scipy.interpolate import RegularGridInterpolator

    three, mean = _models(plane)
    surface = RegularGridInterpolator((plane.b, plane.a), plane.loss)  # loss is [b, a]
    rises = [0.0]
    for one in three:
        way = np.linspace((one.b, one.a), (mean.b, mean.a), steps)
        rises.append(float(surface(way).max()) / one.loss - 1)
    return max(rises)


def misses(results: Path, device: Sequence[int], silo: Sequence[int]) -> str:
    """How far the clients' mean lies above the least loss of its plane, in both federations."""
    from fedscope import Plane

    rows = ["| phase | across devices | across silos |", "| --- | --- | --- |"]
    for phase, of_device, of_silo in zip(("early", "halfway", "last"), device, silo, strict=True):
        planes = [
            Plane.load(results / f"{name}.round-{t}") for name, t in (("fig1", of_device), ("fig8-silo", of_silo))
        ]
        shares = [f"{100 * _above_least(plane):.1f} %" for plane in planes]
        rows.append(f"| {phase} (rounds {of_device}, {of_silo}) | {shares[0]} | {shares[1]} |")
    return "\n".join(["How far the mean's loss is above the plane's lowest loss, as a share of it:", "", *rows])


def inner(results: Path) -> list[Verdict]:
    """Figure 5b."""
    from fedscope import Line

    lines, depths = Line.load(results / "fig5b"), []
    for pair, loss in zip(lines.pairs, lines.loss, strict=True):
        ends = [float(loss[lines.beta == end][0]) for end in (0.0, 1.0)]
        inside = loss[(lines.beta > 0) & (lines.beta < 1)]
        depths.append(Number(pair, (min(ends) - float(inside.min())) / min(ends)))
    return [
        everywhere(
            "Between global models of different rounds there is a point with a lower test loss than both.",
            "On each line the lowest inner loss is below both ends'. The number is a share of the lower end's.",
            depths,
            0.0,
        )
    ]


def centre(results: Path) -> list[Verdict]:
    """Figure 5c."""
    from fedscope import Line

    return [nearer_to_ima([("last round", Line.load(results / "fig5c"), 0)])]


def nearer_to_ima(lines: Sequence[tuple[str, Any, int]]) -> Verdict:
    """Figures 5c and 7c: lines between IMA's model (beta 1) and the one without it (beta 0).

    Args:
        lines: of each its words, the result, and which of its pairs.
    """
    found = [Number(where, float(line.beta[int(line.loss[pair].argmin())]) - 0.5) for where, line, pair in lines]
    return everywhere(
        "IMA's model is near the lowest point of its line to the model without IMA, which is on the wall.",
        "The lowest point is nearer to IMA's model: its beta, 1 there and 0 at the other, minus 0.5 is above 0.",
        found,
        0.0,
    )


def _models(plane: Any) -> tuple[list[Any], Any]:
    """The three models of a plane, and their mean."""
    return [m for m in plane.models if m.role == "anchor"], next(m for m in plane.models if m.role == "mean")


def _above_least(plane: Any) -> float:
    """How far the mean's loss lies above the least of the plane, as a share of the mean's."""
    mean = _models(plane)[1]
    return (mean.loss - float(plane.loss.min())) / float(mean.loss)
