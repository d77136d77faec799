"""What a page shows where its script is not there or does not run: the figure as a picture, its numbers in words."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ..checkpoints import FedscopeError
from ..results.pictures import picture_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..results import Result

#: dots an inch of a figure in a page
PAGE_DPI = 220


@dataclass(frozen=True)
class Still:
    """A result without a script.

    Attributes:
        png: its figure; empty where there is nothing to draw.
        words: its sentence, with the numbers; lines end at line breaks.
    """

    png: bytes
    words: str


def still_of(result: Result, **drawing: Any) -> Still:
    """Draw a result's figure for its page, as wide as a column, so that its letters are legible on a phone.

    Args:
        drawing: what the figure can be asked.
    """
    try:
        png = draw_small(result.figure(**drawing))
    except FedscopeError:  # nothing in it can be drawn, which the words say
        png = b""
    return Still(png, result.summary())


def draw_small(figure: Figure, dpi: int = PAGE_DPI) -> bytes:
    """Draw a picture of 256 colours, a third as large: these figures have few more.

    The colours are chosen to cover all that occur, for a method's colour may be that of one small marker.
    """
    from PIL import Image

    from .style import paper_style

    room = BytesIO()
    with paper_style(figure.get_figwidth()):
        drawn = picture_of(figure, dpi=dpi)
    whole = Image.open(BytesIO(drawn)).convert("RGB")
    whole.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE).save(room, "png")
    return room.getvalue()
