"""What was found of Lemma 1 and Theorem 2, in words."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .slopes import local_slopes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .bounds import ClientBound
    from .result import Theory

NAMES = {"gp_variance": "Gaussian-process", "replay_variance": "replay"}


def sentence(result: Theory) -> str:
    """A line of Lemma 1, with slopes, and one a round of Theorem 2, with correlations and their numbers of clients."""
    slope, counting = result.slope, [one for one in result.rounds if one.counts]
    left_out = len(result.rounds) - len(counting)
    if slope is None:
        first = f"gaps of {len(counting)} rounds, and a slope over rounds needs three with different Δ"
    else:
        ratios = [one.ratio for one in counting if one.ratio is not None]
        first = (
            f"gap against Δ² over {slope.points} rounds, slope {slope.value:.2f} ± {slope.stderr:.2f} (dependent "
            f"rounds), gap/Δ² {min(ratios):.2g} to {max(ratios):.2g}"
        )
    parts = [first + (f", {left_out} left out (clients alike, or rounding)" if left_out else "")]
    for number, path in result.paths.items():
        steps = local_slopes(path)
        shown = f"slope {steps[0]:.2f} at first, {steps[-1]:.2f} at the end" if steps else "no gap above rounding"
        parts.append(f"clients of round {number} shrunk {1 / path[-1].shrink:g}-fold, {shown}")
    lines = [f"{result.run}, Lemma 1: " + "; ".join(parts)]
    for number, bounds in result.by_round.items():
        against = [_against(result, number, *names) for names in NAMES.items() if _has(bounds, names[0])]
        lines.append(
            f"{result.run}@{number}, Theorem 2, {len(bounds)} clients: prediction and " + "; and ".join(against)
        )
    return "\n".join(lines)


def _has(bounds: Sequence[ClientBound], variance: str) -> bool:
    return all(getattr(one, variance) is not None for one in bounds)


def _against(result: Theory, round_: int, variance: str, name: str) -> str:
    found = result.correlation(round_, variance)
    if found is None:
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
