"""Similarities in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...checkpoints.errors import listed

if TYPE_CHECKING:
    from .result import ClientCKA, ModelCKA


def clients_sentence(result: ClientCKA) -> str:
    """The means of the first and the last round, the last one's extremes, and where CKA does not exist."""
    first, last = result.rounds[0], result.rounds[-1]
    means = [f"{shown(one.mean, one.mean_stderr)} in round {one.round}" for one in (first, last)]
    where = f"{result.run}, {result.layer}" if result.run else result.layer
    said = f"{where}: mean CKA between clients {', '.join(means if last is not first else means[:1])}"
    if extremes := between(last.cka, [str(k) for k in last.client_ids]):
        said += f" (there {extremes})"
    if math.isfinite(last.mean_global):
        said += f"; with global {shown(last.mean_global, last.mean_global_stderr)}"
    for one in result.rounds:
        if one.undefined:
            who = f"client{'s' if len(one.undefined) > 1 else ''} {listed(one.undefined)}"
            said += f"; {undefined(who)} in round {one.round}"
    return said


def models_sentence(result: ModelCKA) -> str:
    """The least and the most alike of several models, and for which CKA does not exist."""
    said = f"{result.layer}: CKA {between(result.cka, result.labels) or 'of no pair'}"
    return said + (f"; {undefined(listed(result.undefined))}" if result.undefined else "")


def shown(value: float, stderr: float) -> str:
    """``0.83 ± 0.01``; without the error where there is none.

    >>> shown(0.8312, 0.012), shown(0.8312, math.nan)
    ('0.831 ± 0.01', '0.831')
    """
    return f"{value:.3g}" + (f" ± {stderr:.1g}" if math.isfinite(stderr) else "")


def between(matrix: np.ndarray, names: Sequence[str]) -> str:
    """The least and the greatest off the diagonal and whose they are; nothing where there is no number.

    >>> between(np.array([[1, 0.25, 0.5], [0.25, 1, 0.75], [0.5, 0.75, 1]]), ["a", "b", "c"])
    '0.25 (a and b) to 0.75 (b and c)'
    """
    rows, columns = np.triu_indices(len(matrix), 1)
    values = matrix[rows, columns]
    if np.isnan(values).all():
        return ""
    ends = [int(np.nanargmin(values)), int(np.nanargmax(values))]
    if len(values) == 1:
        ends = ends[:1]
    return " to ".join(f"{values[k]:.3g} ({names[rows[k]]} and {names[columns[k]]})" for k in ends)


def undefined(who: str) -> str:
    """Why there is no CKA."""
    return f"not defined for {who}, whose features are constant, not finite, or too noisy for so few samples"
