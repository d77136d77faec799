"""How far averaging misses the mode, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .reference import Reference
    from .result import Parameters
    from .summaries import Summary


def sentences(result: Parameters) -> str:
    """How far averaging misses the mode, against what it misses by chance; then a line a parameter."""
    first = result.runs[0]
    what = f"{len(result.names)} parameter{'s' if len(result.names) > 1 else ''}"
    if "top" in result.attrs and result.attrs["top"] is not None:
        what = f"the {len(result.names)} most skewed of {result.attrs.get('size', 0):,} parameters"
    said = f"{first.run}, round {first.round}: "
    found = [abs(one.fma_to_mode) for one in result.summaries if one.fma_to_mode is not None]
    if found:
        said += (
            f"FMA misses the mode of {what} by {span(found)} standard deviations of the {len(first.client_ids)} clients"
        )
        for run in result.runs[1:]:
            theirs = [one.to_mode.get(f"{run.run}/global") for one in result.summaries]
            known = [abs(one) for one in theirs if one is not None]
            said += f", {run.run}'s global by {span(known) if known else 'no finite number'}"
        said += _compared(result.reference)
    else:
        said += f"{what} without a density, so there is no mode to miss"
    lines = [said, *(f"  {one.parameter}: {_line(one)}" for one in result.summaries)]
    lines += [f"  not finite: {', '.join(which)}" for which in [not_finite(result)] if which]
    if differ(result):
        lines.append(
            "  these runs' rounds began from different models, or had other clients or data, so marks of the others "
            "say nothing about their servers; branch them: fedscope train --from"
        )
    return "\n".join(lines)


def differ(result: Parameters) -> bool:
    """Whether further runs did not begin the round as the first did."""
    return len(result.runs) > 1 and not result.attrs.get("same_start")


def not_finite(result: Parameters) -> list[str]:
    """The models with a value that is not finite where the clients have a density, as ``fma/global``."""
    dense = [one.mode is not None for one in result.summaries]
    return [
        f"{run.run}/{which}"
        for run in result.runs
        for which, values in run.models.items()
        if not np.isfinite(values[dense]).all()
    ]


def _compared(reference: Reference | None) -> str:
    if reference is None or reference.sample is None or reference.gaussian is None:
        return ""
    return (
        f"; of {reference.sampled} sampled parameters by {_quartiles(reference.sample)}, of Gaussian values, which "
        f"have no skew, by {_quartiles(reference.gaussian)}"
    )


def _quartiles(values: tuple[float, float, float]) -> str:
    low, median, high = values
    return f"{median:.2f} (median, quartiles {low:.2f} and {high:.2f})"


def _line(one: Summary) -> str:
    if one.constant:
        return "the same in all clients"
    parts = [] if one.skewness is None else [f"skewness {one.skewness:.2f}"]
    parts += [] if one.cv is None else [f"cv {one.cv:.2g}"]
    parts.append(no_density(one) if one.fma_to_mode is None else f"FMA {one.fma_to_mode:.2f} σ from the mode")
    return ", ".join(parts)


def no_density(one: Summary) -> str:
    """Why clients that differ have none, or why plain averaging has no place in it."""
    if not one.finite:
        return "no density: not finite in some client"
    return "no density: differences beyond what float64 squares" if one.mode is None else "FMA not finite"


def span(values: Sequence[float]) -> str:
    """The least and the greatest of some values.

    >>> span([0.3]), span([0.42, 0.3])
    ('0.30', '0.30 to 0.42')
    """
    low, high = (f"{value:.2f}" if value < 100 else f"{value:.3g}" for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
