"""The claims of IMA's Figures 1, 5, 8 and 10, judged on runs of one seed. Rules that were changed after the results
were seen say so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from costs import planned
from long_device import models, ridge
from outcomes import Outcome, above, inside, over_bound
from verdicts import Number, share_difference

#: a plane is judged where some point of it has a test error of at most this; then others, to show whether it matters
LEARNT, BOUNDS = 0.75, (0.8, 0.75, 0.7)
ONLY = (
    f"Judged are planes on which some point has a test error of at most {100 * LEARNT:g} %, as before nothing is "
    "learnt."
)
ONE = "One seed has no interval for a loss."
FAIR = "rounds in which nothing had been learnt counted, and numbers without an interval decided"


def where_learnt(claim: str, rule: str, planes: Sequence[tuple[str, Any]], judge: Callable[[Any], Outcome]) -> Outcome:
    """The outcome over the planes on which something has learnt, with the curve over what that means.

    Args:
        planes: of each its words, and the result; judge: from those that count.
    """

    def at(bound: float) -> Outcome:
        return judge([(where, plane) for where, plane in planes if float(plane.error.min()) <= bound])

    return over_bound("learnt at a test error of …", LEARNT, BOUNDS, at)


def device(results: Path, rounds: Sequence[int]) -> list[tuple[str, Any]]:
    """The planes of Figure 1."""
    from fedscope import Plane

    return [(f"round {t}", Plane.load(results / f"fig1.round-{t}")) for t in rounds]


def planes(results: Path, rounds: Sequence[int]) -> list[Outcome]:
    """Figure 1."""
    from scipy.stats import t as t_

    from fedscope import Plane, Subsets

    cost, own = planned("device"), device(results, rounds)
    clients = []
    for one in Subsets.load(results / "fig1-subsets").rounds:
        row = one.sizes[0]
        width = float(t_.ppf(0.975, row.subsets - 1)) * (row.error_std or float("nan")) / row.subsets**0.5
        clients.append(Number(f"round {one.round}", row.error_mean, row.error_mean - width, row.error_mean + width))
    last = Plane.load(results / "fig1.globals")
    three, mean = models(last)
    nearest = min(one.loss for one in three)

    def near(reach: float) -> Outcome:
        return inside(
            "Clients alone have a test error near 80 %.",
            "In each round the 95 % interval over the cohort's clients lies within 5 points of it.",
            clients,
            0.8 - reach,
            0.8 + reach,
            cost,
            percent=True,
        )

    def misses(bound: float) -> Outcome:
        found = [Number(where, _above_least(plane)) for where, plane in own if float(plane.error.min()) <= LEARNT]
        return above(
            "Their mean misses the minimum of the plane.",
            f"The plane's lowest loss is at least 1 % below the mean's. {ONLY} {ONE}",
            found,
            cost,
            bound=bound,
            percent=True,
        )

    return [
        replace(over_bound("within … of 0.8", 0.05, (0.03, 0.05, 0.1), near), key="alone"),
        replace(
            beat_each(
                "Across devices the mean of three clients has a lower test loss and a lower test error than each of "
                "them.",
                own,
                planned("device"),
            ),
            key="three_beat_each",
        ),
        replace(
            over_bound("by more than the share …", 0.01, (0.01, 0.05, 0.1, 0.25), misses),
            key="misses_minimum",
            changed=FAIR,
        ),
        replace(
            above(
                "The mean of the last three global models is nearer to the minimum than each of them.",
                f"The lowest of the three losses minus the mean's, as a share of it, is above 0. {ONE}",
                [Number("last round", (nearest - mean.loss) / mean.loss)],
                cost,
                percent=True,
            ),
            key="globals_nearer",
            changed="a number without an interval decided",
        ),
    ]


def left_out(results: Path, rounds: Sequence[int]) -> str:
    """What is on the planes that are not judged."""
    said = []
    for where, plane in device(results, rounds):
        if float(plane.error.min()) > LEARNT:
            three, mean = models(plane)
            more = 1 - min(one.loss for one in three) / mean.loss
            said.append(
                f"On the plane of {where} the lowest test error is {100 * float(plane.error.min()):.0f} %, so nothing "
                f"has learnt. The mean's loss is {100 * abs(more):.0f} % {'above' if more > 0 else 'below'} the best "
                f"client's there, as a share of its own, and on the way to the mean the loss rises by up to "
                f"{100 * ridge(plane):.0f} %. This plane alone once decided claims of Figures 1, 8 and 10; it is shown "
                "and not judged."
            )
    return " ".join(said)


def beat_each(claim: str, planes: Sequence[tuple[str, Any]], cost: Any) -> Outcome:
    """Of three clients and their mean on planes: error, with an interval over test samples, and loss."""
    rule = (
        "On each plane the best client's error minus the mean's is above 0 (95 % interval over test samples), and so "
        f"is the logarithm of the best client's loss over the mean's. {ONE} {ONLY}"
    )

    def judge(of: Sequence[tuple[str, Any]]) -> Outcome:
        numbers = []
        for where, plane in of:
            three, mean = models(plane)
            samples = int(plane.attrs["samples"])
            numbers.append(share_difference(f"error, {where}", min(m.error for m in three), mean.error, samples))
        for where, plane in of:
            three, mean = models(plane)
            numbers.append(Number(f"loss, {where}", math.log(min(m.loss for m in three) / mean.loss)))
        return above(claim, rule, numbers, cost)

    return replace(
        where_learnt(claim, rule, planes, judge), changed=f"two claims, of the error and of the loss; {FAIR}"
    )


def cohorts(results: Path, silo: Sequence[int]) -> list[Outcome]:
    """Figures 8 and 9, across silos: those across devices are Figure 1's. Whether participation brings the mean nearer
    to the minimum is measured and not judged: the paper's figures and its text disagree."""
    from fedscope import Plane

    own = [(f"round {t}", Plane.load(results / f"fig8-silo.round-{t}")) for t in silo]
    claim = (
        "Across silos, too, the mean of three clients has a lower test loss and a lower test error than each of them."
    )
    return [replace(beat_each(claim, own, planned("silo")), key="three_across_silos")]


