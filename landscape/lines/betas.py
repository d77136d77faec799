"""The points of a line, and which part of what lies between its ends they cover."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...checkpoints import FedscopeError
from ..planes.rises import in_a_row

#: points that lie further apart than so many of a line's usual steps have a part between them that was not measured
APART = 1.5


def betas_on(span: tuple[float, float], points: int) -> np.ndarray:
    """``points`` equally spaced β on ``span``, 0, ½ and 1 exactly among them where the span holds them: few points that
    go past the mean of both models would leave out most of a barrier.

    >>> betas_on((-0.5, 1.5), 5).tolist()
    [-0.5, 0.0, 0.5, 1.0, 1.5]
    >>> betas_on((0.5, 1.25), 2).tolist()
    [0.5, 1.0, 1.25]
    >>> betas_on((0.0, 1.0), 2).tolist()
    [0.0, 0.5, 1.0]

    Raises:
        FedscopeError: fewer than two points, or a span that does not rise.
    """
    low, high = float(span[0]), float(span[1])
    if points < 2 or not low < high:
        raise FedscopeError(
            f"{points} points from {low:g} to {high:g} make no line; give at least 2, the smaller end first"
        )
    betas = np.linspace(low, high, points)
    step = (high - low) / (points - 1)
    for end in (0.0, 0.5, 1.0):
        nearest = int(np.argmin(np.abs(betas - end)))
        if abs(betas[nearest] - end) < 1e-9 * step:
            betas[nearest] = end
        elif low < end < high:
            betas = np.sort(np.append(betas, end))
    return betas


def measured_parts(beta: np.ndarray) -> list[tuple[float, float]]:
    """Return the parts of the way from β = 0 to 1 that the points ``beta`` [points], ascending, cover.

    Two neighbours have a gap between them where they lie further apart than 1.5 times the median step. A part has a
    point besides 0 and 1, at which a line always has its models.

    >>> measured_parts(np.array([0.0, 0.5, 1.0])), measured_parts(np.array([0.0, 1.0, 1.5, 2.0]))
    ([(0.0, 1.0)], [])
    >>> measured_parts(np.array([0.0, 0.8, 0.9, 1.0, 1.1]))
    [(0.8, 1.0)]
    """
    inside = beta[(beta >= 0) & (beta <= 1)]
    if not ((inside > 0) & (inside < 1)).any():
        return []
    step = APART * float(np.median(np.diff(beta)))
    parts = np.split(inside, np.flatnonzero(np.diff(inside) > step) + 1)
    return [(float(part[0]), float(part[-1])) for part in parts if ((part > 0) & (part < 1)).any()]


def covers_all(beta: np.ndarray) -> bool:
    """Whether the points cover the whole way between the ends.

    >>> covers_all(np.array([-0.5, 0.0, 0.5, 1.0])), covers_all(np.array([0.0, 0.8, 0.9, 1.0]))
    (True, False)
    """
    return measured_parts(beta) == [(0.0, 1.0)]


def coverage_words(beta: np.ndarray, sign: str = "beta") -> str:
    """Say which part of the way between the ends was measured; nothing where it is all.

    >>> coverage_words(np.array([0.0, 0.25, 0.5, 0.75, 1.0]))
    ''
    >>> coverage_words(np.array([0.0, 0.5, 0.9, 0.95, 1.0, 1.05]))
    'between the ends only beta = 0.5 and 0.9 to 1 was measured'
    >>> coverage_words(np.array([0.0, 1.0, 1.5, 2.0]))
    'no point between the ends was measured'
    """
    if covers_all(beta):
        return ""
    parts = measured_parts(beta)
    if not parts:
        return "no point between the ends was measured"
    told = in_a_row([f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}" for low, high in parts])
    return f"between the ends only {sign} = {told} was measured"


def coverage_findings(beta: np.ndarray) -> dict[str, Any]:
    """Return the parts that were measured, where those are not all, as an entry of a result's findings."""
    return {} if covers_all(beta) else {"measured": [list(part) for part in measured_parts(beta)]}


def betas_of(attrs: Mapping[str, Any]) -> np.ndarray:
    """Return the points of lines that say only what was asked for; where they do not, those of the whole way.

    >>> betas_of({"range": [0, 1], "points": 3}).tolist(), betas_of({}).tolist()
    ([0.0, 0.5, 1.0], [0.0, 0.5, 1.0])
    """
    low, high = attrs.get("range", (0.0, 1.0))
    return np.union1d(betas_on((low, high), int(attrs.get("points", 3))), [0.0, 1.0])
