"""Factors over rounds above the measured error, as Figures 2 and 3 of Zhou et al. draw them; drawing only."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..checkpoints import FedscopeError
from ..landscape.paper import CHARACTER, SMALL, new_figure, paper_style, shortened
from .end_labels import label_ends
from .factor_notes import notes
from .factor_panels import draw_clients, draw_errors, draw_factor_lines, group_factors, symmetric_log

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .results import Decomposition, RunFactors

# Inches. Margins are fixed and not fitted, so that panels of figures of one width lie on each other.
LEFT, RIGHT, TOP, GAP, COLUMN_GAP, XLABEL = 0.5, 0.8, 0.36, 0.27, 0.12, 0.4
HEIGHTS = {"large": 1.45, "small": 0.95, "clients": 1.1, "error": 0.75}
NOTE_SIZE, NOTE_LINE = 6.0, 0.105
# A line of headings, one a column, stands between the title and the panels; HEADING is how high above a panel.
TITLE_LINE, HEADING = 0.14, 0.16
# What stands over the panels, in full and where the figure is narrow.
TITLES = {
    "squared": ("factors of the loss", "factors of the loss"),
    "cross-entropy": ("factors of the cross-entropy (nats)", "cross-entropy (nats)"),
    "zero-one": ("factors of the 0-1 loss (share of samples)", "0-1 loss (share)"),
    "small": ("the small ones, enlarged and side by side", "the small ones, enlarged"),
    "clients": ("each client alone; lines: p-weighted means", "each client alone"),
    "error": ("measured test error (%)", "measured test error (%)"),
}


def draw_factors(result: Decomposition, width: float = 3.5, title: str | None = None) -> Figure:
    """The figure of a decomposition: a column of panels a run, `width` inches in all.

    From above: the factors and the loss of the averaged model that they add up to, signed; those too small to be seen
    there, on an axis that is linear about 0 and logarithmic beyond; every client by itself, on its own samples and on
    the others' (of the squared error only); the measured test error. Bars: 95 %, t on R−1 degrees of freedom, over
    draws. Unbiased estimates where they exist, else plug-in ones. What the draws are, and what they cannot show, is
    written below.

    Raises FedscopeError where no run has a round.
    """
    if not any(run.rounds for run in result.runs):
        raise FedscopeError("the decomposition has no round to draw: choose rounds that recorded their clients")
    large, small = group_factors([one for run in result.runs for one in run.rounds])
    exists = {
        "large": True,
        "small": bool(small),
        "clients": any(one.split for run in result.runs for one in run.rounds),
        "error": any(run.curves for run in result.runs),
    }
    panels = [name for name in HEIGHTS if exists[name]]
    with paper_style(width):
        # 0.53 em is a generous mean width of a character, so no line is too long.
        note = textwrap.wrap(notes(result), int((width - 0.12) * 72 / (0.53 * NOTE_SIZE)), break_on_hyphens=False)
        top = TOP + (TITLE_LINE if title and len(result.runs) > 1 else 0.0)
        height = top + sum(HEIGHTS[name] for name in panels) + GAP * (len(panels) - 1)
        height += XLABEL + NOTE_LINE * len(note) + 0.06
        figure = new_figure(width, height)
        axes = _axes(figure, panels, len(result.runs), top)
        for column, run in enumerate(result.runs):
            draw_factor_lines(axes["large", column], run.rounds, [*large, "fma_loss"])
            if exists["small"]:
                draw_factor_lines(axes["small", column], run.rounds, small, apart=0.01)
            if exists["clients"]:
                draw_clients(axes["clients", column], run.rounds, result.split)
            if exists["error"]:
                draw_errors(axes["error", column], run.curves)
        if exists["small"]:
            symmetric_log([axes["small", column] for column in range(len(result.runs))])
        _furnish(axes, panels, [heading(run) for run in result.runs], result.loss, width)
        # Last, because labels stand where the lines end, which the limits decide.
        for name in panels:
            label_ends(axes[name, len(result.runs) - 1], HEIGHTS[name])
        if title or len(result.runs) == 1:
            words = title or heading(result.runs[0])
            figure.text(0.06 / width, 1 - 0.04 / height, words, ha="left", va="top", weight="bold")
        for row, line in enumerate(reversed(note)):
            y = (0.05 + NOTE_LINE * row) / height
            figure.text(0.06 / width, y, line, fontsize=NOTE_SIZE, va="bottom", color="0.25")
    return figure


def heading(run: RunFactors) -> str:
    """What a column is called: the run, and whether it is about its average over rounds."""
    return f"{run.run}, averaged" if run.model == "averaged" else run.run


def _axes(figure: Figure, panels: Sequence[str], columns: int, margin: float) -> dict[tuple[str, int], Axes]:
    """A panel for each name and run; rows share their values, columns their rounds."""
    width, height = figure.get_size_inches()
    wide = (width - LEFT - RIGHT - COLUMN_GAP * (columns - 1)) / columns
    axes: dict[tuple[str, int], Axes] = {}
    top = height - margin
    for name in panels:
        top -= HEIGHTS[name]
        for column in range(columns):
            left = LEFT + column * (wide + COLUMN_GAP)
            box = (left / width, top / height, wide / width, HEIGHTS[name] / height)
            axes[name, column] = figure.add_axes(
                box, sharex=axes.get((panels[0], column)), sharey=axes.get((name, 0)), label=f"{name} {column}"
            )
        top -= GAP
    return axes


def _furnish(
    axes: dict[tuple[str, int], Axes], panels: Sequence[str], headings: Sequence[str], loss: str, width: float
) -> None:
    for (name, column), ax in axes.items():
        if column == 0:
            full, short = TITLES[loss if name == "large" else name]
            fits = len(full) * CHARACTER <= width - LEFT
            ax.set_title(full if fits else short, loc="left", fontsize=SMALL, pad=3)
        if name == panels[0] and len(headings) > 1:
            # 1.3, because it is bold and larger than what CHARACTER was measured on.
            words = shortened(headings[column], int(width * ax.get_position().width / (1.3 * CHARACTER)))
            above = 1 + HEADING / HEIGHTS[name]
            ax.text(1.0, above, words, ha="right", va="bottom", weight="bold", transform=ax.transAxes)
        ax.margins(x=0.03)
        # Now, when every column is drawn: the limits are shared, and must hold all of them.
        ax.autoscale_view()
        if name in ("clients", "error"):
            ax.set_ylim(0.0, ax.get_ylim()[1])
        ax.tick_params(labelleft=column == 0, labelbottom=name == panels[-1])
        if name == panels[-1]:
            ax.set_xlabel("round")