def common_basin(
    results: Path, names: Sequence[tuple[str, str, int]], rounds: Callable[[int], Sequence[int]]
) -> list[Outcome]:
    """Figure 10: whether a ridge parts the three clients from their mean.

    Args:
        names: the planes' name, their words, and the rounds of their run; rounds: which of these are shown.
    """
    from fedscope import Plane

    own = [
        (f"{words}, round {t}", Plane.load(results / f"{name}.round-{t}"))
        for name, words, count in names
        for t in rounds(count)
    ]

    def judge(bound: float) -> Outcome:
        found = [Number(where, ridge(plane)) for where, plane in own if float(plane.error.min()) <= LEARNT]
        return inside(
            "The clients' models are in a common basin (three of the figure's four rows, one with other data).",
            "On the straight line from each of the three clients to their mean, the interpolated loss never rises more "
            f"than 5 % above the client's. The number is the largest rise. {ONLY} {ONE}",
            found,
            -math.inf,
            bound,
            planned("device"),
            percent=True,
        )

    found = over_bound("a rise by the share …", 0.05, (0.01, 0.05, 0.1, 0.25), judge)
    return [replace(found, key="common_basin", changed=FAIR)]


def misses(results: Path, device: Sequence[int], silo: Sequence[int]) -> str:
    """How far the least loss of a plane lies below that of the clients' mean, in both federations."""
    from fedscope import Plane

    rows = ["| phase | across devices | across silos |", "| --- | --- | --- |"]
    for phase, of_device, of_silo in zip(("early", "halfway", "last"), device, silo, strict=True):
        planes = [
            Plane.load(results / f"{name}.round-{t}") for name, t in (("fig1", of_device), ("fig8-silo", of_silo))
        ]
        shares = [f"{100 * _above_least(plane):.1f} %" for plane in planes]
        rows.append(f"| {phase} (rounds {of_device}, {of_silo}) | {shares[0]} | {shares[1]} |")
    return "\n".join(["How far the plane's lowest loss is below the mean's, as a share of the mean's:", "", *rows])


def depths(results: Path) -> list[Number]:
    """Figure 5b: by how much the lowest inner loss of each line lies below both ends'."""
    from fedscope import Line

    lines, found = Line.load(results / "fig5b"), []
    for pair, loss in zip(lines.pairs, lines.loss, strict=True):
        ends = [float(loss[lines.beta == end][0]) for end in (0.0, 1.0)]
        inside = loss[(lines.beta > 0) & (lines.beta < 1)]
        found.append(Number(pair, (min(ends) - float(inside.min())) / min(ends)))
    return found


def inner(results: Path) -> list[Outcome]:
    """Figure 5b."""
    return [
        replace(
            above(
                "Between global models of different rounds there is a point with a lower test loss than both.",
                "On each line the lowest inner loss is below both ends'. The number is a share of the lower end's. "
                f"{ONE}",
                depths(results),
                planned("device"),
                percent=True,
            ),
            key="inner",
            changed="numbers without an interval decided",
        )
    ]


def centre(results: Path) -> list[Outcome]:
    """Figure 5c."""
    import numpy as np

    from fedscope import Line

    line = Line.load(results / "fig5c")

    def change(end: float) -> float:
        losses = np.interp([end - 0.1, end + 0.1], line.beta, line.loss[0])
        return float(abs(losses[1] - losses[0]))

    fma, ima = change(0.0), change(1.0)
    claim = above(
        "IMA's model lies where its line to FMA's is flat, and FMA's where it is steep (FedAvg).",
        "The change of the loss over a fifth of the line, its middle FMA's model, minus that around IMA's, as a share "
        f"of the former, is above 0. {ONE}",
        [Number("last round", (fma - ima) / fma)],
        planned("device", "device-ima"),
        percent=True,
    )
    return [replace(claim, key="flat_centre", changed="the claim was Figure 7c's, which has it too")]


def _above_least(plane: Any) -> float:
    """How far the mean's loss lies above the least of the plane, as a share of the mean's."""
    mean = models(plane)[1]
    return float((mean.loss - plane.loss.min()) / mean.loss)
