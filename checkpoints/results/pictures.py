"""Figures as pictures, without warnings that a reader can do nothing about."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def quiet() -> Iterator[None]:
    """Matplotlib warns of each character that its font lacks, once a drawing, with a line of its own source. It draws
    a box in its place, which is seen."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
        yield


def picture_of(figure: Figure, form: str = "png", **how: Any) -> bytes:
    """A figure drawn as ``png``, ``pdf`` or ``svg``; ``how`` is as of ``savefig``."""
    room = BytesIO()
    with quiet():
        figure.savefig(room, format=form, **how)
    return room.getvalue()
