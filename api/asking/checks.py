"""Settings that are none of those that there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def chosen(name: str, value: Any, options: Sequence[str]) -> None:
    """Refuse what is none of the options.

    Raises:
        FedscopeError: names the nearest one.
    """
    from ..checkpoints import FedscopeError, nearest

    if value not in options:
        raise FedscopeError(f"--{name} {value} is none of {', '.join(options)}{nearest(str(value), options)}")


def at_least(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number from ``least`` on.

    Raises:
        FedscopeError: a smaller number, or none.
    """
    from ..checkpoints import FedscopeError

    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise FedscopeError(f"--{name} {value} is no whole number from {least} on")
