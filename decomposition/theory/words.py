"""What was found of Lemma 1 and Theorem 2, in words."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Any

from ...checkpoints.errors import listed
from .slopes import local_slopes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .bounds import ClientBound
    from .locality import Gap
    from .result import Theory

NAMES = {"gp_variance": "Gaussian-process", "replay_variance": "replay"}


def sentence(result: Theory) -> str:
    """A line of Lemma 1, with slopes, and one a round of Theorem 2, with correlations and their numbers of clients."""
    slope, counting = result.slope, [one for one in result.rounds if one.counts]
    if slope is None:
        first = f"gaps of {len(counting)} rounds, and a slope over rounds needs three with different Δ"
    else:
        ratios = [one.ratio for one in counting if one.ratio is not None]
        first = (
            f"gap against Δ² over {slope.points} rounds, slope {slope.value:.2f} ± {slope.stderr:.2f} (dependent "
            f"rounds), gap/Δ² {min(ratios):.2g} to {max(ratios):.2g}"
        )
    parts = [", ".join([first, *(f"{count} left out ({why})" for why, count in left_out(result.rounds).items())])]
    for number, path in result.paths.items():
        steps = local_slopes(path)
        shown = f"slope {steps[0]:.2f} at first, {steps[-1]:.2f} at the end" if steps else without_gaps(path)
        parts.append(f"clients of round {number} shrunk {1 / path[-1].shrink:g}-fold, {shown}")
    lines = [f"{result.run}, Lemma 1: " + "; ".join(parts)]
    for number, bounds in result.by_round.items():
        against = [_against(result, number, *names) for names in NAMES.items() if _has(bounds, names[0])]
        lines.append(
            f"{result.run}@{number}, Theorem 2, {len(bounds)} clients: prediction and "
            + "; and ".join(against)
            + _bounded(bounds)
        )
    return "\n".join(lines)


def left_out(gaps: Sequence[Gap]) -> dict[str, int]:
    """How many gaps are in no fit, by the reason; none where all are."""
    broken = sum(not one.finite for one in gaps)
    small = sum(not one.counts for one in gaps) - broken
    every = {"clients alike, or rounding": small, "not finite: training diverged": broken}
    return {why: count for why, count in every.items() if count}


def without_gaps(gaps: Sequence[Gap]) -> str:
    """What to say where there is no gap to show: whether one is too small or training diverged.

    >>> from .locality import Gap
    >>> without_gaps([Gap(3, 1.0, float("nan"), 1.0, 1.0, 1.0)]), without_gaps([Gap(3, 1.0, 0.0, 0.0, 0.0, 1.0)])
    ('no finite gap: training diverged', 'no gap above rounding')
    """
    return "no gap above rounding" if any(one.finite for one in gaps) else "no finite gap: training diverged"


def _bounded(bounds: Sequence[ClientBound]) -> str:
    """How far the bound that holds for any kernel is from the Gaussian process's variance."""
    ratios = [one.bound / one.gp_variance for one in bounds if one.gp_variance > 0 and isfinite(one.bound)]
    if not ratios:
        return ""
    return (
        f"; the upper bound of the Gaussian-process variance is {min(ratios):.2g} to {max(ratios):.2g} times as large"
    )


def _has(bounds: Sequence[ClientBound], variance: str) -> bool:
    return all(getattr(one, variance) is not None for one in bounds)


def _against(result: Theory, round_: int, variance: str, name: str) -> str:
    found = result.correlation(round_, variance)
    if found is None:
        broken = [one.client for one in result.by_round[round_] if not isfinite(getattr(one, variance) * one.predicted)]
        if broken:
            whose = f"client{'s' if len(broken) > 1 else ''} {listed(broken)}"
            return f"{name} variance have no correlation: they are not finite for {whose}"
        return f"{name} variance have no correlation (4 clients or more with different numbers have one)"
    return (
        f"{name} variance r = {found.pearson:.2f} [{found.low:.2f}, {found.high:.2f}], ranks {found.spearman:.2f} "
        f"(p = {found.spearman_p:.2g})"
    )


def as_numbers(result: Theory) -> dict[str, Any]:
    """All of it, for other programs."""
    slope = result.slope
    return {
        "run": result.run,
        "slope": None if slope is None else asdict(slope),
        "gaps": [{**asdict(one), "ratio": one.ratio} for one in result.gaps],
        "clients": [one.to_json() for one in result.bounds],
        "correlations": [asdict(one) for one in result.correlations],
    }
