"""What each server's model has of the loss, less plain FMA's. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...checkpoints import FedscopeError
from ...checkpoints.io.errors import list_few
from ...plotting.drawing import drawing
from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.looks import looks_of
from ...plotting.printed import printed_method
from ...plotting.style import CHARACTER, GREY, describe_data, describe_statistics, literal, paper_style, shorten_label
from .result import settings_behind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .result import ModelRow, Reaggregation

# Inches. Room right of the panel and below it; of a row; the panel's least width.
RIGHT, BELOW, ROW, LEAST = 0.12, 0.36, 0.17, 1.4
# Letters of a name.
LETTERS = 30
# And of plain FMA's at the axis.
SHORT = 16
# Of a loss: what models that differ in their last bits differ by, at most; an axis does not show less.
_ROUNDING = 1e-5


@drawing
def draw(result: Reaggregation, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw the loss of each model less that of plain FMA on the same samples, with its 95 % interval; plain FMA is the
    line at 0. ``width`` in inches.

    Raises:
        FedscopeError: no model has a difference, as in a table of an earlier version.
    """
    rows = result.compared()
    if not rows:
        raise FedscopeError(
            "no model of the result has a finite difference to plain FMA to draw; compute it again with --force, and "
            "with a server other than fma"
        )
    with paper_style(width):
        said = wrap_words(_remark(result, rows), width - 0.2, 0.86)
        most = int((width - RIGHT - LEAST - EDGE - 0.1) / CHARACTER)
        names = [shorten_label(_name(row), min(LETTERS, most)) for row in rows]
        left = EDGE + 0.1 + CHARACTER * max(map(len, names))
        top, high = EDGE + (0.2 if title else 0.06), ROW * (len(rows) + 0.6)
        sheet = FigureLayout(width, top + high + BELOW + LINE * len(said) + EDGE, title)
        axes = sheet.axes(left, top, width - left - RIGHT, high)
        looks = looks_of([row.server or "recorded" for row in rows])
        for place, (row, look) in enumerate(zip(rows, looks, strict=True)):
            mean, spread = row.loss_difference, row.half_of(row.loss_difference_stderr) or 0.0
            assert mean is not None
            colour = look["color"] if row.server else GREY
            axes.plot([mean - spread, mean + spread], [place, place], color=colour, linewidth=1.2, label="_interval")
            axes.plot([mean], [place], "o", color=colour, markersize=3.5, label="_value")
        axes.axvline(0, color="0.6", linewidth=0.6, zorder=0)
        least = _ROUNDING * abs(result.plain.loss) if result.plain is not None else 0.0
        if max(map(abs, axes.get_xlim())) < least:
            axes.set_xlim(-least, least)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_yticks(range(len(names)), names)
        nats = " (nats)" if result.attrs.get("loss_units", "nat") == "nat" else ""
        axes.set_xlabel(f"loss less {shorten_label(_plain(result), SHORT)}'s{nats}", labelpad=1)
        return sheet.finished(said)


def _name(row: ModelRow) -> str:
    """Return a model's name with its server's as it is printed.

    >>> from types import SimpleNamespace
    >>> _name(SimpleNamespace(model="fedsa (quantile=0.9)", server="fedsa"))
    'FedPake (FedSA) (quantile=0.9)'
    >>> _name(SimpleNamespace(model="Soup", server="greedy"))
    'Soup'
    """
    behind = settings_behind(row)
    return row.model if not row.server or behind is None else printed_method(row.server) + behind


def _plain(result: Reaggregation) -> str:
    """Return what plain FMA is called: by its label where it has one."""
    called = result.called("fma")
    return "plain FMA" if called == "fma" else called


def _remark(result: Reaggregation, rows: list[ModelRow]) -> str:
    parts = [f"round {result.attrs['round']}; 0: {literal(_plain(result))}", *_intervals(rows)]
    missing = [row for row in result.measured if row is not result.plain and row not in rows]
    if missing:
        parts.append(f"left out, not finite: {', '.join(literal(_name(row)) for row in missing)}")
    parts.append(describe_data(result.attrs))
    if words := describe_statistics(result.attrs, str(result.attrs.get("normalization_policy", ""))):
        parts.append(words)
    if by := result.attrs.get("align"):
        parts.append(f"the clients' units brought into one order before, matched by {by}")
    return "; ".join(parts)


def _intervals(rows: list[ModelRow]) -> list[str]:
    """Say what the lines are intervals over, clients by Student's t; where it is not the same for all rows, of which
    ones.

    >>> from fedscope.decomposition.reaggregation.result import ModelRow
    >>> one = ModelRow("recorded", "", "", 0.2, 0.1, None, None, loss_difference_stderr=0.1)
    >>> mean = ModelRow("x", "fma", "none", 0.2, 0.1, None, None, 4, loss_difference_stderr=0.1)
    >>> [*_intervals([one]), *_intervals([one, mean])]
    ['lines: 95 % intervals over samples', "lines: 95 % intervals, of recorded over samples, of the other over clients \
(Student's t)"]
    """
    having = [row for row in rows if row.loss_difference_stderr is not None]  # one client has none
    overs = list(dict.fromkeys(row.spread_over for row in having))
    if len(overs) < 2:
        return [f"lines: 95 % intervals over {_told(over)}" for over in overs]
    fewer, more = sorted(overs, key=lambda over: sum(row.spread_over == over for row in having))
    named = list_few([literal(_name(row)) for row in having if row.spread_over == fewer])
    rest = "the others" if sum(row.spread_over == more for row in having) > 1 else "the other"
    return [f"lines: 95 % intervals, of {named} over {_told(fewer)}, of {rest} over {_told(more)}"]


def _told(over: str) -> str:
    return "clients (Student's t)" if over == "clients" else over
