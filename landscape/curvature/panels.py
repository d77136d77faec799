"""What figures of sharpness share: measures and their titles, sizes, axes, and the remark below."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.style import describe_data
from ...plotting.ticks import decades, even, power_of_ten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from .result import Curvature, Sharpness

TITLES = {
    "eigenvalue_1": "largest eigenvalue",
    "trace": "trace",
    "worst_case": "worst rise",
    "ball_mean": "mean rise",
    "filter_worst_case": "worst rise, filters",
    "filter_mean": "mean rise, filters",
}
#: measures of the Hessian, whose unit is that of the loss per unit of weight squared
HESSIAN = ("eigenvalue_1", "trace")
# Whose stderr is one; an eigenvalue's is a bound, too small to be seen.
SPREAD = ("trace", "ball_mean", "filter_mean")

# Inches. Two columns of panels, unless one is narrower than NARROWEST; LABELS is the most that names of models take.
LEFT, RIGHT, TITLE, NARROWEST = 0.52, 0.1, 0.18, 0.75
OVER_ROUNDS, ROW, DENSITY, LABELS = 0.85, 0.15, 1.15, 1.25
# Below a panel: its numbers, and where it has one its label.
NUMBERS, LABEL = 0.17, 0.15


def unit_of(name: str, attrs: Mapping[str, Any]) -> str:
    """The unit of a measure; "" of a loss that has none.

    >>> unit_of("trace", {}), unit_of("worst_case", {}), unit_of("trace", {"loss_units": ""})
    ('nats/$w^2$', 'nats', '')
    """
    if attrs.get("loss_units", "nat") != "nat":
        return ""
    return "nats/$w^2$" if name in HESSIAN else "nats"


def scale_of(values: np.ndarray, base: str) -> tuple[bool, float, str]:
    """Tell whether the axis is logarithmic, the power of ten that stands in its unit, and the unit."""
    finite = values[np.isfinite(values)]
    if finite.size and finite.min() > 0 and finite.max() > 20 * finite.min():
        return True, 1.0, f"{base}, log" if base else "log"
    power = power_of_ten(values, 3)
    return False, 10.0**power, rf"$10^{{{power}}}$ {base}".strip() if power else base


def set_ticks(axes: Axes, axis: Axis, log: bool) -> None:
    """Tick an axis, logarithmically if its values ask for it."""
    if not log:
        even(axis, 4)
        return
    if axis is axes.yaxis:
        axes.set_yscale("log")
    else:
        axes.set_xscale("log")
    low, high = axis.get_view_interval()
    few = high < 300 * low  # then 0.03 and 0.1 rather than powers of ten
    decades(axis, (1.0, 3.0) if few else (1.0,), 8, plain=few)


def remark_of(result: Sharpness, over_rounds: bool, *, drawn: Sequence[str] = tuple(TITLES)) -> str:
    """Describe radii, bars and data for below the figure, of the measures that are drawn; without bars where these are
    not all."""
    parts = []
    measures = [measure for _, measure in result.measures()]
    if any("$w^2$" in unit_of(measure.name, result.attrs) for measure in measures if measure.name in drawn):
        parts.append("$w$: unit of weight")
    radii = {measure.name: measure.radius for measure in measures if measure.radius is not None}
    if "worst_case" in radii and "worst_case" in drawn:
        parts.append(f"rise: of the loss within a distance ($L_2$) of {radii['worst_case']:g}")
    if "filter_worst_case" in radii and "filter_worst_case" in drawn:
        parts.append(f"filters: within {radii['filter_worst_case']:g} of each filter's length")
    bars = not result.distances and any(measure.name in SPREAD and measure.stderr is not None for measure in measures)
    if bars and len(drawn) == len(TITLES):
        parts.append("bars: standard error over draws")
    if over_rounds and kinds_of(result.models) == ["global", "averaged"]:
        parts.append("squares: averaged models")
    if result.attrs.get("frozen_parameters"):
        words = "with" if result.attrs.get("frozen") == "counted" else "without"
        parts.append(f"{words} {result.attrs['frozen_parameters']:,} frozen parameters")
    broken = sum(measure.value is not None and not math.isfinite(measure.value) for measure in measures)
    if broken:
        parts.append(f"{broken} numbers not finite ({'crosses' if len(drawn) == len(TITLES) else 'hatched'})")
    if "data" in result.attrs:
        fewer = " or fewer of each" if "places" in result.attrs else ""
        parts.append(f"{describe_data(result.attrs)}{fewer}")
    return "; ".join(parts)


def kinds_of(models: Sequence[Curvature]) -> list[str]:
    """``global`` first, so that it is a circle everywhere."""
    return sorted({model.model for model in models}, key=lambda kind: (kind != "global", kind))
