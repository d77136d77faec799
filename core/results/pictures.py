"""Figures as pictures, without warnings that a reader can do nothing about."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

from ..checkpoints.io.errors import FedscopeError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def quiet() -> Iterator[None]:
    """Make and draw figures within this context.

    Matplotlib warns of each character that its font lacks, once a drawing, with a line of its own source. It draws a
    box in its place, which is seen.

    Raises:
        FedscopeError: what stands between two dollars of a text is no mathematics.
    """
    log = logging.getLogger("matplotlib.mathtext")
    level = log.level
    try:
        log.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
            yield
    except ValueError as error:
        wrong = re.search(r"^Parse\w+: (.*)", str(error), re.MULTILINE)
        if wrong is None:
            raise
        raise FedscopeError(
            f"a text of the figure, its title perhaps, is no mathematics that matplotlib can write ({wrong[1][:200]}); "
            "mend it, or write \\$ for a dollar"
        ) from None
    finally:
        log.setLevel(level)


def picture_of(figure: Figure, form: str = "png", **how: Any) -> bytes:
    """A figure drawn as ``png``, ``pdf`` or ``svg``; ``how`` is as of ``savefig``."""
    room = BytesIO()
    with quiet():
        figure.savefig(room, format=form, **how)
    return room.getvalue()
