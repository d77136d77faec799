"""Warnings that name the line of the user's program that has led to them, and no line of fedscope's."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from .errors import FedscopeWarning


def warn_user(sentence: str) -> None:
    """Warn at the first line from here up that is neither of fedscope nor of Python's own modules.

    How many calls lie between depends on who has called whom, so no ``stacklevel`` would be right for all. Where all
    are of these, as in a thread of fedscope's, it is the last of them.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and not _is_outside(frame):
        frame = frame.f_back
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__", "<string>")
    place = (frame.f_code.co_filename, frame.f_lineno, module, registry)
    # without the module's own globals, by which its source would be read again: the file may be another by now
    warnings.warn_explicit(FedscopeWarning(sentence), FedscopeWarning, *place)


def _is_outside(frame: FrameType) -> bool:
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    return package != __name__.partition(".")[0] and package not in sys.stdlib_module_names
