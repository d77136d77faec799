"""Warnings that are kept from the user for a while, in several threads at once."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

_LOCK = Lock()


@dataclass(eq=False)
class _Inside:
    """One that is inside.

    Attributes:
        own: its filter, which is told from equal ones by which object it is.
        filters: the list that it was put into, which is another where the program is in ``warnings.catch_warnings``.
        before: what was in there.
    """

    own: tuple[Any, ...]
    filters: list[Any]
    before: list[Any]


#: those that are inside, as they have entered
_inside: list[_Inside] = []


@contextmanager
def without_warnings(category: type[Warning] = Warning, message: str = "", *, raised: bool = False) -> Iterator[None]:
    """Ignore warnings; afterwards Python does with them what it did before.

    What it does is the process's. ``warnings.catch_warnings`` in every thread would have the last one put back what
    another had set, so that nothing would be said any more. Whoever leaves here takes what it has set along, and the
    last of several that are inside puts back what was there before the first.

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
    action = "error" if raised else "ignore"
    if getattr(sys.flags, "context_aware_warnings", False):  # of Python 3.14 on: each thread has its own
        with warnings.catch_warnings():
            warnings.filterwarnings(action, message, category)  # type: ignore[arg-type]
            yield
        return
    # as warnings.filterwarnings makes it, which would take an equal one of another thread's out
    one = _enter((action, re.compile(message, re.IGNORECASE) if message else None, category, None, 0))
    try:
        yield
    finally:
        _leave(one)


def _enter(own: tuple[Any, ...]) -> _Inside:
    with _LOCK:
        filters: Any = warnings.filters
        one = _Inside(own, filters, list(filters))
        _inside.append(one)
        filters.insert(0, own)
        _read_anew()
    return one


def _leave(one: _Inside) -> None:
    """Put back what was there before it: now, or once those that have entered after it have left."""
    with _LOCK:
        at = _inside.index(one)
        later = _inside[at + 1 :]
        del _inside[at]
        # the program's list, too, which is a copy where it has entered catch_warnings since
        held: list[Any] = [one.filters, warnings.filters]
        for other in later:
            held += (other.filters, other.before)
        for filters in held:
            filters[:] = [each for each in filters if each is not one.own]
        heir = next((other for other in later if other.filters is one.filters), None)
        if heir is None:
            one.filters[:] = one.before
        else:
            heir.before = one.before
        _read_anew()


def _read_anew() -> None:
    """Have Python forget what it has found for warnings that were given before; the filters' lists were changed in
    place, which it does not see by itself."""
    changed: Any = getattr(warnings, "_filters_mutated", None)
    if changed is not None:
        changed()
        return
    python: Any = warnings  # of 3.14 on
    with python._lock:
        python._filters_mutated_lock_held()
