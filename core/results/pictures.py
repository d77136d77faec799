"""Figures as pictures, without warnings that a reader can do nothing about."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from threading import RLock
from typing import TYPE_CHECKING, Any

from ..checkpoints.io.errors import FedscopeError
from ..checkpoints.io.quiet import without_warnings

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class _Turn:
    """Whose turn it is to draw. A process that is forked begins with a turn of its own: the thread that had it in the
    parent is not there to end it."""

    def __init__(self) -> None:
        self.renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.lock = RLock()


_TURN = _Turn()


@contextmanager
def in_turn() -> Iterator[None]:
    """Draw in one thread at a time: matplotlib's settings are those of the whole process, as are Python's warnings, and
    of two threads that change them for a while the second would put back the first one's."""
    with _TURN.lock:
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Make and draw figures within this context, in one thread at a time.

    Matplotlib warns of each character that its font lacks, once a drawing, with a line of its own source. It draws a
    box in its place, which is seen.

    Raises:
        FedscopeError: what stands between two dollars of a text is no mathematics.
    """
    with in_turn(), _without_warnings():
        yield


@contextmanager
def _without_warnings() -> Iterator[None]:
    log = logging.getLogger("matplotlib.mathtext")
    level = log.level
    try:
        log.setLevel(logging.ERROR)
        with without_warnings(UserWarning, r"Glyph \d+ .*missing from"):
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
