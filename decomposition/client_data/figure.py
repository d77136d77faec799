"""Figures of the clients' samples: bubbles by class, sizes, and samples. Drawing only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...checkpoints import FedscopeError
from ...checkpoints.io.visible_text import visible
from ...plotting.drawing import drawing
from ...plotting.layout import EDGE, LINE, FigureLayout, wrap_words
from ...plotting.style import CHARACTER, COLOURS, GREY, SMALL, paper_style, shorten_label
from ...plotting.ticks import even

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .result import ClientData

# Inches. Room left of the panels, right of them, below the lower one; height of the upper one.
LEFT, RIGHT, BOTTOM, SIZES = 0.56, 0.1, 0.36, 0.5
#: of the line breaks of a text, which is drawn as a line; the width of its characters, of a size
BREAKS, FIXED = str.maketrans({"\n": "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}", "\r": " ", "\t": " "}), 0.602 / 72
#: so many clients can be told apart in a column of a paper
CLIENTS = 100
#: letters that a domain's name has at least; the table names them all
LEGIBLE = 3


@drawing
def draw(result: ClientData, width: float = 3.5, title: str | None = None) -> Figure:
    """Above the clients' numbers of samples, below a bubble for each client and class, its area the number of samples.

    Of more than 100 clients 100 are shown, evenly over their ids. Where there is one class, or none, there is nothing
    below.
    """
    clients, classes = len(result.clients), result.counts.shape[1]
    rows = result.clients[np.unique(np.linspace(0, clients - 1, min(clients, CLIENTS)).round().astype(int))]
    counts = result.counts[rows]
    with paper_style(width):
        remarks = wrap_words(_remark(result, len(rows)), width - 0.2, 0.86)
        top = EDGE + (0.2 if title else 0.04) + (LINE if result.domains else 0)
        across = width - LEFT - RIGHT
        # a cell as high as it is wide, as far as a page allows
        high = float(np.clip(across / len(rows) * classes, 1.2, 4.0)) if classes > 1 else 0.0
        sizes = SIZES if high else 2 * SIZES
        below = top + sizes + (0.08 if high else 0.0)
        sheet = FigureLayout(width, below + high + BOTTOM + LINE * len(remarks) + EDGE, title)
        panels = [sheet.axes(LEFT, top, across, sizes, ylabel=0.4)]
        panels[0].bar(np.arange(len(rows)), result.sizes[rows], width=0.8, color=COLOURS[0], linewidth=0)
        panels[0].set_ylabel("samples")
        if high:
            panels[0].set_xticks([])
            panels.append(sheet.axes(LEFT, below, across, high, ylabel=0.4))
            _bubbles(panels[1], counts, across, high)
        for axes in panels:
            axes.set_xlim(-0.75, len(rows) - 0.25)
        _name_clients(panels[-1], rows)
        _separate(panels, result, rows, across / (len(rows) + 0.5))
        return sheet.finished(remarks)


def _bubbles(axes: Axes, counts: np.ndarray, across: float, high: float) -> None:
    k, c = np.nonzero(counts)
    # the largest bubble fills the smaller side of a cell, but is not smaller than can be seen; areas are in points²
    cell = 72 * min(across / len(counts), high / counts.shape[1])
    largest = max(cell, 5.0) * 1.1
    axes.scatter(k, c, s=largest**2 * counts[k, c] / counts.max(), color=COLOURS[0], alpha=0.8, linewidths=0)
    axes.set_ylim(-0.75, counts.shape[1] - 0.25)
    axes.set_ylabel("class")
    even(axes.yaxis, 10, integer=True)


def _name_clients(axes: Axes, rows: np.ndarray) -> None:
    """Ids under the columns, as many as fit."""
    step = max(1, -(-len(rows) // 10))
    step = next(round_ for round_ in (1, 2, 5, 10, 20, 50, 100) if round_ >= step)
    axes.set_xlabel("client")
    axes.set_xticks(np.arange(0, len(rows), step), [str(client) for client in rows[::step]])


def _separate(panels: Sequence[Axes], result: ClientData, rows: np.ndarray, column: float) -> None:
    """A line where the domain changes, and the domains' names above their clients, as much of them as fits.

    Args:
        column: inches that a client has.
    """
    if not len(result.client_domains):
        return
    of = result.client_domains[rows]
    borders = np.flatnonzero(np.diff(of)) + 1
    for border in borders:
        for axes in panels:
            axes.axvline(border - 0.5, color=GREY, linewidth=0.5)
    starts, ends = [0, *borders.tolist()], [*borders.tolist(), len(of)]
    for start, end in zip(starts, ends, strict=True):
        fits = int((end - start) * column / CHARACTER) - 1  # and a space
        if of[start] >= 0 and fits >= LEGIBLE:
            name = shorten_label(result.domains[of[start]], min(fits, 14))
            place = ((start + end - 1) / 2, 1.04)
            above = panels[0].get_xaxis_transform()
            panels[0].text(*place, name, fontsize=SMALL, ha="center", va="bottom", transform=above)


def _remark(result: ClientData, shown: int) -> str:
    clients = len(result.clients)
    largest = int(result.counts.max())
    parts = [f"areas are numbers of samples, the largest {largest:,}"] if result.counts.shape[1] > 1 else []
    if shown < clients:
        parts.append(f"{shown} of {clients:,} clients, evenly over their ids")
    if result.test.any():
        parts.append("without the clients' own test parts")
    parts.append(shorten_label(result.title, 60))
    return "; ".join(parts)


@drawing
def draw_any_samples(result: ClientData, width: float = 3.5, title: str | None = None) -> Figure | None:
    """Samples where they are images or texts; None of others."""
    return draw_samples(result, width, title) if result.images.size or result.texts else None


@drawing
def draw_samples(result: ClientData, width: float = 3.5, title: str | None = None) -> Figure:
    """A few samples of some clients: images a row a client, texts a line a sample."""
    if result.texts:
        return _draw_texts(result, width, title)
    if not result.images.size:
        raise FedscopeError("samples of these data are not images, so there is nothing to look at")
    clients, each, channels, height, wide = result.images.shape
    with paper_style(width):
        left, gap, top = 0.62, 0.03, EDGE + (0.24 if title else 0.04)
        side = (width - left - EDGE - gap * (each - 1)) / each
        tall = side * height / wide
        figure_height = top + clients * (tall + gap) + EDGE
        sheet = FigureLayout(width, figure_height, title)
        for i, client in enumerate(result.shown):
            down = top + i * (tall + gap)
            sheet.text(left - 0.06, down + tall / 2, f"client {client}", ha="right", fontsize=SMALL)
            for j in range(each):
                axes = sheet.axes(left + j * (side + gap), down, side, tall)
                picture = result.images[i, j]
                shown = picture[0] if channels == 1 else picture.transpose(1, 2, 0)
                axes.imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
                axes.set_axis_off()
        return sheet.finished(())


def _draw_texts(result: ClientData, width: float, title: str | None) -> Figure:
    """Draw as much of each sample as fits a line, in type of one width."""
    with paper_style(width):
        left, gap, top = 0.62, 0.08, EDGE + (0.24 if title else 0.04)
        room = int((width - left - EDGE) / (SMALL * FIXED))
        each = max(map(len, result.texts))
        sheet = FigureLayout(width, top + len(result.shown) * (each * LINE + gap) + EDGE, title)
        for i, (client, texts) in enumerate(zip(result.shown, result.texts, strict=True)):
            down = top + i * (each * LINE + gap) + LINE / 2
            sheet.text(left - 0.06, down, f"client {client}", ha="right", fontsize=SMALL)
            for j, text in enumerate(texts):
                line = visible(text.translate(BREAKS))
                line = line if len(line) <= room else line[: room - 1] + "\N{HORIZONTAL ELLIPSIS}"
                # a dollar sign is a dollar sign
                style = {"fontfamily": "DejaVu Sans Mono", "fontsize": SMALL, "parse_math": False}
                sheet.text(left, down + j * LINE, line, **style)
        return sheet.finished(())
