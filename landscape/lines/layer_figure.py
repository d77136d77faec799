"""Lines of single layers as heat maps, a row a layer, with the barriers at their side. Drawing only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...plotting.color_bar import color_bar
from ...plotting.drawing import drawing
from ...plotting.heatmaps import heat_map, name_cells, name_rows, room_for
from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.style import (
    CHARACTER,
    COLOURS,
    GREY,
    SMALL,
    SURFACE,
    describe_alignment,
    describe_data,
    describe_statistics,
    paper_style,
    shorten_label,
    word_of,
)
from ...plotting.ticks import decades, even
from .betas import coverage_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .layer_result import LayerLine

# Inches: gaps, the panel of barriers, the colour bar with its numbers, the axis' name, a row, and all rows at most.
GAP, BARRIERS, BAR, NUMBERS, LABEL, ROW, ROWS = 0.1, 0.5, 0.09, 0.5, 0.16, 0.17, 2.6
#: of the map, at least
MAP = 0.45
#: letters of a layer's name, at most and where there is little room
LETTERS, FEW = 20, 8
#: losses that lie further apart than this have a logarithmic scale
APART = 20.0


@drawing
def draw_layers(result: LayerLine, width: float = 3.5, title: str | None = None) -> Figure:
    """Draw the loss of every line, a row a layer that moves, and its barrier at the side: above with the other layers
    at A, below with them at B; ``width`` in inches."""
    beside = BARRIERS + BAR + NUMBERS + 2 * GAP
    letters = min(LETTERS, max(FEW, int((width - beside - MAP - 0.08) / CHARACTER)))
    names = [shorten_label(name, letters) for name in result.layers]
    betas = [f"{beta:.4g}" for beta in result.beta]
    with paper_style(width):
        left = max(map(len, names)) * CHARACTER + 0.08
        wide = width - left - beside
        high = len(names) * min(ROW, ROWS / len(names))
        said = wrap_words(_remark(result), width - 0.2, 0.9)
        below = room_for(betas, wide) + LABEL
        top = EDGE + (0.2 if title else 0.04)
        block = LINE + high + 0.09
        sheet = FigureLayout(width, top + 2 * block + below + LINE * len(said) + EDGE, title)
        norm = _norm(result.loss)
        limit = _limit(result.known_barriers + np.nan_to_num(result.barrier_stderr))
        image: Any = None
        for i, end in enumerate(result.ends):
            at = top + i * block + LINE
            words = f"others at {shorten_label(end, int((width - BAR - NUMBERS - 0.2) / CHARACTER) - 10)}"
            # above the map where that is wide enough, and from the figure's edge where it is not
            fits = left + len(words) * CHARACTER < width - BAR - NUMBERS - GAP
            sheet.text(left if fits else 0.09, at - 0.55 * LINE, words, size=SMALL)
            axes = sheet.axes(left, at, wide, high)
            image = heat_map(axes, result.loss[i], SURFACE, hatched=True, norm=norm)
            name_rows(axes, names, high)
            if len(names) > 1:
                axes.axhline(len(names) - 1.5, color="white", linewidth=1)
            if i:
                name_cells(axes, betas, wide, rows=False)
            else:
                axes.set_xticks([])
            _draw_barriers(sheet.axes(left + wide + GAP, at, BARRIERS, high), result, i, limit, last=bool(i))
        bottom = top + 2 * block - 0.09
        sheet.text(left + wide / 2, bottom + below - 0.08, r"$\beta$", ha="center", size=SMALL)
        nats = " (nats)" if result.attrs.get("loss_units", "nat") == "nat" else ""
        sheet.text(left + wide + GAP + BARRIERS / 2, bottom + below - 0.08, f"barrier{nats}", ha="center", size=SMALL)
        tall = bottom - top - LINE
        bar = sheet.bar(left + wide + 2 * GAP + BARRIERS, top + LINE, BAR, tall)
        label = f"{word_of(result.attrs, 'split')} loss{nats}".strip()
        drawn = color_bar(
            bar, image, label, None if _is_log(result.loss) else max(3, min(5, int(tall / 0.25))), quarters=True
        )
        if _is_log(result.loss):
            decades(drawn.ax.yaxis, (1, 2, 5), 12)
        return sheet.finished(said)


def _is_log(loss: np.ndarray) -> bool:
    known = loss[np.isfinite(loss)]
    return bool(known.size and known.min() > 0 and known.max() > APART * known.min())


def _norm(loss: np.ndarray) -> Any:
    """One scale for both maps."""
    from matplotlib.colors import LogNorm, Normalize

    known = loss[np.isfinite(loss)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    if high <= low:
        high = low + (abs(low) or 1.0) * 1e-3
    return (LogNorm if _is_log(loss) else Normalize)(low, high)


def _limit(barrier: np.ndarray) -> float:
    """The end of the barriers' axis."""
    known = barrier[np.isfinite(barrier)]
    return 1.08 * float(known.max()) if known.size and known.max() > 0 else 1.0


def _draw_barriers(axes: Axes, result: LayerLine, i: int, limit: float, *, last: bool) -> None:
    barriers, errors = result.known_barriers[i], result.barrier_stderr[i]
    shown = np.where(np.isfinite(barriers), barriers, 0.0)
    colours = [*[COLOURS[0]] * (len(barriers) - 1), GREY]
    axes.barh(np.arange(len(barriers)), shown, 0.7, color=colours)
    unknown = np.flatnonzero(~np.isfinite(barriers))  # or infinite: as wide as the panel
    hatched: dict[str, Any] = {"facecolor": "#e4e4e4", "edgecolor": "#9a9a9a", "hatch": "//////", "linewidth": 0}
    axes.barh(unknown, np.full(len(unknown), limit), 0.7, **hatched)
    known = np.flatnonzero(errors > 0)
    if known.size:
        look: dict[str, Any] = {"fmt": "none", "ecolor": "black", "elinewidth": 0.7}
        axes.errorbar(shown[known], known, xerr=errors[known], **look)
    axes.set(ylim=(len(barriers) - 0.5, -0.5), xlim=(0, limit), yticks=[])
    even(axes.xaxis, 2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.tick_params(axis="x", length=2, pad=2, labelbottom=last, labelsize=SMALL)


def _remark(result: LayerLine) -> str:
    first, second = (shorten_label(end, 40) for end in result.ends)
    parts = [rf"layers of a row move from {second} at $\beta$ = 0 to {first} at 1"]
    if result.attrs.get("layers") == "cumulative":
        parts.append("to: all layers up to this one")
    parts.append("barrier: the highest rise of a row above the straight line between its ends")
    if (result.barrier_stderr > 0).any():
        parts[-1] += ", with its standard error over samples"
    broken = int(np.count_nonzero(~np.isfinite(result.loss)))
    if not np.isfinite(result.known_barriers).all():
        parts[-1] += ", hatched where it is no number"
    if words := coverage_words(result.beta, r"$\beta$"):
        parts.append(words)
    if broken:
        parts.append(f"{broken:,} of {result.loss.size:,} points not finite (hatched)")
    if "data" in result.attrs:
        parts.append(describe_data(result.attrs))
    policy = describe_statistics(result.attrs, str(result.attrs.get("normalization_policy", "none")))
    aligned = describe_alignment(result.attrs, shorten_label(result.ends[0], 40))
    return "; ".join(filter(None, [*parts, policy, aligned]))
