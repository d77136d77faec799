"""A run's numbers over rounds as small charts, drawn as SVG: a few kilobytes that a page takes anew every second."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...plotting.web_page import escape_html
from ...training.curves.measures import CurveMeasure, measure_of
from ...training.curves.run_curve import Curve

#: what is shown of a run where it was measured
CURVES = (
    *("test_loss", "test_error", "train_loss", "client_error_mean", "client_test_error_mean"),
    *("all_client_test_error_mean", "domain_error_mean", "lr", "seconds"),
)
#: points of a line at most; of more, the least and greatest of each stretch
MOST = 300
#: a line that moves by less than this share of its height is drawn flat
FLAT = 1e-4
#: in units of the drawing: its size, and where its axes are
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 320, 150, 46, 8, 8, 18


def charts_html(curve: Curve, names: Sequence[str]) -> str:
    """A chart a measure that has numbers; "" where none has."""
    found = [chart for name in names if (chart := chart_html(curve, measure_of(name)))]
    return f'<div class="charts">{"".join(found)}</div>' if found else ""


def chart_html(curve: Curve, measure: CurveMeasure) -> str:
    """A measure over rounds, with its last number in words; "" where it was never measured.

    The line is the model's that one would deploy; where that is an average, the ``global`` goes on, thin.
    """
    rounds, values = curve.measured(measure)
    if not len(rounds):
        return ""
    scale = 100.0 if measure.is_share else 1.0
    lines = [("deployed", rounds, values * scale)]
    if measure.is_deployed and curve.averaged(measure.column) is not None:
        own = curve.column(measure.column)
        there = ~np.isnan(own)
        lines.insert(0, ("global", curve.round[there], own[there] * scale))
    now = f"{values[-1] * scale:.3g}"
    shown = [(kind, x[np.isfinite(y)], y[np.isfinite(y)]) for kind, x, y in lines]
    drawn = _drawing(shown, logarithmic=measure.is_loss)
    said = f"{measure.label}: {now} in round {int(rounds[-1])}"
    return (
        f'<figure class="chart"><figcaption>{escape_html(measure.label)} <b>{escape_html(now)}</b></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape_html(said)}">{drawn}</svg></figure>'
    )


def _drawing(lines: Sequence[tuple[str, np.ndarray, np.ndarray]], *, logarithmic: bool) -> str:
    all_x = np.concatenate([x for _, x, _ in lines])
    all_y = np.concatenate([y for _, _, y in lines])
    if not len(all_x):
        return f'<text x="{WIDTH // 2}" y="{HEIGHT // 2}" text-anchor="middle">not finite</text>'
    logarithmic = logarithmic and bool((all_y > 0).all()) and float(all_y.max()) > 3 * float(all_y.min())
    height = np.log10 if logarithmic else np.asarray
    low, high = (float(one) for one in (height(all_y).min(), height(all_y).max()))
    if high - low < FLAT * max(abs(low), abs(high)) or high == low:  # it is one number, to rounding
        room = 0.5 * (max(abs(low), abs(high)) or 1.0)
        low, high = low - room, high + room
    first, last = int(all_x.min()), int(all_x.max())

    def x_of(x: np.ndarray) -> np.ndarray:
        return LEFT + (WIDTH - LEFT - RIGHT) * (x - first) / max(1, last - first)

    def y_of(y: np.ndarray) -> np.ndarray:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - height(y)) / (high - low)

    parts = []
    for at in (high, (low + high) / 2, low):
        place = TOP + (HEIGHT - TOP - BOTTOM) * (high - at) / (high - low)
        value = 10.0**at if logarithmic else at
        parts.append(f'<path class="grid" d="M{LEFT} {place:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{place + 4:.1f}" text-anchor="end">{value:.3g}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 3}">round {first}</text>')
    if last > first:
        parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">{last}</text>')
    for kind, x, y in lines:
        if len(x):
            kept = thinned(y)
            places = list(zip(x_of(x[kept]).tolist(), y_of(y[kept]).tolist(), strict=True))
            parts.append(f'<polyline class="{kind}" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in places)}"/>')
            if kind == "deployed":
                parts.append(f'<circle cx="{places[-1][0]:.1f}" cy="{places[-1][1]:.1f}" r="3"/>')
    return "".join(parts)


def thinned(values: np.ndarray, most: int = MOST) -> np.ndarray:
    """Return the places of at most so many values that draw the same line: of each stretch the least and the greatest,
    and the first and last of all.

    >>> thinned(np.array([0, 9, 1, 2, -5, 3, 4, 4]), 6).tolist()
    [0, 1, 4, 6, 7]
    """
    if len(values) <= most:
        return np.arange(len(values))
    kept = {0, len(values) - 1}
    for part in np.array_split(np.arange(len(values)), max(1, math.ceil(most / 2) - 1)):
        kept |= {int(part[np.argmin(values[part])]), int(part[np.argmax(values[part])])}
    return np.array(sorted(kept))
