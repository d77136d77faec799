"""Rounds that wait for their evaluation when a loop closes nothing: they are recorded as the program ends."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any, Protocol

from ..io.warn_user import warn_user


class _Settles(Protocol):
    """What holds a round."""

    def settle(self) -> None: ...


class _Held:
    """Who holds a round, in which process, and what warns if it is dropped.

    None is kept alive by it: a cell of a notebook that runs again drops the strategy of before, whose folder is to be
    free.
    """

    def __init__(self) -> None:
        self._by: weakref.WeakKeyDictionary[_Settles, tuple[int, weakref.finalize[Any, Any]]] = (
            weakref.WeakKeyDictionary()
        )

    def add(self, one: _Settles, sentence: str) -> None:
        """Have it settled as the program ends.

        Args:
            sentence: warns that it was dropped by then.
        """
        dropped = weakref.finalize(one, warn_user, sentence)
        dropped.atexit = False
        self._by[one] = os.getpid(), dropped
        atexit.unregister(self._settle)  # the latest is called first: before those of what writes files
        atexit.register(self._settle)

    def forget(self, one: _Settles) -> None:
        """Take note that it is settled."""
        if (found := self._by.pop(one, None)) is not None:
            found[1].detach()

    def _settle(self) -> None:
        for one in [one for one, (process, _) in self._by.items() if process == os.getpid()]:
            one.settle()


HELD = _Held()
