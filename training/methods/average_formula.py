"""What an average over rounds says of its own formula, and what it has only inherited and says of another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import AverageMethod


def is_said(method: AverageMethod, name: str) -> bool:
    """Check whether a function says something of the method's own ``average``: that of a class above the one that
    defines ``average`` says it of another formula.

    >>> from fedscope.methods import AverageMethod
    >>> class Halves(AverageMethod):
    ...     def average(self, state, round, global_, history): ...
    >>> is_said(Halves(), "average"), is_said(Halves(), "members")
    (True, False)
    """
    kinds = type(method).__mro__
    place, other = (next(i for i, kind in enumerate(kinds) if one in vars(kind)) for one in (name, "average"))
    return place <= other


def members_of(method: AverageMethod, round: int) -> tuple[int, ...]:
    """Return the rounds of which ``averaged`` is the plain mean, as :meth:`~.base.AverageMethod.members` says; () where
    that is said of another formula."""
    return method.members(round) if is_said(method, "members") else ()


def begins_of(method: AverageMethod) -> int | None:
    """Return the first round of which anything differs, as :meth:`~.base.AverageMethod.begins` says; the first of all
    where that is said of another formula."""
    return method.begins() if is_said(method, "begins") else 1
