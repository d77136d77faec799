"""Consensus distances over rounds, and the merged model against the nodes' own. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...checkpoints import FedscopeError
from ...plotting.drawing import drawing
from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.looks import looks_of
from ...plotting.style import CHARACTER, describe_data, describe_statistics, paper_style, shorten_label, word_of
from ...plotting.ticks import even, few_marks, from_zero, isolated, label_ends, power_of_ten, room_for_ends
from ..draws.divergence import diverged_words, lost_rounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import Consensus, MeasuredRound

# Inches. Room left of the panels and right of them, the panels' height, room between and below them.
LEFT, RIGHT, HIGH, BETWEEN, BELOW = 0.52, 0.1, 1.1, 0.14, 0.36
# Letters of a name at a line's end; names stand 6 % of a panel's width right of it.
LETTERS, AWAY = 13, 0.06
# More rounds than this are a line without marks.
MARKED = 25
#: of each panel the solid and the dashed line: a name, and what it is of
DISTANCES = (("before mixing", "before"), ("after mixing", "after"))
MODELS = (("merged", "merged"), ("nodes' mean", "nodes"))


@drawing
def draw(result: Consensus, width: float = 3.5, title: str | None = None) -> Figure:
    """Above the consensus distance before mixing and after it (dashed), below the error of the merged model and the
    nodes' mean error (dashed), or losses where there are no errors; a colour a run. ``width`` in inches.

    Raises:
        FedscopeError: no round.
    """
    runs = result.of_runs()
    if not runs:
        raise FedscopeError("the result has no round to draw; compute it again with --force")
    share = result.measure == "error"
    with paper_style(width):
        said = wrap_words(_remark(result), width - 0.2, 0.86)
        names = list(runs) if len(runs) > 1 else [name for name, _ in (*DISTANCES, *MODELS)]
        longest = min(LETTERS, max(map(len, names)))
        across = (width - LEFT - RIGHT - CHARACTER * longest) / (1 + AWAY)
        top, high = EDGE + (0.2 if title else 0.06), max(HIGH, room_for_ends(len(runs)))
        sheet = FigureLayout(width, top + 2 * high + BETWEEN + BELOW + LINE * len(said) + EDGE, title)
        upper = sheet.axes(LEFT, top, across, high, ylabel=0.38)
        lower = sheet.axes(LEFT, top + high + BETWEEN, across, high, ylabel=0.38)
        far = _power(result, DISTANCES, "")
        near = 0 if share else _power(result, MODELS, "_loss")
        _lines(upper, runs, DISTANCES, "", 10.0**-far)
        _lines(lower, runs, MODELS, f"_{result.measure}", 100 if share else 10.0**-near)
        upper.set_ylabel(rf"distance ($10^{{{far}}}$ $L_2$)" if far else "distance ($L_2$)")
        upper.tick_params(labelbottom=False)
        split = word_of(result.attrs, "split")
        unit = " (%)" if share else rf" ($10^{{{near}}}$)" if near else ""
        lower.set_ylabel(f"{split} {result.measure}{unit}".strip())
        lower.set_xlabel("round", labelpad=1)
        for axes in (upper, lower):
            _finish(axes, runs)
            label_ends(axes, high)
        return sheet.finished(said)


def _power(result: Consensus, pair: tuple[tuple[str, str], ...], end: str) -> int:
    """Find the power of ten that is taken out of a panel's numbers, whose room at the axis is for three digits."""
    found = [getattr(one.row, f"{name}{end}") for one in result.rounds for _, name in pair]
    return power_of_ten(np.array([np.nan if number is None else number for number in found], float), 2)


def _lines(
    axes: Axes, runs: dict[str, list[MeasuredRound]], pair: tuple[tuple[str, str], ...], end: str, scale: float
) -> None:
    """Draw a solid and a dashed line a run; of several runs the solid one is called after its run."""
    for place, (look, (run, rounds)) in enumerate(zip(looks_of(list(runs)), runs.items(), strict=True)):
        at = [one.row.round for one in rounds]
        for (name, value), dashes in zip(pair, ("-", (0, (3, 1.5))), strict=True):
            found = [getattr(one.row, f"{value}{end}") for one in rounds]
            values = scale * np.array([np.nan if number is None else number for number in found], float)
            if end:  # errors of models that diverged are those of no answers
                values[[one.is_lost for one in rounds]] = np.nan
            label = name if len(runs) == 1 else shorten_label(run, LETTERS) if dashes == "-" else f"_{name}"
            marks: dict[str, Any] = {"marker": look["marker"] if dashes == "-" or len(runs) > 1 else "_"}
            if dashes != "-":
                marks |= {"markerfacecolor": "white", "markeredgewidth": 0.6}
            if len(at) > MARKED:
                marks["markevery"] = sorted({*isolated(values), *few_marks(len(at), len(runs), place)})
            style: dict[str, Any] = {"color": look["color"], "linestyle": dashes, "linewidth": 0.9, "markersize": 2.6}
            axes.plot(at, np.ma.masked_invalid(values), label=label, clip_on=False, zorder=3, **style, **marks)


def _finish(axes: Axes, runs: dict[str, list[MeasuredRound]]) -> None:
    rounds = sorted({one.row.round for own in runs.values() for one in own})
    even(axes.yaxis, 4, quarters=True)
    if len(rounds) == 1:
        axes.set_xlim(rounds[0] - 1, rounds[0] + 1)
        axes.set_xticks(rounds)
    else:
        even(axes.xaxis, 6, integer=True)
        axes.margins(x=0.03)
    axes.autoscale_view()  # now, because labels stand where the lines end, which the limits decide
    from_zero(axes)


def _remark(result: Consensus) -> str:
    every = {one.row.mixing for one in result.rounds}
    whose = ", which no node has" if "one" not in every else "; mixing gives all one model" if every == {"one"} else ""
    parts = ["distance: √(1/C\u00a0Σ\u00a0‖w − w̄‖²) over nodes", f"merged: the mean of all nodes{whose}"]
    if len(result.of_runs()) > 1:
        parts.append("dashed: after mixing, and the nodes' mean")
    unknown = [one for one in result.rounds if one.row.after is None]
    if unknown:
        parts.append(f"after mixing is not known in {len(unknown)} of {len(result.rounds)} rounds")
    parts += _diverged(result)
    if "data" in result.attrs:
        parts.append(describe_data(result.attrs))
    parts.append(describe_statistics(result.attrs, str(result.attrs.get("normalization_policy", ""))))
    return "; ".join(filter(None, parts))


def _diverged(result: Consensus) -> list[str]:
    """Say which rounds have models that are not finite, of each run; of one round whose they are."""
    lost = {run: [one for one in own if one.diverged or one.is_lost] for run, own in result.of_runs().items()}
    lost = {run: rounds for run, rounds in lost.items() if rounds}
    if len(lost) == 1 and len(only := next(iter(lost.values()))) == 1 and only[0].diverged:
        return [diverged_words(only[0].diverged, only[0].row.round)]
    several = len(result.of_runs()) > 1
    return [
        (f"{run}: " if several else "") + lost_rounds([one.row.round for one in rounds]) for run, rounds in lost.items()
    ]
