"""Warnings that are kept from the user for a while, in several threads at once."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Literal

_LOCK = Lock()
#: how Python was before the first of those that are inside, once for each of them
_inside: list[warnings.catch_warnings[None]] = []


@contextmanager
def without_warnings(category: type[Warning] = Warning, message: str = "", *, raised: bool = False) -> Iterator[None]:
    """Ignore warnings; afterwards Python does with them what it did before.

    What it does is the process's. ``warnings.catch_warnings`` in every thread would have the last one put back what
    another had set, so that nothing would be said any more: of several that are inside the last to leave puts back what
    was there before the first.

    Args:
        category: of those that are ignored.
        message: a regular expression that they begin with.
        raised: raise them instead.

    >>> before = list(warnings.filters)
    >>> with without_warnings():
    ...     warnings.warn("unheard")
    >>> warnings.filters == before
    True
    """
    action: Literal["error", "ignore"] = "error" if raised else "ignore"
    if getattr(sys.flags, "context_aware_warnings", False):  # of Python 3.14 on: each thread has its own
        with warnings.catch_warnings():
            warnings.filterwarnings(action, message, category)
            yield
        return
    with _LOCK:
        caught = _inside[0] if _inside else warnings.catch_warnings()
        if not _inside:
            caught.__enter__()
        _inside.append(caught)
        warnings.filterwarnings(action, message, category)
    try:
        yield
    finally:
        with _LOCK:
            last = _inside.pop()
            if not _inside:
                last.__exit__(None, None, None)
