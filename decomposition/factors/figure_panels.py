"""The panels of the figure of factors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.empty import say_empty
from ...plotting.style import CHARACTER, COLOURS, GREY, literal
from ...plotting.ticks import even, isolated
from .fixed import fixed_factors, has_full_batches
from .rows import RoundFactors, is_recorded

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ...training.curves.run_curve import ErrorCurve

BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE, BLACK = COLOURS


@dataclass(frozen=True)
class Look:
    """Look of a factor, everywhere alike: a colour, and a marker for those who do not see it."""

    label: str
    color: str
    marker: str


LOOKS = {
    "heter_bias": Look("heterog.\nbias", VERMILION, "s"),
    "train_bias": Look("training bias", BLUE, "o"),
    "bias_cross": Look("cross term", PURPLE, "D"),
    "bias": Look("bias²", VERMILION, "s"),
    "variance": Look("variance", GREEN, "^"),
    "covariance": Look("covariance", ORANGE, "v"),
    "locality": Look("locality", SKY, "P"),
    "remainder": Look("remainder", SKY, "P"),
    "fma_loss": Look("loss of the\nplain average", BLACK, "."),
}
# Only the bias of the squared error is a square.
LOOKS_OF_OTHERS = {**LOOKS, "bias": Look("bias", VERMILION, "s")}
UNIFORM = "uniform\noutputs"
# Large, whatever their size: they are what a figure is read for.
LEADING = ("heter_bias", "bias", "locality", "remainder")
# Below this share of the greatest factor, a factor is a line along zero: it gets a panel where it can be read.
TINY = 0.05
CLOUD: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 2.2,
    "alpha": 0.7,
    "markeredgewidth": 0,
    "label": "_client",
}
BAR: dict[str, Any] = {"elinewidth": 0.7, "capsize": 1.5, "capthick": 0.7}
LINE: dict[str, Any] = {"linewidth": 1.0, "markersize": 3.0}


def group_factors(rounds: Sequence[RoundFactors]) -> tuple[list[str], list[str]]:
    """Return the factors to draw, (large, small) over all these rounds; LEADING always count as large. What is fixed by
    construction (:func:`~fedscope.decomposition.factors.fixed.fixed_factors`) is not drawn."""
    if all(one.loss == "squared" for one in rounds):
        split = any(one.split for one in rounds)
        biases = ("heter_bias", "bias_cross", "train_bias") if split else ("bias",)
        names = [*biases, "locality", "variance", "covariance"]
    else:
        names = ["bias", "remainder", "variance"]
    names = [name for name in names if name not in fixed_factors(rounds)]
    # of the recorded models alone nothing scatters
    names = [
        name for name in names if any(one.row(name).value is not None for one in rounds) or not is_recorded(rounds)
    ]
    top = {
        name: max((abs(value) for value in _values(rounds, name) if np.isfinite(value)), default=0.0) for name in names
    }
    limit = TINY * max(top.values())
    large = [name for name in names if top[name] >= limit or name in LEADING]
    return large, [name for name in names if name not in large]


def draw_factor_lines(ax: Axes, rounds: Sequence[RoundFactors], factors: Sequence[str], apart: float = 0.0) -> None:
    """Factors over rounds with 95 % intervals over draws. `apart`, a share of the rounds' span, moves factors sideways
    whose bars would cover each other."""
    ax.axhline(0, color="0.6", linewidth=0.5, zorder=0)
    x = np.array([one.round for one in rounds], dtype=np.float64)
    step = apart * max(np.ptp(x), 1.0) if len(x) else 0.0
    looks = LOOKS if all(one.loss == "squared" for one in rounds) else LOOKS_OF_OTHERS
    for number, factor in enumerate(factors):
        look: dict[str, Any] = {"color": looks[factor].color, "marker": looks[factor].marker}
        look |= {"linestyle": "--", "zorder": 3} if factor == "fma_loss" else {"linestyle": "-", "zorder": 2}
        _draw_with_bars(ax, x + step * (number - (len(factors) - 1) / 2), rounds, factor, looks[factor].label, **look)


def symmetric_log(axes: Sequence[Axes]) -> None:
    """Linear about zero, logarithmic beyond: two decades below the greatest value are told apart, and signs are
    kept."""
    drawn = [line.get_ydata(orig=True) for ax in axes for line in ax.lines if not str(line.get_label()).startswith("_")]
    values = np.abs(np.concatenate([np.asarray(y, dtype=np.float64) for y in drawn]))
    top = np.max(values[np.isfinite(values)], initial=0.0)
    if top > 0:
        least = 10.0 ** (np.floor(np.log10(top)) - 2)
        axes[0].set_yscale("symlog", linthresh=least, linscale=0.6)
        decades = least * 10.0 ** np.arange(4)
        # The two next to zero would touch its label.
        axes[0].set_yticks([*-decades[:0:-1], 0.0, *decades[1:]])


def draw_clients(ax: Axes, rounds: Sequence[RoundFactors], split: str) -> None:
    """Mean ‖y − f̄_k‖² of every client on its own samples and on the others', with p-weighted means.

    Read this before saying that training bias is almost zero: in the factors it carries p_k², here it does not.
    """
    span = max(one.round for one in rounds) - min(one.round for one in rounds) if rounds else 0
    what = "data" if split == "train" else "labels"
    for field, label, shift in (("train_bias", f"own {what}", -1), ("heter_bias", f"other {what}", 1)):
        look = LOOKS[field]
        means = []
        for one in rounds:
            known = [(value, row.weight) for row in one.clients if (value := getattr(row, field)) is not None]
            # Beside the line and not on it, so that the mean stays visible among its clients.
            at = np.full(len(known), one.round + shift * 0.012 * max(span, 1))
            ax.plot(at, [value for value, _ in known], color=look.color, **CLOUD)
            weight = sum(p for _, p in known)
            means.append(sum(value * p for value, p in known) / weight if weight else np.nan)
        ax.plot(
            [one.round for one in rounds], means, color=look.color, marker=look.marker, label=label, zorder=3, **LINE
        )
    if rounds and all(one.outputs == "probabilities" for one in rounds):
        # A client that knows nothing: ||y - 1/C||^2 = 1 - 1/C.
        ax.axhline(1 - 1 / rounds[0].classes, color=GREY, linestyle=":", linewidth=0.8, label=UNIFORM)


def draw_distances(ax: Axes, rounds: Sequence[RoundFactors]) -> None:
    """Δ = mean_r max_k ||w_k^r - w_FMA^r|| over rounds, and below it the mean over clients, with 95 % intervals over
    draws."""
    x = [one.round for one in rounds]
    for factor, label, marker, dash, colour in (
        ("delta_max", "Δ (greatest)", "o", "-", BLACK),
        ("delta_mean", "mean", "s", (0, (4, 1.5)), GREY),
    ):
        _draw_with_bars(ax, x, rounds, factor, label, color=colour, marker=marker, linestyle=dash)


def _draw_with_bars(
    ax: Axes, x: Sequence[int] | np.ndarray, rounds: Sequence[RoundFactors], factor: str, label: str, **look: Any
) -> None:
    bars = _bars(rounds, factor)
    known = None if np.isnan(bars).all() else np.nan_to_num(bars)
    drawn = ax.errorbar(x, _values(rounds, factor), yerr=known, label="_bars", **BAR, **LINE, **look)
    drawn[0].set_label(label)


def _bars(rounds: Sequence[RoundFactors], factor: str) -> list[float]:
    """Half the 95 % intervals over draws, of the recorded models alone over samples; NaN where there is none."""
    from scipy.stats import t

    rows = [one.row(factor) for one in rounds]
    if is_recorded(rounds):
        return [np.nan if row.stderr_samples is None else 1.96 * row.stderr_samples for row in rows]
    return [
        np.nan
        if row.stderr_draws is None or has_full_batches(one)
        else float(t.ppf(0.975, one.count - 1) * row.stderr_draws)
        for one, row in zip(rounds, rows, strict=True)
    ]


def draw_errors(ax: Axes, curves: Sequence[ErrorCurve]) -> None:
    """Draw the measured test error of every round, in per cent; the average over rounds, where there is one, in
    front."""
    for number, curve in enumerate(curves):
        colour, wide = (GREY, BLACK, BLUE, VERMILION)[number % 4], 0.8 if number == 0 else 1.2
        error = [100 * value for value in curve.error]
        look: dict[str, Any] = {"color": colour, "linewidth": wide, "label": literal(curve.label), "zorder": 2 + number}
        if alone := isolated(np.array(error)):  # no line goes through it
            look |= {"marker": "o", "markersize": LINE["markersize"], "markevery": alone}
        ax.plot(curve.rounds, error, **look)


def round_axis(ax: Axes, rounds: Sequence[int], wide: float, *, two: bool) -> None:
    """An axis of whole rounds, `wide` in inches; with `two` numbers alone, of the first and of the last round."""
    from matplotlib.ticker import FixedLocator

    first, last = min(rounds, default=0), max(rounds, default=1)
    # Room for what stands beside its round, and for half a marker.
    beside = max(0.04, 0.03 / wide) * (last - first) or 0.5
    ax.set_xlim(first - beside, last + beside)
    if first == last:
        ax.xaxis.set_major_locator(FixedLocator([first]))
    elif two:
        # More digits than these would run into each other.
        fit = len(f"{first}{last}") * CHARACTER / 2 < wide
        ax.xaxis.set_major_locator(FixedLocator([first, last] if fit else [last]))
    else:
        even(ax.xaxis, int(min(9, max(2, wide / 0.3))), integer=True)


def say_where_empty(axes: Sequence[Axes], wide: float) -> None:
    """Write into the panels of one row, each `wide` inches, which of them have nothing to show, and why."""
    empty = 0
    for ax in axes:
        lines = [line for line in ax.lines if not str(line.get_label()).startswith("_") and line.get_label() != UNIFORM]
        if any(np.isfinite(np.asarray(line.get_ydata(orig=True), dtype=np.float64)).any() for line in lines):
            continue
        empty += 1
        words = ("not finite" if wide > 11 * CHARACTER else "not\nfinite") if lines else "none"
        say_empty(ax, words)
    if empty == len(axes):
        axes[0].set_yticks([])


def _values(rounds: Sequence[RoundFactors], factor: str) -> list[float]:
    """NaN where there is no number, and of a variance where it is 0 by construction in this round."""
    return [
        np.nan
        if (value := one.row(factor).value) is None or (factor == "variance" and has_full_batches(one))
        else value
        for one in rounds
    ]
